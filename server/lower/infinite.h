// Which nodes may hold finite numbers that stand for infinity in sums (kernels/primitive/absorb.h).
#pragma once

#include <vector>

#include "server/lower/graph.h"

namespace plumbline {

// Whether the node may, when it is known of those before it (`infinite`, by node). Of leaves their contents tell.
bool may_stand_for_infinity(const Node& node, const std::vector<bool>& infinite);
bool stands_for_infinity(const GraphLeaf& leaf);

}  // namespace plumbline
