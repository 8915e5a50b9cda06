// Bearer tokens, of which the daemon knows hashes alone.
//
// A file has a token a line: its name, the SHA-256 of the token in hexadecimal digits and, if it ends some day, that
// time as RFC 3339 has it ("ci 9f86d08...0f00a08 2027-01-01T00:00:00Z"). Empty lines and lines that begin with # count
// for nothing. A token is random and long, so that its hash needs neither salt nor repetition.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace plumbline {

class Tokens {
 public:
  static constexpr std::size_t kTokensMax = 4096;
  static constexpr std::size_t kFileBytesMax = 1u << 20;

  // INVALID_ARGUMENT names the line, and never quotes what may be a secret. PERMISSION_DENIED: others can write it.
  static absl::StatusOr<Tokens> read(const std::string& file);

  // The token's name. UNAUTHENTICATED: unknown, or expired. Takes as long whichever it is.
  absl::StatusOr<std::string> find(absl::string_view token, absl::Time now) const;

  bool holds(absl::string_view name) const;
  // Whether the token of this name may be used still.
  bool valid(absl::string_view name, absl::Time now) const;

 private:
  struct Entry {
    std::string name;
    std::array<unsigned char, 32> hash;
    absl::Time expires = absl::InfiniteFuture();
  };
  std::vector<Entry> entries_;
};

}  // namespace plumbline
