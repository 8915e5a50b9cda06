// Replays of two programs on one copy of everything that they share (match/), made in turns: what is an item of one
// and computed by the other, and how decisions came out, show in the replays themselves.
#pragma once

#include <optional>

#include "server/bound/pair/gap.h"

namespace plumbline {

// `target_exact`: the target on its own leaves. `reference_exact`: the reference on those that `found` gives it, if
// that is made already. Adds to `found` what replays tell of items.
PairReplays replay_pair(const BoundsInput& input, const Replay& target_exact, std::optional<Replay> reference_exact,
                        Correspondence* found, std::uint64_t* shared_decisions);

}  // namespace plumbline
