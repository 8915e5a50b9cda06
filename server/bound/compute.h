// The passes in their order, for one step: Graph (and the reference's Graph) -> Bounds.
#pragma once

#include "server/bound/input.h"

namespace plumbline {

Bounds compute_bounds(const BoundsInput& input);

}  // namespace plumbline
