#include "tests/unit/store/postgres_server.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace plumbline {
namespace {

constexpr std::chrono::seconds kStart{60};

// POSTGRES_BIN has the server's programs. They write to `log`.
pid_t spawn(const std::string& log, const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  // The server ends with the test, whatever becomes of that; and it refuses to be root.
  if (::geteuid() == 0)
    words = {"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"};
  else
    words = {"setpriv"};
  words.push_back("--pdeathsig=QUIT");
  words.push_back(std::string(POSTGRES_BIN) + "/" + program);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, "setpriv", &files, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  EXPECT_EQ(error, 0) << program;
  return error == 0 ? child : -1;
}

}  // namespace

PostgresServer& PostgresServer::shared() {
  static PostgresServer server;
  return server;
}

PostgresServer::PostgresServer(bool fsync, int connections) : fsync_(fsync), connections_(connections) {
  std::string pattern = (std::filesystem::temp_directory_path() / "plumbline-postgres-XXXXXX").string();
  folder_ = mkdtemp(pattern.data());
  if (::geteuid() == 0) {
    const passwd* const nobody = ::getpwnam("nobody");
    EXPECT_EQ(nobody == nullptr ? -1 : ::chown(folder_.c_str(), nobody->pw_uid, nobody->pw_gid), 0);
  }
  const pid_t made =
      spawn(folder_ + ".log", "initdb",
            {"-D", folder_ + "/data", "-A", "trust", "-U", "plumbline", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"});
  int status = -1;
  EXPECT_EQ(::waitpid(made, &status, 0), made);
  EXPECT_EQ(status, 0) << "initdb; see " << folder_ << ".log";
  start();
}

PostgresServer::~PostgresServer() {
  if (server_ > 0) {
    ::kill(server_, SIGQUIT);
    ::waitpid(server_, nullptr, 0);
  }
  std::filesystem::remove_all(folder_);
  std::filesystem::remove(folder_ + ".log");
}

void PostgresServer::start() {
  server_ = spawn(folder_ + ".log", "postgres",
                  {"-D", folder_ + "/data", "-k", folder_, "-h", "", "-c", fsync_ ? "fsync=on" : "fsync=off", "-c",
                   "max_connections=" + std::to_string(connections_)});
  const auto until = std::chrono::steady_clock::now() + kStart;
  while (PQping(url().c_str()) != PQPING_OK) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "the server does not start; see " << folder_ << ".log";
    ASSERT_EQ(::waitpid(server_, nullptr, WNOHANG), 0) << "the server ended; see " << folder_ << ".log";
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void PostgresServer::crash() {
  ASSERT_GT(server_, 0);
  ::kill(server_, SIGQUIT);  // Its "immediate" end: no process of it writes anything more, and the next start recovers.
  ::waitpid(server_, nullptr, 0);
  server_ = -1;
}

std::vector<pid_t> PostgresServer::processes() const {
  std::vector<pid_t> found = {server_};  // First: it starts no others once it has stopped.
  const std::string id = std::to_string(server_);
  std::ifstream children("/proc/" + id + "/task/" + id + "/children");
  for (pid_t child; children >> child;) found.push_back(child);
  return found;
}

void PostgresServer::freeze() {
  ::kill(server_, SIGSTOP);
  for (const pid_t process : processes()) ::kill(process, SIGSTOP);
}

void PostgresServer::thaw() {
  for (const pid_t process : processes()) ::kill(process, SIGCONT);
}

std::string PostgresServer::url() const { return "postgresql://plumbline@/postgres?host=" + folder_; }

std::string PostgresServer::fresh_schema() { return "test_" + std::to_string(++schemas_); }

std::unique_ptr<PostgresConnection> PostgresServer::connect(const std::string& schema) const {
  auto connection = std::make_unique<PostgresConnection>(PostgresSettings{url(), schema});
  EXPECT_TRUE(connection->connect().ok());
  return connection;
}

}  // namespace plumbline
