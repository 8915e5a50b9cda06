// Transplant: operations that lowering does not model need not stop the comparison of two programs. Where both make the
// same call, the cut that its inputs and outputs form is compared on the near side (are the inputs the same
// mathematics?) and shared on the far side (the reference continues from what the target's call gave). What the call
// itself computes is taken as observed: it stays opaque in the coverage.
#pragma once

#include <utility>
#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

struct Cuts {
  // A call of the target and its counterpart, in the target's order.
  std::vector<std::pair<const OpaqueCall*, const OpaqueCall*>> calls;
  bool complete = true;  // Every opaque call of either graph that a tap depends on has its counterpart.
};

// Tells of each node whether some tap depends on it.
std::vector<bool> used_by_taps(const Graph& graph);
// The same, through operations that lowering does not model too.
std::vector<bool> used_through_calls(const Graph& graph);

// Pairs the opaque calls of one operation in one module, of equal attributes and with inputs and outputs of equal
// shapes: by their order, unless what they gave tells that it is another in the programs. `values`: parallel to the
// graphs' leaves.
Cuts match_opaque_calls(const Graph& target, const std::vector<LeafValue>& target_values, const Graph& reference,
                        const std::vector<LeafValue>& reference_values);
// Whether those are all calls that count: results of the others reach no tap (reached.h).
bool complete_but_for_overwritten(const Cuts& cuts, const Graph& target, const Replay& target_replay,
                                  const Graph& reference, const Replay& reference_replay);

// Gives the reference's anchors the target's observed values. Values are parallel to the graphs' leaves.
void transplant(const Cuts& cuts, const Graph& target, const std::vector<LeafValue>& target_values,
                const Graph& reference, std::vector<LeafValue>* reference_values);

// The graph with the calls' inputs as its taps, named alike in both graphs of a pair.
Graph with_cut_taps(const Graph& graph, const std::vector<const OpaqueCall*>& calls);

}  // namespace plumbline
