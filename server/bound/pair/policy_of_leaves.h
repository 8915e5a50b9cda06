// Formats in which two programs hold one thing: weights in 16 bits beside their wide master copies.
#pragma once

#include "server/bound/pair/gap.h"

namespace plumbline {

// Whether the target's narrow leaves are roundings of wide ones of its own; then the format, and the replays in which
// both programs take the wide ones. kUnknown: none are.
struct WidePair {
  Format format = Format::kUnknown;
  PairReplays replays;
};
WidePair with_master_copies(const BoundsInput& input, const Correspondence& match);

}  // namespace plumbline
