// Many daemons, as far as histories go, that share one PostgreSQL: each has a store of its own, in which a verdict is
// committed every ten seconds, and what ships it. Prints one line of JSON.
// usage: fleet_bench DAEMONS SECONDS
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/store/encode.h"
#include "server/store/shared_history.h"
#include "tests/unit/store/postgres_server.h"
#include "tests/unit/store/sample.h"

namespace plumbline {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kVerdictsASecond = 0.1;  // Of one daemon.
constexpr std::chrono::minutes kPatience{5};
constexpr int kConnectionsOfADaemon = 3;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

struct Member {
  std::string folder;
  std::unique_ptr<SqlStore> store;
  std::unique_ptr<Outbox> outbox;
  std::unique_ptr<SharedHistory> history;
  std::int64_t steps = 0;
};

class Fleet {
 public:
  Fleet(std::size_t size, const PostgresServer& server, const std::string& schema) {
    for (std::size_t i = 0; i < size; ++i) {
      auto member = std::make_unique<Member>();
      member->folder = root_ + "/" + std::to_string(i);
      std::filesystem::create_directories(member->folder);
      member->store = *open_local_store(member->folder);
      member->outbox = *Outbox::open(member->folder, member->store.get());
      SharedHistory::Options options;
      options.url = server.url();
      options.schema = schema;
      options.host = "node" + std::to_string(i);
      options.version = "1.0";
      member->history = *open_shared_history(options, member->store.get(), member->outbox.get());
      members_.push_back(std::move(member));
    }
  }
  ~Fleet() {
    members_.clear();
    std::filesystem::remove_all(root_);
  }

  void append(std::size_t i) {
    Member& member = *members_[i];
    ++begun_;
    member.store->append(to_proto(sample_verdict("job" + std::to_string(i), member.steps++)), {}, "",
                         [this](const absl::Status& status) { ++(status.ok() ? committed_ : failed_); });
  }

  std::int64_t begun() const { return begun_; }
  std::int64_t committed() const { return committed_; }
  std::int64_t failed() const { return failed_; }

 private:
  static std::string make_root() {
    std::string pattern = (std::filesystem::temp_directory_path() / "plumbline-fleet-XXXXXX").string();
    return mkdtemp(pattern.data());
  }
  const std::string root_ = make_root();
  std::atomic<std::int64_t> begun_ = 0, committed_ = 0, failed_ = 0;  // Before those who count.
  std::vector<std::unique_ptr<Member>> members_;
};

// What the history has, and how long until it had all that was committed.
class Watcher {
 public:
  Watcher(const PostgresServer& server, const std::string& schema)
      : connection_(server.connect("public")), schema_(schema) {}

  std::int64_t number(const std::string& sql) const { return connection_->integer(sql).value_or(-1); }
  std::int64_t rows() const { return number("SELECT count(*) FROM " + schema_ + ".verdicts"); }
  bool reaches(std::int64_t count) const {
    for (const auto until = Clock::now() + kPatience; Clock::now() < until;) {
      if (rows() >= count) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

 private:
  const std::unique_ptr<PostgresConnection> connection_;
  const std::string schema_;
};

int run(std::size_t daemons, double time) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  PostgresServer server(/*fsync=*/true, static_cast<int>(daemons) * kConnectionsOfADaemon + 100);
  const std::string schema = server.fresh_schema();
  Fleet fleet(daemons, server, schema);
  const Watcher watcher(server, schema);
  for (std::size_t i = 0; i < daemons; ++i) fleet.append(i);  // All have connected once these are there.
  if (!watcher.reaches(static_cast<std::int64_t>(daemons))) return 1;

  // The history is looked at while the daemons write: how far it is behind is what came meanwhile, in seconds of it.
  std::vector<double> behind;
  const double rate = kVerdictsASecond * static_cast<double>(daemons);
  const auto begin = Clock::now();
  auto look = begin;
  std::int64_t written = 0;
  for (; seconds(Clock::now() - begin) < time; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    for (; static_cast<double>(written) < rate * seconds(Clock::now() - begin); ++written)
      fleet.append(static_cast<std::size_t>(written) % daemons);
    if (Clock::now() < look) continue;
    look = Clock::now() + std::chrono::milliseconds(500);
    const std::int64_t committed = fleet.committed();
    behind.push_back(static_cast<double>(std::max<std::int64_t>(0, committed - watcher.rows())) / rate);
  }
  const double took = seconds(Clock::now() - begin);
  const std::int64_t connections = watcher.number("SELECT count(*) FROM pg_stat_activity WHERE datname='postgres'");
  const bool all = watcher.reaches(fleet.begun());
  const std::int64_t there = watcher.rows();
  std::ranges::sort(behind);
  const auto at = [&](double share) {
    return behind.empty() ? 0 : behind[static_cast<std::size_t>(share * static_cast<double>(behind.size() - 1))];
  };
  std::printf(
      "{\"daemons\":%zu,\"verdicts\":%lld,\"lost\":%lld,\"verdicts_per_s\":%.1f,\"behind_s\":%.2f,"
      "\"behind_most_s\":%.2f,\"connections\":%lld}\n",
      daemons, static_cast<long long>(fleet.begun()), static_cast<long long>(fleet.begun() - there),
      static_cast<double>(written) / took, at(0.5), at(1), static_cast<long long>(connections));
  return all && fleet.failed() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace plumbline

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: fleet_bench DAEMONS SECONDS\n");
    return 2;
  }
  return plumbline::run(static_cast<std::size_t>(std::atoi(argv[1])), std::atof(argv[2]));
}
