// What a run remembers of its steps, as the store keeps it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/pipeline/audit.h"

namespace plumbline {

std::string to_bytes(const StepMemory& memory);
absl::StatusOr<StepMemory> memory_from(const std::string& bytes);  // Empty: of no step. DATA_LOSS.

}  // namespace plumbline
