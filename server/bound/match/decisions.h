// Decisions of two programs: comparisons, signs, roundings to integers, choices among elements.
//
// Where a decision's margin is within the replays' own error, both outcomes are legal, and two programs of one
// mathematics may take different ones: a tie in a quantisation by division or by reciprocal, floor(x + 1/2) against
// round(x), the sign of zero. What decides is what was compared: two decisions are one where each program's outcome is
// legal in the other at every element. Both replays then follow the target's, or the reference's where only that is
// certain: floor(3) is 3, and round(2.5) may be. An open element of a decision without
// a counterpart may have gone either way: the jump that it makes where a number is made of it is freedom.
#pragma once

#include "server/bound/envelope/adjoint.h"
#include "server/bound/match/computed.h"

namespace plumbline {

struct SharedDecisions {
  Overrides target, reference;  // Decisions that follow the other program's.
  Freedoms target_jumps, reference_jumps;
  // Nodes that jump because of other decisions than slopes at a kink, which are a convention and no outcome.
  std::vector<NodeId> target_turned, reference_turned;
  // A node is settled where it is a rounding that has its counterpart.
  std::vector<bool> target_settled, reference_settled;
  std::uint64_t shared = 0;  // Elements that came out differently in the two replays, and follow one of them.
  std::uint64_t open = 0;    // Elements without a counterpart that may go either way.
};

// `target` and `reference`: replays on one copy of what both share, each by its own decisions but for what an earlier
// call gave. `freedoms`: of the items that each program has alone. `error`: how far computed values may be off,
// relative to their size: of two replays in fp64, far above their error and far below a rounding of the formats that
// programs compute in.
inline constexpr double kReplayError = 0x1p-38;
SharedDecisions share_decisions(const MatchSide& target, const Freedoms& target_freedoms, const MatchSide& reference,
                                const Freedoms& reference_freedoms, double error = kReplayError);

}  // namespace plumbline
