// What a project may take (proto/plumbline/v1/policy.proto).
#pragma once

#include <cstdint>
#include <vector>

namespace plumbline {

struct Quota {
  static constexpr std::uint64_t kNone = UINT64_MAX;  // No limit.

  std::uint64_t streams = kNone;           // At a time.
  std::uint64_t bytes_in_flight = kNone;   // Of steps that came and are not answered.
  std::uint64_t steps_queued = kNone;      // Whole steps that are not answered.
  std::uint64_t verdicts = kNone;          // Stored.
  std::uint64_t kept_trace_bytes = kNone;  // Of Type II steps.

  // The names of those limits beyond which something is refused, where they are given.
  std::vector<const char*> limited() const {
    std::vector<const char*> names;
    if (streams != kNone) names.push_back("streams");
    if (bytes_in_flight != kNone) names.push_back("bytes_in_flight");
    if (steps_queued != kNone) names.push_back("steps_queued");
    if (verdicts != kNone) names.push_back("verdicts");
    return names;
  }
};

}  // namespace plumbline
