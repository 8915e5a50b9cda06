// TLS of the TCP listeners.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace plumbline {

// Files in PEM. They are read again while the daemon runs (once a minute), so that certificates can be renewed.
struct TlsFiles {
  std::string certificate, key;  // The daemon's, the certificate first, then those that lead to an authority.
  std::string client_ca;         // Authorities whose clients alone are let in; empty: no client is asked for one.

  bool given() const { return !certificate.empty() || !key.empty() || !client_ca.empty(); }
};

// Whether they can be used: INVALID_ARGUMENT or FAILED_PRECONDITION name the flag and the file (cannot be read, of two
// different pairs, expired).
absl::Status check_tls(const TlsFiles& files);

std::shared_ptr<grpc::ServerCredentials> tls_credentials(const TlsFiles& files);

}  // namespace plumbline
