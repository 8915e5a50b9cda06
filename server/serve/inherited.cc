#include "server/serve/inherited.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

constexpr int kFirst = 3;  // SD_LISTEN_FDS_START
constexpr int kCountMax = 64;

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  int number = 0;
  return text != nullptr && absl::SimpleAtoi(text, &number) ? number : 0;
}

// Where a listening unix socket is bound; empty: it is something else.
std::string bound_path(int descriptor) {
  sockaddr_un name{};
  socklen_t size = sizeof name;
  int listens = 0;
  socklen_t listens_size = sizeof listens;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size) != 0 || name.sun_family != AF_UNIX ||
      getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size) != 0 || listens == 0) {
    return "";
  }
  const std::size_t start = offsetof(sockaddr_un, sun_path);
  const std::string path(name.sun_path, size > start ? size - start : 0);
  return path.substr(0, path.find('\0'));
}

}  // namespace

absl::StatusOr<std::vector<InheritedSocket>> inherited_sockets() {
  std::vector<InheritedSocket> sockets;
  if (number_of("LISTEN_PID") != getpid()) return sockets;
  const int count = number_of("LISTEN_FDS");
  if (count < 0 || count > kCountMax) {
    return absl::FailedPreconditionError(
        absl::StrCat("$LISTEN_FDS: expected at most ", kCountMax, " sockets, found ", count));
  }
  for (int descriptor = kFirst; descriptor < kFirst + count; ++descriptor) {
    std::string path = bound_path(descriptor);
    if (path.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "$LISTEN_FDS: expected listening unix sockets, found descriptor ", descriptor, ", which is something else"));
    }
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
    sockets.push_back({descriptor, std::move(path)});
  }
  return sockets;
}

}  // namespace plumbline
