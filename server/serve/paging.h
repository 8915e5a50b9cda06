// Pages of lists.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace plumbline {

inline constexpr int kPageDefault = 100;
inline constexpr int kPageMax = 1000;

// The size of the page that a client asks for: no more than the largest. INVALID_ARGUMENT: below 0.
inline absl::StatusOr<int> page_size(int asked) {
  if (asked < 0) return absl::InvalidArgumentError(absl::StrCat("page_size: expected 0 or more, found ", asked));
  if (asked == 0) return kPageDefault;
  return asked < kPageMax ? asked : kPageMax;
}

}  // namespace plumbline
