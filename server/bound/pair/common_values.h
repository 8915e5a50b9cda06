// What two programs have in common (replay/congruence.h) is replayed once, and is no source of error between them.
//
// An answer of mathematics says how far the programs may be apart at the values that were compared. Values that both
// replays hold are as good a point for that as exact ones, so that the errors of what comes after them are all that
// stands between the programs. Programs that do not agree to that are asked with the error of the whole replay: every
// answer is what it would be without.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "server/bound/pair/pairing.h"
#include "server/bound/replay/congruence.h"

namespace plumbline {

// Exact replays of both, each on its own leaves, the reference's on those that were matched. That of the program that
// has more nodes, which may take the other's batch in parts, shares what the other's has.
struct ExactReplays {
  Replay target, reference;  // The reference's is empty where there is nothing to compare, or one program twice.
  std::vector<bool> common;  // By node of the target: the reference has its value, too.
};
// Matches the programs. `replay_target`: told its congruence with the reference; null: none.
ExactReplays replay_both(const BoundsInput& input, const std::vector<LeafValue>& target_leaves,
                         const std::function<Replay(Congruence*)>& replay_target,
                         std::optional<MatchedReference>* matched, Bounds* bounds);

// The envelopes of the target's side, which `sweep` works out; those of mathematics without what both have in common,
// where the programs agree to that. `gap`: of two programs.
std::vector<Envelope> envelopes_of_what_differs(
    const Gap& gap, const ExactReplays& exact,
    const std::function<std::vector<Envelope>(const std::vector<Probe>&)>& sweep, std::vector<Probe>* probes);

}  // namespace plumbline
