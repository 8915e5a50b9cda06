#include "client/cpp/nats/address.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace plumbline {
namespace {

constexpr std::size_t kAddressesMax = 16;
constexpr int kUsualPort = 4222;

absl::StatusOr<NatsAddress> parse_one(const std::string& text) {
  const auto wrong = [](const std::string& found) {
    return absl::InvalidArgumentError(absl::StrCat("expected nats://HOST:PORT or tls://HOST:PORT, found ", found));
  };
  NatsAddress address;
  address.tls = absl::StartsWith(text, "tls://");
  if (!address.tls && !absl::StartsWith(text, "nats://")) return wrong("a text that begins otherwise");
  const std::string rest = text.substr(text.find("://") + 3);
  if (absl::StrContains(rest, "@")) {
    return absl::InvalidArgumentError(
        "expected an address without a user or password, which every user of this machine could read, found an \"@\"; "
        "put them into a file or into $PLUMBLINE_PUBLISH_CREDENTIALS");
  }
  std::string port;
  if (absl::StartsWith(rest, "[")) {
    const std::size_t end = rest.find(']');
    if (end == std::string::npos) return wrong("a \"[\" without its end");
    address.host = rest.substr(1, end - 1);
    port = rest.substr(end + 1);
  } else {
    const std::size_t colon = rest.find(':');
    address.host = rest.substr(0, colon);
    port = colon == std::string::npos ? "" : rest.substr(colon);
  }
  if (address.host.empty() || address.host.find_first_of("/?# ") != std::string::npos) return wrong("no host");
  int number = kUsualPort;
  if (!port.empty() && (port[0] != ':' || !absl::SimpleAtoi(port.substr(1), &number) || number < 1 || number > 65535)) {
    return wrong("no port from 1 to 65535");
  }
  const bool v6 = absl::StrContains(address.host, ":");
  address.url =
      absl::StrCat(address.tls ? "tls://" : "nats://", v6 ? "[" : "", address.host, v6 ? "]" : "", ":", number);
  address.loopback = address.host == "localhost" || address.host == "::1" || absl::StartsWith(address.host, "127.");
  return address;
}

}  // namespace

absl::StatusOr<std::vector<NatsAddress>> parse_nats_addresses(const std::string& text) {
  std::vector<NatsAddress> addresses;
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  if (parts.size() > kAddressesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", kAddressesMax, " addresses at most, found ", parts.size()));
  }
  for (const std::string& part : parts) {
    auto address = parse_one(part);
    if (!address.ok()) return address.status();
    if (!addresses.empty() && addresses[0].tls != address->tls) {
      return absl::InvalidArgumentError("expected addresses of one kind, found both nats:// and tls://");
    }
    addresses.push_back(*std::move(address));
  }
  return addresses;
}

}  // namespace plumbline
