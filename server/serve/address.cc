#include "server/serve/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace plumbline {
namespace {

using absl::StrCat;

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == IN_LOOPBACKNET);
}

// The address that a host resolves to, as a number ("127.0.0.1", "[::1]"); of several the first of IPv4, if there is
// one.
absl::StatusOr<std::string> resolve(const std::string& host, bool* loopback) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return absl::InvalidArgumentError(gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  const addrinfo* chosen = found;
  while (chosen != nullptr && chosen->ai_family != AF_INET) chosen = chosen->ai_next;
  if (chosen == nullptr) chosen = found;
  char number[NI_MAXHOST] = {};
  if (getnameinfo(chosen->ai_addr, chosen->ai_addrlen, number, sizeof number, nullptr, 0, NI_NUMERICHOST) != 0) {
    return absl::InvalidArgumentError("it has no address");
  }
  *loopback = is_loopback(*chosen->ai_addr);
  return chosen->ai_family == AF_INET6 ? StrCat("[", number, "]") : std::string(number);
}

}  // namespace

absl::StatusOr<Address> parse_address(const std::string& flag, const std::string& text) {
  Address address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    absl::ConsumePrefix(&rest, "//");
    address.path = std::string(rest);
    if (address.path.empty() || address.path.size() >= sizeof(sockaddr_un::sun_path)) {
      return absl::InvalidArgumentError(StrCat(flag, ": expected unix:PATH with a path of 1 to ",
                                               sizeof(sockaddr_un::sun_path) - 1, " bytes, found \"", text, "\""));
    }
    address.text = StrCat("unix:", address.path);
    return address;
  }
  address.kind = Address::Kind::kTcp;
  const auto colon = rest.rfind(':');
  int port = -1;
  if (colon == absl::string_view::npos || colon == 0 || !absl::SimpleAtoi(rest.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(StrCat(flag, ": expected unix:PATH or HOST:PORT, found \"", text, "\""));
  }
  absl::string_view host = rest.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const auto number = resolve(std::string(host), &address.loopback);
  if (!number.ok()) {
    return absl::InvalidArgumentError(
        StrCat(flag, ": expected a host that resolves, found \"", text, "\": ", number.status().message()));
  }
  address.text = StrCat(*number, ":", port);
  return address;
}

absl::Status clear_stale_socket(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(StrCat("--listen: ", path, " exists and is not a socket"));
  }
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return absl::UnavailableError(StrCat("--listen: no socket: ", strerror(errno)));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  const int connected = connect(probe, reinterpret_cast<const sockaddr*>(&name), sizeof name);
  const int error = errno;
  close(probe);
  if (connected == 0 || error != ECONNREFUSED) {
    return absl::UnavailableError(StrCat("--listen: ", path, " is in use by another process"));
  }
  if (unlink(path.c_str()) != 0) {
    return absl::PermissionDeniedError(StrCat("--listen: cannot replace ", path, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::uint64_t> parse_bytes(const std::string& text) {
  absl::string_view rest = text;
  if (!absl::ConsumeSuffix(&rest, "iB")) absl::ConsumeSuffix(&rest, "B");
  const absl::string_view units = "KMGT";
  double factor = 1;
  if (!rest.empty()) {
    const auto unit = units.find(rest.back());
    if (unit != absl::string_view::npos) {
      factor = std::ldexp(1.0, 10 * (static_cast<int>(unit) + 1));
      rest.remove_suffix(1);
    }
  }
  double number = 0;
  if (!absl::SimpleAtod(rest, &number) || !(number >= 0) || number * factor >= 0x1p63) {
    return absl::InvalidArgumentError(StrCat("expected bytes such as 512MiB or 8GiB, found \"", text, "\""));
  }
  return static_cast<std::uint64_t>(number * factor);
}

}  // namespace plumbline
