// Time that only runs forward: what waits is measured by it, since the wall clock may be set at any moment.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace plumbline {

// Comparable with nothing but itself.
inline absl::Time steady_now() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace plumbline
