// Data and buffers that both programs hold, each a rounding that nobody saw made.
//
// A deviation and its logarithm may lie in both, each rounded by itself; where one program takes the exponential of the
// logarithm and the other the deviation, they compute one mathematics of what was rounded, and the gap of their replays
// is what these roundings make it. Let g_T and g_R be the derivatives of a functional of either program's taps by an
// item's elements. Roundings d of the item then move the gap by <g_T - g_R, d> to first order: by nothing where both
// use it alike. Where what is left is little beside either, as of a factor of 1.001, the programs do not exchange
// items, and data that cancels would still hide it.
#pragma once

#include "server/bound/pair/gap.h"

namespace plumbline {

struct Moved {
  double by = 0;
  double most = 0;                // Of these, by one item,
  std::optional<NodeId> most_by;  // a leaf of the target.
};

// How far roundings of what both hold may move each functional's gap: the sum over items of |g_T - g_R| times how far
// an element may lie elsewhere (freedom_of, half_known), of those items for which that is at least the asked share of
// the sum of both. `target`, `reference`: the functionals of either program's taps.
std::vector<Moved> moved_by_shared_items(const SharedItems& asked, const BoundsInput& input, const PairReplays& replays,
                                         const std::vector<Probe>& target, const std::vector<Probe>& reference);

}  // namespace plumbline
