// The range lane: overflow, infinities and NaNs, which fp64 does not meet where the target did, and the rounded replay
// as an explanation of a deviation.
#pragma once

#include "server/bound/input.h"
#include "server/bound/replay/replay.h"

namespace plumbline {

// What the rounded replay says of every tap that is not finite in T or in exact arithmetic.
std::vector<RangeFinding> examine_range(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& exact,
                                        const Profile& profile);

// Whether some value on the way to the tap is computed in this format.
bool computes_in(const Graph& graph, const GraphTap& tap, Format format);

// Whether the decisions that ask for overflow came out as in a legal execution of our own, or a value on the way lies
// so close to its format's limit that rounding decides. Returns those that did not.
std::vector<NodeId> illegal_overflow_decisions(const Graph& graph, const std::vector<LeafValue>& leaves);

// Whether an observed overflow made the step skip its update.
bool overflow_was_found(const Graph& graph);

// The same where exact arithmetic finds none: its formats are the reason, not its mathematics.
bool left_its_range(const Graph& graph, const std::vector<LeafValue>& leaves);

// Fills bounds->explained and each finding's: whether our own rounded execution reproduces T.
void explain_by_rounded_replay(const BoundsInput& input, const Replay& exact, const Replay& rounded, Bounds* bounds);

}  // namespace plumbline
