#include "server/serve/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
#include "server/log/log.h"
#include "server/work/steady.h"

namespace plumbline {
namespace {

using absl::StrCat;

constexpr absl::Duration kPause = absl::Milliseconds(50);  // After an error that the next accept() would have as well.
constexpr absl::Duration kGreetingWait = absl::Seconds(10);
constexpr std::size_t kWaitingMax = 256;
constexpr int kAcceptedAtOnce = 32;
constexpr char kNotHttp2[] =
    "HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain\r\nContent-Length: 35\r\n"
    "Connection: close\r\n\r\nexpected gRPC, which is over HTTP/2";

// Who is at the other end, to count its connections.
std::string peer_of(int connection) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(connection, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.ss_family == AF_UNIX) {
    ucred credentials{};
    size = sizeof credentials;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return "";
    return StrCat("uid:", credentials.uid);
  }
  char number[NI_MAXHOST] = {};
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, number, sizeof number, nullptr, 0, NI_NUMERICHOST);
  return number;
}

int open_reserve() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::listen(const Options& options) {
  if (options.inherited >= 0) return std::unique_ptr<Listener>(new Listener(options, options.inherited));
  const bool local = options.address.kind == Address::Kind::kUnix;
  if (local) {
    if (auto cleared = clear_stale_socket(options.address.path); !cleared.ok()) return cleared;
  }
  const int family = local ? AF_UNIX : options.address.text.front() == '[' ? AF_INET6 : AF_INET;
  const int made = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  auto listener = std::unique_ptr<Listener>(new Listener(options, made));
  if (made < 0) return listener->failed("socket");
  if (auto bound = local ? listener->bind_unix() : listener->bind_tcp(); !bound.ok()) return bound;
  if (::listen(made, SOMAXCONN) != 0) return listener->failed("listen");
  return listener;
}

absl::Status Listener::failed(const char* doing) const {
  return absl::UnavailableError(
      StrCat("--listen: cannot listen on ", options_.address.text, ": ", doing, ": ", strerror(errno)));
}

