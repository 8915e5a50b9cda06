#include "server/bound/pair/reference_execution.h"

#include "server/bound/enclose/anchored.h"
#include "server/bound/replay/decided.h"
#include "server/bound/replay/taps.h"

namespace plumbline {

std::optional<ReferenceFault> find_reference_fault(const BoundsInput& input) {
  BoundsInput own = input;
  own.target = input.reference;
  own.reference = nullptr;
  const Graph& graph = *input.reference;
  const std::vector<LeafValue> leaves = leaf_values(graph);
  for (const LeafValue& leaf : leaves)
    if (!leaf) return std::nullopt;  // Not all of what it executed with was kept.
  const auto [followed, decisions] = follow_decisions(graph, leaves, *input.profile);
  std::vector<std::size_t> taps;
  for (std::size_t i = 0; i < graph.taps.size(); ++i)
    if (all_finite(observed_value(graph.taps[i])) && all_finite(replayed_value(graph.taps[i], followed)))
      taps.push_back(i);
  Bounds found;
  judge_between_observed(own, anchored_replay(graph, leaves, followed, decisions), taps, &found);
  if (!found.illegal_values.empty()) {
    const IllegalValue& first = found.illegal_values.front();
    return ReferenceFault{first.node, "", first.deviation, first.bound};
  }
  for (const Finding& finding : found.findings)
    if (finding.proven && finding.execution.asked && !(finding.execution.deviation <= finding.execution.envelope))
      return ReferenceFault{graph.taps[finding.taps.front()].terms.front().node, finding.name,
                            finding.execution.deviation, finding.execution.envelope};
  return std::nullopt;
}

}  // namespace plumbline
