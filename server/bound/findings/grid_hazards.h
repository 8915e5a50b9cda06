// What a grid of integers (floor, round, ...) does to training although everything is right.
#pragma once

#include <vector>

#include "server/bound/findings/hazards.h"

namespace plumbline {

// kSaturation: values cut off by the clamp after a rounding. kStagnation: steps that rounding a weight to nearest on
// its grid undoes.
void find_grid_hazards(const Graph& graph, const Replay& values, std::vector<HazardFinding>* findings);

}  // namespace plumbline
