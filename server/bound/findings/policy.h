// Precision policy: two programs of the same mathematics that differ by what they round. Which cast owns the
// difference?
//
// Both are re-executed in their declared formats on the same leaves, T' and R'. Then the places of the target that
// round into a narrow format are made exact, one at a time: the one that brings T' nearest to R' stays exact, and so
// on, until an eighth of norm(T' - R') is left. What had to be made exact owns the difference. Sums in another order do
// not matter here, since both replays round each sum once.
#pragma once

#include "server/bound/input.h"

namespace plumbline {

// Fills bounds->policy_casts where at most kCastsMax places explain the difference, and it is at least half of what was
// observed between T and R. Asks nothing of steps without narrow formats, and of steps too large to be re-executed a
// few dozen times.
void attribute_casts(const BoundsInput& input, const std::vector<LeafValue>& target_leaves, const Overrides& decisions,
                     Bounds* bounds);

}  // namespace plumbline
