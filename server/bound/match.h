// Pairing of two graphs: one copy z of everything that the traces did not compute, the target's, for both replays.
#pragma once

#include <string>
#include <vector>

#include "server/bound/replay.h"

namespace plumbline {

struct LeafMatch {
  // For each leaf of the reference: its content for the matched replay (parameters, buffers, state and random outputs
  // by name from the target; data its own).
  std::vector<LeafValue> reference_values;
  std::vector<std::string> drifted;  // Names whose content differs between the runs.
  // Target's parameters, buffers and state whose content differs, neither being the other rounded to its format.
  std::vector<NodeId> foreign_state;
  std::vector<std::string> missing;  // Reference leaves that need the target's content, and it has none.
  // Reference's inputs of a partial step's audited part that the target's part does not have.
  std::vector<std::string> unpaired_inputs;
  std::vector<NodeId> foreign_data;  // Target data leaves (more than one element) of which the reference holds no rows.
  // Of a target of several ranks: what a rank holds otherwise than rank 0, and uses, where the reference has but one.
  std::vector<NodeId> apart;
  std::vector<NodeId> foreign_reference_data;  // The other way round, nodes of the reference.
};

LeafMatch match_leaves(const Graph& target, const std::vector<LeafValue>& target_values, const Graph& reference,
                       const std::vector<LeafValue>& reference_values);

// Format f with round_to(f, target leaf) == reference leaf elementwise (or the other way round) for some pair of
// foreign leaves; kUnknown if there is none. When found, `reference_leaf` and `target_leaf` index the graphs' leaves.
struct RoundedLeaf {
  Format format = Format::kUnknown;
  std::size_t target_leaf = 0, reference_leaf = 0;
};
std::vector<RoundedLeaf> rounded_leaves(const Graph& target, const std::vector<LeafValue>& target_values,
                                        const Graph& reference, const std::vector<LeafValue>& reference_values,
                                        const LeafMatch& match);

// Weights, buffers or state that are roundings of wider leaves of the same trace (fp16 weights with an fp32 master
// copy): one quantity in two formats. `target_leaf` indexes the narrow one, `reference_leaf` the wide one.
std::vector<RoundedLeaf> master_copies(const Graph& graph, const std::vector<LeafValue>& values);

}  // namespace plumbline