absl::Status Listener::bind_unix() {
  const std::string& path = options_.address.path;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  // Its owner's alone (main() sets the umask) until its mode and group are what they shall be.
  if (bind(socket_, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) return failed("bind");
  bound_ = true;
  const uid_t same = static_cast<uid_t>(-1);
  if (options_.group != static_cast<gid_t>(-1) && chown(path.c_str(), same, options_.group) != 0) {
    return absl::PermissionDeniedError(StrCat("--socket-group: ", path, ": ", strerror(errno)));
  }
  return chmod(path.c_str(), options_.mode) == 0 ? absl::OkStatus() : failed("chmod");
}

absl::Status Listener::bind_tcp() {
  const auto colon = address_.rfind(':');
  std::string host = address_.substr(0, colon);
  const std::string port = address_.substr(colon + 1);
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::InvalidArgumentError(StrCat("--listen: ", address_, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  const int on = 1;  // A port whose last connections are still being closed is free.
  if (setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) return failed("setsockopt");
  if (bind(socket_, found->ai_addr, found->ai_addrlen) != 0) return failed("bind");
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  char number[NI_MAXSERV] = {};
  if (getsockname(socket_, reinterpret_cast<sockaddr*>(&name), &size) != 0) return failed("getsockname");
  getnameinfo(reinterpret_cast<const sockaddr*>(&name), size, nullptr, 0, number, sizeof number, NI_NUMERICSERV);
  address_.replace(colon + 1, std::string::npos, number);
  return absl::OkStatus();
}

Listener::Listener(const Options& options, int socket)
    : options_(options),
      socket_(socket),
      stop_(eventfd(0, EFD_CLOEXEC)),
      reserve_(open_reserve()),
      address_(options.address.text) {}

Listener::~Listener() {
  if (thread_.joinable()) {
    eventfd_write(stop_, 1);
    thread_.join();
  }
  if (bound_) unlink(options_.address.path.c_str());
  for (const int descriptor : {socket_, stop_, reserve_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

void Listener::serve(Give give, Connections* connections) {
  give_ = std::move(give);
  connections_ = connections;
  thread_ = std::thread([this] { accept_all(); });
}

void Listener::accept_all() {
  std::deque<Waiting> waiting;
  const absl::Cleanup close_all = [&waiting] {
    for (const Waiting& each : waiting) close(each.connection);
  };
  for (;;) {
    std::vector<pollfd> polled = {{socket_, POLLIN, 0}, {stop_, POLLIN, 0}};
    absl::Duration wait = absl::InfiniteDuration();
    if (!waiting.empty()) wait = std::max(absl::ZeroDuration(), waiting.front().until - steady_now());
    for (const Waiting& each : waiting) {
      polled.push_back({each.connection, static_cast<short>(each.begun ? 0 : POLLIN), 0});
      if (each.begun) wait = std::min(wait, kPause);  // The rest of its greeting wakes nobody.
    }
    const int wait_ms = wait == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1;
    if (poll(polled.data(), polled.size(), wait_ms) < 0 && errno != EINTR) absl::SleepFor(kPause);
    if ((polled[1].revents & POLLIN) != 0) return;
    std::deque<Waiting> still;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const short news = polled[i + 2].revents;
      const bool asked = news != 0 || waiting[i].begun || steady_now() >= waiting[i].until;
      if (!asked || waits_on(&waiting[i], (news & (POLLHUP | POLLERR)) != 0)) still.push_back(waiting[i]);
    }
    waiting.swap(still);
    if ((polled[0].revents & POLLIN) == 0) continue;
    for (int i = 0; i < kAcceptedAtOnce && accept_one(&waiting); ++i) continue;
  }
}

bool Listener::waits_on(Waiting* each, bool gone) {
  switch (greeting_of(each->connection, options_.protocol)) {
    case Greeting::kWhole:
      give(each->connection);
      return false;
    case Greeting::kPart:
      each->begun = true;
      [[fallthrough]];
    case Greeting::kNone:
      if (!gone && steady_now() < each->until) return true;
      [[fallthrough]];
    case Greeting::kOther:
      dismiss(each->connection);
  }
  return false;
}

void Listener::give(int connection) {
  const std::string peer = peer_of(connection);
  if (const absl::Status room = connections_->add(connection, peer); !room.ok()) {
    log_event(LogLevel::kWarning, "connection_refused", {{"peer", peer}, {"message", std::string(room.message())}});
    close(connection);
    return;
  }
  const int on = 1;
  if (options_.address.kind == Address::Kind::kTcp) setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  give_(connection);
}

// Says what was expected to who does not speak it. (Of TLS, that would be no answer that anybody could read.)
void Listener::dismiss(int connection) const {
  if (options_.protocol == Protocol::kHttp2) {
    send(connection, kNotHttp2, sizeof kNotHttp2 - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  close(connection);
}

// Whether there may be another one.
bool Listener::accept_one(std::deque<Waiting>* waiting) {
  const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection >= 0) {
    if (waiting->size() >= kWaitingMax) {
      dismiss(waiting->front().connection);
      waiting->pop_front();
    }
    waiting->push_back({connection, steady_now() + kGreetingWait});
    return true;
  }
  if (errno == EMFILE || errno == ENFILE) {
    turn_away();
  } else if (errno == ENOBUFS || errno == ENOMEM) {
    absl::SleepFor(kPause);
  }
  return false;
}

// Without a descriptor, a connection that waits would keep poll() from waiting.
void Listener::turn_away() {
  if (reserve_ >= 0) close(reserve_);
  const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection >= 0) close(connection);
  reserve_ = open_reserve();
  if (connection < 0 || reserve_ < 0) absl::SleepFor(kPause);
}

}  // namespace plumbline
