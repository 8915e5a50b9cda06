// Q3 of what follows the gradients: do both programs update weights and state by the same mathematics?
//
// Their updates are functions f_T and f_R of the gradients and of leaves that both share. Whether the gradients are the
// same mathematics is asked of these (pairing.h); where they are, the updates are exactly if f_T = f_R. That is asked
// at gradients that really occurred, the target's observed ones: both functions are evaluated there, a tile at a time,
// in our own arithmetic and with its radii, element by element. A functional of the updates would have to be swept back
// through both optimizers for its error, in memory of all their elements, and would see less.
#pragma once

#include <map>

#include "server/bound/bounds.h"
#include "server/bound/match/paired_taps.h"

namespace plumbline {

// One side of a pair: the program, its replay in exact arithmetic, what its leaves held.
struct PairedSide {
  const Graph& graph;
  const Replay& exact;
  const std::vector<LeafValue>& leaves;
};

// |f_T - f_R| against both replays' radii, relative to f_R's norm, by index into `pairs`: of those in `updates`. Those
// are left out that are not functions of gradients and leaves alone, or whose radii say nothing, and all where some
// gradient of either program is not one node of both.
std::map<std::size_t, Answer> compare_updates(const PairedSide& target, const PairedSide& reference,
                                              const std::vector<PairedTap>& pairs,
                                              const std::vector<std::size_t>& updates);

}  // namespace plumbline
