// Why what a daemon's own history has does not arrive elsewhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace plumbline {

enum class ShipTrouble {
  kUnreachable,  // The server is not there, or does not answer in time.
  kRefused,      // It does not let us in, or what is there is nothing of ours, or that of a newer version.
  kIdentity,     // Another daemon ships under this data directory's identity.
  kOther,        // Anything else.
};
inline constexpr std::size_t kShipTroubles = 4;

// By ShipTrouble, for metrics and the log.
inline constexpr std::array<const char*, kShipTroubles> kShipTroubleNames = {"unreachable", "refused", "identity",
                                                                             "other"};

// What became of the attempts so far.
struct Delivery {
  bool up = false;                                    // The last attempt succeeded.
  std::string trouble;                                // Otherwise: why not. Empty: there was no attempt yet.
  std::array<std::uint64_t, kShipTroubles> errors{};  // Attempts that failed, by ShipTrouble.
};

inline ShipTrouble trouble_of(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return ShipTrouble::kUnreachable;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
      return ShipTrouble::kRefused;
    case absl::StatusCode::kAlreadyExists:
      return ShipTrouble::kIdentity;
    default:
      return ShipTrouble::kOther;
  }
}

}  // namespace plumbline
