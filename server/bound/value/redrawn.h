// Random draws of a bare reference value's program are not known: it may have drawn in another order, or from another
// seed. Which of the target's draws it shares is a finding.
//
// A draw is confirmed where a tap that agrees with R to rounding would have moved far beyond that, had the draw been
// another: its content put in another order is a draw of the same kind, since the elements of one are exchangeable.
// What hangs on draws that nothing confirms is not answered: a bare value does not tell other draws from another
// distribution.
#pragma once

#include "server/bound/input.h"
#include "server/bound/value/differences.h"

namespace plumbline {

// A tap's question that passed: how large a deviation it would have flagged, in the tap's units (an L2 norm).
struct PassedTap {
  std::size_t tap = 0;
  double resolution = 0;
};

// Tells of each leaf whether it is a draw that no tap in `passed` confirms. `exact` is a replay on `leaves`.
std::vector<bool> unconfirmed_draws(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& exact,
                                    const std::vector<PassedTap>& passed);

}  // namespace plumbline
