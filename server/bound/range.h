// The range lane: overflow, infinities and NaNs, which fp64 does not meet where the target did, and the rounded replay
// as an explanation of a deviation.
#pragma once

#include "server/bound/bounds.h"
#include "server/bound/replay.h"

namespace plumbline {

// What the rounded replay says of every tap that is not finite in T or in exact arithmetic.
std::vector<RangeFinding> examine_range(const Graph& graph, const std::vector<Array>& leaves, const Replay& exact);

// Fills bounds->explained and each finding's: whether our own rounded execution reproduces T.
void explain_by_rounded_replay(const BoundsInput& input, const Replay& exact, const Replay& rounded, Bounds* bounds);

}  // namespace plumbline
