// Where the daemon listens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"

namespace plumbline {

struct Address {
  enum class Kind { kUnix, kTcp };
  Kind kind = Kind::kUnix;
  std::string text;  // As gRPC takes it: "unix:/run/plumbline.sock", "127.0.0.1:7077".
  std::string path;  // Of the unix socket.
};

// Reads "unix:PATH", "unix:///PATH" or "HOST:PORT" (HOST an address or "localhost"). TCP beyond loopback only if
// `insecure`: whoever reaches the port could read and write everything.
absl::StatusOr<Address> parse_address(const std::string& text, bool insecure);

// Before binding a unix socket: removes a socket file that nobody listens on any more. UNAVAILABLE: somebody does;
// FAILED_PRECONDITION: something else than a socket is there.
absl::Status clear_stale_socket(const std::string& path);

// On a unix socket local credentials: peers are processes of this machine, and file permissions say which.
std::shared_ptr<grpc::ServerCredentials> credentials_for(const Address& address);

// "4096", "64MiB", "2GiB", "1.5G" (K, M, G, T, with or without "iB", are powers of 1024) to bytes.
absl::StatusOr<std::uint64_t> parse_bytes(const std::string& text);

}  // namespace plumbline
