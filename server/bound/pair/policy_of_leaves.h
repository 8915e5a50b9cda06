// Formats in which two programs hold one thing: weights in 16 bits beside their wide master copies.
#pragma once

#include <vector>

#include "server/bound/pair/gap.h"

namespace plumbline {

// Whether the target's narrow leaves are roundings of wide ones of its own; then the format, and the replays in which
// both programs take the wide ones. kUnknown: none are.
struct WidePair {
  Format format = Format::kUnknown;
  PairReplays replays;
  // Every leaf in which the programs differ is such a rounding of what the reference holds, bit by bit: no earlier step
  // has moved one of them away from the other.
  bool tells_all_drift = false;
};
// `own_reference_leaves`: what the reference itself holds, without the target's values in their place.
WidePair with_master_copies(const BoundsInput& input, const Correspondence& match,
                            const std::vector<LeafValue>& own_reference_leaves);

}  // namespace plumbline
