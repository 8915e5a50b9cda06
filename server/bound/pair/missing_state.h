// State of the reference that has a name, of which a trace at rest holds no content, and which the target keeps under
// no name: an optimizer of its own beside the framework's. The reference is given what the target found, as with state
// that has a name in both. What is whose is found by what it moves and by its size, and where several do, by which
// order leaves the programs closest; that it is one thing is told by what both leave of it, in this step and the one
// before (kept.h).
#pragma once

#include <optional>

#include "server/bound/input.h"
#include "server/bound/match/correspondence.h"

namespace plumbline {

// Gives `match`, of which something is missing, the target's for all of it, so that nothing is. Or `match` stays: other
// things are missing, or nothing of the target may stand for them. Returns the first of what does.
std::optional<MatchedItem> stand_for_missing(const BoundsInput& input, const Replay& target_exact,
                                             Correspondence* match);

}  // namespace plumbline
