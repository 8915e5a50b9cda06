// Who a client says that it is, and whom it believes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline {

struct Credentials {
  std::string token;  // Sent with each call; empty: none.
  // It concerns TCP: on a unix socket the kernel tells who is there.
  bool tls = false;
  // Contents of files in PEM. Without authorities those of the system are believed.
  std::string authorities, certificate, key;
};

// Where the credentials are; what is empty is taken from the environment: PLUMBLINE_TOKEN or PLUMBLINE_TOKEN_FILE,
// PLUMBLINE_TLS (1: with the system's authorities), PLUMBLINE_TLS_CA, PLUMBLINE_TLS_CERT, PLUMBLINE_TLS_KEY.
struct CredentialFiles {
  std::string token, authorities, certificate, key;
  bool tls = false;
};

// Errors name the flag: NOT_FOUND (a file that cannot be read), INVALID_ARGUMENT (a certificate without a key, a token
// that is none, or one that would be sent to `address` for all to see).
absl::StatusOr<Credentials> read_credentials(const CredentialFiles& files, const std::string& address);

}  // namespace plumbline
