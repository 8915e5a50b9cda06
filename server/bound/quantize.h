// Roundings to a grid of integers (floor, round, ...), in the two programs of a pair (NUMERICS section 7).
//
// Where both programs round in the same way at the same places, the integer codes are decisions that both share. Where
// they do not, because only one quantises or one rounds to nearest and the other stochastically, the grid is a format:
// the exact value is what was to be rounded, off by half a step, or by a step if the rounding is not to nearest.
#pragma once

#include <vector>

#include "server/bound/hazards.h"

namespace plumbline {

// Makes formats of both graphs' grids where they do not agree.
void settle_quantisation(Graph* target, Graph* reference);

// kSaturation: values cut off by the clamp after a rounding. kStagnation: steps that rounding a weight to nearest on
// its grid undoes.
void find_grid_hazards(const Graph& graph, const Replay& values, std::vector<HazardFinding>* findings);

}  // namespace plumbline
