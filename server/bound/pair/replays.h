// Replays of two programs on one copy of everything that they share (match/), made in turns: what is an item of one
// and computed by the other, and how decisions came out, show in the replays themselves.
#pragma once

#include "server/bound/pair/gap.h"

namespace plumbline {

// `target_exact`: the target on its own leaves. `reference_exact`: the reference on those that `found` gives it;
// empty: it is still to be made. Adds to `found` what replays tell of items.
PairReplays replay_pair(const BoundsInput& input, const Replay& target_exact, Replay reference_exact,
                        Correspondence* found, std::uint64_t* shared_decisions);

}  // namespace plumbline
