// Where the daemon listens.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline {

struct Address {
  enum class Kind { kUnix, kTcp };
  Kind kind = Kind::kUnix;
  bool loopback = true;  // No other machine reaches it.
  std::string text;      // As gRPC takes it: "unix:/run/plumbline.sock", "127.0.0.1:7077".
  std::string path;      // The path of the unix socket.
};

// Reads "unix:PATH", "unix:///PATH" or "HOST:PORT"; `flag` is for messages. A host is what it resolves to: it is taken
// as a number, so that what is listened on is what was checked. INVALID_ARGUMENT: the form, or a host that does not
// resolve.
absl::StatusOr<Address> parse_address(const std::string& flag, const std::string& text);

// Before binding a unix socket: removes a socket file that nobody listens on any more. UNAVAILABLE: somebody does;
// FAILED_PRECONDITION: something else than a socket is there.
absl::Status clear_stale_socket(const std::string& path);

// "4096", "64MiB", "2GiB", "1.5G" (K, M, G, T, with or without "iB", are powers of 1024) to bytes.
absl::StatusOr<std::uint64_t> parse_bytes(const std::string& text);

}  // namespace plumbline
