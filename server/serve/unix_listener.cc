#include "server/serve/unix_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/serve/address.h"

namespace plumbline {
namespace {

using absl::StrCat;

constexpr absl::Duration kPause = absl::Milliseconds(50);  // After an error that the next accept() would have as well.
constexpr absl::Duration kGreetingWait = absl::Seconds(10);
constexpr std::size_t kWaitingMax = 256;
constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";  // What a client of HTTP/2 sends first (RFC 9113, 3.4).
constexpr std::size_t kPrefaceBytes = sizeof kPreface - 1;
constexpr char kNotHttp2[] =
    "HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain\r\nContent-Length: 35\r\n"
    "Connection: close\r\n\r\nexpected gRPC, which is over HTTP/2";

enum class Greeting { kNone, kPart, kWhole, kOther };

Greeting greeting_of(int connection) {
  char bytes[kPrefaceBytes];
  const ssize_t got = recv(connection, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Greeting::kNone;
  if (got <= 0 || memcmp(bytes, kPreface, static_cast<std::size_t>(got)) != 0) return Greeting::kOther;
  return got == static_cast<ssize_t>(kPrefaceBytes) ? Greeting::kWhole : Greeting::kPart;
}

void dismiss(int connection) {
  send(connection, kNotHttp2, sizeof kNotHttp2 - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  close(connection);
}

int open_reserve() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::listen(const Options& options) {
  if (options.inherited >= 0) {
    return std::unique_ptr<UnixListener>(new UnixListener(options.path, options.inherited));
  }
  if (auto cleared = clear_stale_socket(options.path); !cleared.ok()) return cleared;
  const auto failed = [&](const char* doing) {
    return absl::UnavailableError(
        StrCat("--listen: cannot listen on unix:", options.path, ": ", doing, ": ", strerror(errno)));
  };
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return failed("socket");
  auto listener = std::unique_ptr<UnixListener>(new UnixListener(options.path, made));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  options.path.copy(name.sun_path, sizeof name.sun_path - 1);
  // Its owner's alone (main() sets the umask) until its mode and group are what they shall be.
  if (bind(made, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) return failed("bind");
  listener->bound_ = true;
  const uid_t same = static_cast<uid_t>(-1);
  if (options.group != static_cast<gid_t>(-1) && chown(options.path.c_str(), same, options.group) != 0) {
    return absl::PermissionDeniedError(StrCat("--socket-group: ", options.path, ": ", strerror(errno)));
  }
  if (chmod(options.path.c_str(), options.mode) != 0) return failed("chmod");
  if (::listen(made, SOMAXCONN) != 0) return failed("listen");
  return listener;
}

UnixListener::UnixListener(std::string path, int socket)
    : path_(std::move(path)), socket_(socket), stop_(eventfd(0, EFD_CLOEXEC)), reserve_(open_reserve()) {}

UnixListener::~UnixListener() {
  if (thread_.joinable()) {
    eventfd_write(stop_, 1);
    thread_.join();
  }
  if (bound_) unlink(path_.c_str());
  for (const int descriptor : {socket_, stop_, reserve_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

void UnixListener::serve(grpc::Server* server) {
  thread_ = std::thread([this, server] { accept_all(server); });
}

void UnixListener::accept_all(grpc::Server* server) {
  std::deque<Waiting> waiting;
  const absl::Cleanup close_all = [&waiting] {
    for (const Waiting& each : waiting) close(each.connection);
  };
  for (;;) {
    std::vector<pollfd> polled = {{socket_, POLLIN, 0}, {stop_, POLLIN, 0}};
    absl::Duration wait = absl::InfiniteDuration();
    if (!waiting.empty()) wait = std::max(absl::ZeroDuration(), waiting.front().until - absl::Now());
    for (const Waiting& each : waiting) {
      polled.push_back({each.connection, static_cast<short>(each.begun ? 0 : POLLIN), 0});
      if (each.begun) wait = std::min(wait, kPause);  // The rest of its greeting wakes nobody.
    }
    const int wait_ms = wait == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1;
    if (poll(polled.data(), polled.size(), wait_ms) < 0 && errno != EINTR) absl::SleepFor(kPause);
    if ((polled[1].revents & POLLIN) != 0) return;
    std::deque<Waiting> still;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const bool gone = (polled[i + 2].revents & (POLLHUP | POLLERR)) != 0;
      if (waits_on(&waiting[i], gone, server)) still.push_back(waiting[i]);
    }
    waiting.swap(still);
    if ((polled[0].revents & POLLIN) != 0) accept_one(&waiting);
  }
}

bool UnixListener::waits_on(Waiting* each, bool gone, grpc::Server* server) {
  switch (greeting_of(each->connection)) {
    case Greeting::kWhole:
      grpc::AddInsecureChannelFromFd(server, each->connection);
      return false;
    case Greeting::kPart:
      each->begun = true;
      [[fallthrough]];
    case Greeting::kNone:
      if (!gone && absl::Now() < each->until) return true;
      [[fallthrough]];
    case Greeting::kOther:
      dismiss(each->connection);
  }
  return false;
}

void UnixListener::accept_one(std::deque<Waiting>* waiting) {
  const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection >= 0) {
    if (waiting->size() >= kWaitingMax) {
      dismiss(waiting->front().connection);
      waiting->pop_front();
    }
    waiting->push_back({connection, absl::Now() + kGreetingWait});
  } else if (errno == EMFILE || errno == ENFILE) {
    turn_away();
  } else if (errno == ENOBUFS || errno == ENOMEM) {
    absl::SleepFor(kPause);
  }
}

// Without a descriptor, a connection that waits would keep poll() from waiting.
void UnixListener::turn_away() {
  if (reserve_ >= 0) close(reserve_);
  const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection >= 0) close(connection);
  reserve_ = open_reserve();
  if (connection < 0 || reserve_ < 0) absl::SleepFor(kPause);
}

}  // namespace plumbline
