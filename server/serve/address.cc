#include "server/serve/address.h"

#include <errno.h>
#include <grpcpp/security/server_credentials.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace plumbline {
namespace {

using absl::StrCat;

bool is_loopback(absl::string_view host) {
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

}  // namespace

absl::StatusOr<Address> parse_address(const std::string& text, bool insecure) {
  Address address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    absl::ConsumePrefix(&rest, "//");
    address.path = std::string(rest);
    if (address.path.empty() || address.path.size() >= sizeof(sockaddr_un::sun_path)) {
      return absl::InvalidArgumentError(StrCat("--listen: expected unix:PATH with a path of 1 to ",
                                               sizeof(sockaddr_un::sun_path) - 1, " bytes, found \"", text, "\""));
    }
    address.text = StrCat("unix:", address.path);
    return address;
  }
  address.kind = Address::Kind::kTcp;
  address.text = text;
  const auto colon = rest.rfind(':');
  int port = -1;
  if (colon == absl::string_view::npos || colon == 0 || !absl::SimpleAtoi(rest.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(StrCat("--listen: expected unix:PATH or HOST:PORT, found \"", text, "\""));
  }
  if (!is_loopback(rest.substr(0, colon)) && !insecure) {
    return absl::InvalidArgumentError(StrCat("--listen: \"", text, "\" is not on loopback and there is no encryption: ",
                                             "listen on 127.0.0.1 or a unix socket, or give --insecure"));
  }
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

std::shared_ptr<grpc::ServerCredentials> credentials_for(const Address& address) {
  if (address.kind == Address::Kind::kUnix) return grpc::experimental::LocalServerCredentials(UDS);
  return grpc::InsecureServerCredentials();
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
