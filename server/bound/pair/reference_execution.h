// The reference's own execution, where it lies much further from exact arithmetic than the target's: an operation that
// it executed illegally is its own fault, not the target's.
#pragma once

#include "server/bound/input.h"

namespace plumbline {

std::optional<ReferenceFault> find_reference_fault(const BoundsInput& input);

}  // namespace plumbline
