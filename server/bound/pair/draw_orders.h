// Draws of one distribution are exchangeable: which of several a program uses in which place is no mathematics. Where
// two programs differ, the other orders in which the reference may have made its draws are tried.
#pragma once

#include "server/bound/pair/gap.h"

namespace plumbline {

// Other contents of the reference's random leaves, a permutation among draws of one distribution and shape each; at
// most some two dozen.
std::vector<std::vector<LeafValue>> other_draw_orders(const Graph& reference, const std::vector<LeafValue>& leaves);

}  // namespace plumbline
