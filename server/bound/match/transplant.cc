#include "server/bound/match/transplant.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "server/bound/match/reached.h"

namespace plumbline {
namespace {

using Key = std::tuple<std::string, std::string>;  // Operation, module.

// What no tap depends on is left out: it explains no difference.
std::map<Key, std::vector<const OpaqueCall*>> by_place(const Graph& graph) {
  std::map<Key, std::vector<const OpaqueCall*>> calls;
  const std::vector<bool> used = used_by_taps(graph);
  for (const OpaqueCall& call : graph.opaque)
    if (std::any_of(call.outputs.begin(), call.outputs.end(), [&](NodeId id) { return used[id]; }))
      calls[{graph.origins[call.origin].op, graph.origins[call.origin].module}].push_back(&call);
  return calls;
}

bool same_shapes(const Graph& a, const std::vector<NodeId>& in_a, const Graph& b, const std::vector<NodeId>& in_b) {
  if (in_a.size() != in_b.size()) return false;
  for (std::size_t i = 0; i < in_a.size(); ++i)
    if (a.nodes[in_a[i]].shape != b.nodes[in_b[i]].shape) return false;
  return true;
}

}  // namespace

std::vector<bool> used_by_taps(const Graph& graph) {
  std::vector<bool> used(graph.nodes.size(), false);
  for (const GraphTap& tap : graph.taps)
    for (const GraphTap::Term& term : tap.terms) used[term.node] = true;
  for (std::size_t id = graph.nodes.size(); id-- > 0;)
    if (used[id])
      for (const NodeId input : graph.nodes[id].inputs) used[input] = true;
  return used;
}

Cuts match_opaque_calls(const Graph& target, const Graph& reference) {
  Cuts cuts;
  const auto ours = by_place(target), theirs = by_place(reference);
  cuts.complete = ours.size() == theirs.size();
  for (const auto& [place, calls] : ours) {
    const auto found = theirs.find(place);
    if (found == theirs.end() || found->second.size() != calls.size()) {
      cuts.complete = false;
      continue;
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const OpaqueCall &t = *calls[i], &r = *found->second[i];
      const bool alike = t.known && r.known && t.attributes == r.attributes &&
                         same_shapes(target, t.inputs, reference, r.inputs) &&
                         same_shapes(target, t.outputs, reference, r.outputs);
      if (alike) cuts.calls.emplace_back(&t, &r);
      cuts.complete = cuts.complete && alike;
    }
  }
  return cuts;
}

bool complete_but_for_overwritten(const Cuts& cuts, const Graph& target, const Replay& target_replay,
                                  const Graph& reference, const Replay& reference_replay) {
  std::set<const OpaqueCall*> alone = calls_that_reach_taps(target, target_replay);
  alone.merge(calls_that_reach_taps(reference, reference_replay));
  for (const auto& [ours, theirs] : cuts.calls) {
    alone.erase(ours);
    alone.erase(theirs);
  }
  return alone.empty();
}

void transplant(const Cuts& cuts, const Graph& target, const std::vector<LeafValue>& target_values,
                const Graph& reference, std::vector<LeafValue>* reference_values) {
  std::map<NodeId, std::size_t> ours, theirs;
  for (std::size_t i = 0; i < target.leaves.size(); ++i) ours[target.leaves[i].node] = i;
  for (std::size_t i = 0; i < reference.leaves.size(); ++i) theirs[reference.leaves[i].node] = i;
  for (const auto& [t, r] : cuts.calls)
    for (std::size_t i = 0; i < t->outputs.size(); ++i)
      (*reference_values)[theirs.at(r->outputs[i])] = target_values[ours.at(t->outputs[i])];
}

Graph with_cut_taps(const Graph& graph, const std::vector<const OpaqueCall*>& calls) {
  Graph cut = graph;
  cut.taps.clear();
  for (std::size_t c = 0; c < calls.size(); ++c) {
    const Origin& origin = graph.origins[calls[c]->origin];
    for (std::size_t i = 0; i < calls[c]->inputs.size(); ++i) {
      const NodeId node = calls[c]->inputs[i];
      GraphTap tap;
      tap.name = "input " + std::to_string(i) + " of " + origin.op +
                 (origin.module.empty() ? "" : " (" + origin.module + ")") + ", opaque call " + std::to_string(c);
      tap.kind = TapKind::kValue;
      tap.shape = graph.nodes[node].shape;
      tap.terms.push_back({node, 1, graph.nodes[node].result, nullptr});
      cut.taps.push_back(std::move(tap));
    }
  }
  return cut;
}

}  // namespace plumbline
