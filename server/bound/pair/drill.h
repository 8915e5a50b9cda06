// Where the mathematics of two programs parts: the first tap, in the target's order, that fails by itself, and the
// operation before it (findings/localize.h).
#pragma once

#include "server/bound/pair/gap.h"

namespace plumbline {

// Tells of each of the target's taps whether any of `ours` reaches it, or any of `theirs` what it is paired with.
std::vector<bool> taps_reached_by(const std::vector<NodeId>& ours, const std::vector<NodeId>& theirs,
                                  const BoundsInput& input, const std::vector<PairedTap>& pairs);

// Adds findings of the taps that were drilled down to, bounds->suspicion and bounds->scale_error. Taps in `failing` (of
// the target) come before others.
void drill_down(const BoundsInput& input, const Gap& gap, const std::vector<std::size_t>& failing, Bounds* bounds);

}  // namespace plumbline
