// Execution between observed values: where a short segment lies between what the framework held, forward enclosures
// decide element by element, PROVEN, whether a result is legal.
#pragma once

#include <vector>

#include "server/bound/input.h"
#include "server/bound/replay/decided.h"

namespace plumbline {

// The exact replay that goes on from what was observed wherever something was.
struct Anchored {
  Overrides anchors;  // Empty: nothing was observed.
  Replay replay;
};
// `followed`: the exact replay with the execution's decisions.
Anchored anchored_replay(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& followed,
                         const DecisionCheck& decisions);

// Whether results were captured, beside the sides of decisions: all between them is judged.
bool has_captured_results(const Graph& graph);

// Adds findings of the taps among `taps` that lie a short segment after observed values, and every observed value that
// is illegal. Returns by tap whether it was enclosed, and that answers its question.
std::vector<bool> judge_between_observed(const BoundsInput& input, const Anchored& anchored,
                                         const std::vector<std::size_t>& taps, Bounds* bounds);

}  // namespace plumbline
