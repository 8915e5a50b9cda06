// Factors of a matrix are what an equation determines up to signs, and up to the basis of what values that are one
// span: there rounding alone decides, in each program by itself. What is made of them is compared from one start, the
// target's.
#pragma once

#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

// Gives iterations of the reference the target's start, those of one operation and shape whose values, as observed,
// tell that it is one matrix. Values are parallel to the graphs' leaves.
void share_starts(const Graph& target, const std::vector<LeafValue>& target_values, const Graph& reference,
                  std::vector<LeafValue>* reference_values);

}  // namespace plumbline
