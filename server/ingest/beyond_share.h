// What is wrong with a step that takes more than its project, or its job, may have in flight.
#pragma once

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "server/ingest/memory_budget.h"
#include "server/ingest/violation.h"

namespace plumbline {

// `step_bytes`: of the step alone. Where these are within the share, the step may be taken later.
inline Violation beyond_share(const MemoryBudget::Share& share, std::uint64_t step_bytes) {
  const auto& [kind, name, quota] = share.of();
  const std::uint64_t limit = share.limit();
  Violation beyond = exhausted("", absl::StrCat(kind, " \"", name, "\": expected at most ", limit, " ", quota,
                                                " (quotas of --policy), found more with this step"));
  beyond.quota_of = absl::StrCat(kind, ":", name);
  beyond.quota = quota;
  beyond.of_the_moment = step_bytes <= limit;
  return beyond;
}

}  // namespace plumbline
