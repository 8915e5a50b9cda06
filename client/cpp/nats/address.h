// Addresses of NATS servers.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plumbline {

struct NatsAddress {
  std::string url;   // nats://HOST:PORT or tls://HOST:PORT.
  std::string host;  // Without the brackets of IPv6.
  bool tls = false;
  bool loopback = false;  // Of this machine, by its text.
};

// As check_nats_address(): all of one kind, 16 at most.
absl::StatusOr<std::vector<NatsAddress>> parse_nats_addresses(const std::string& text);

}  // namespace plumbline
