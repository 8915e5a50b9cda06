// What auditing a step will take, for admission: by the shapes in its trace, before any memory is taken. Cheap: nothing
// is lowered.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "server/ingest/trace.h"

namespace plumbline {

// Bytes, at most.
std::uint64_t estimated_audit_bytes(const Trace& target);

// Multiplications, or operations as cheap, of computing the step once. A product of matrices a b = c counts as
// sqrt(|a| |b| |c|), where |.| are elements, which is exact for one; anything else as its elements.
double estimated_audit_work(const Trace& target);

// RESOURCE_EXHAUSTED: the work is more than the limit (--step-work-limit).
absl::Status check_work_limit(double work, double limit);

}  // namespace plumbline
