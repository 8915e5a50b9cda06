#include "server/bound/match/transplant.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>

#include "kernels/device.h"
#include "kernels/sums.h"
#include "server/bound/match/reached.h"

namespace plumbline {
namespace {

using Key = std::tuple<std::string, std::string>;  // Operation, module.

std::vector<bool> used_by_taps(const Graph& graph, const std::map<NodeId, const OpaqueCall*>& gave) {
  std::vector<bool> used(graph.nodes.size(), false);
  for (const GraphTap& tap : graph.taps)
    for (const GraphTap::Term& term : tap.terms) used[term.node] = true;
  for (std::size_t id = graph.nodes.size(); id-- > 0;) {
    if (!used[id]) continue;
    for (const NodeId input : graph.nodes[id].inputs) used[input] = true;
    if (const auto call = gave.find(static_cast<NodeId>(id)); call != gave.end())
      for (const NodeId input : call->second->inputs) used[input] = true;
  }
  return used;
}

// What no tap depends on is left out: it explains no difference.
std::map<Key, std::vector<const OpaqueCall*>> by_place(const Graph& graph) {
  std::map<Key, std::vector<const OpaqueCall*>> calls;
  const std::vector<bool> used = used_through_calls(graph);
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

bool alike(const Graph& a, const OpaqueCall& one, const Graph& b, const OpaqueCall& other) {
  return one.known && other.known && one.attributes == other.attributes &&
         same_shapes(a, one.inputs, b, other.inputs) && same_shapes(a, one.outputs, b, other.outputs);
}

// What calls gave.
class Outputs {
 public:
  Outputs(const Graph& graph, const std::vector<LeafValue>& values) : values_(values) {
    for (std::size_t i = 0; i < graph.leaves.size(); ++i) leaf_of_[graph.leaves[i].node] = i;
  }
  std::vector<const LeafValue*> of(const OpaqueCall& call) const {
    std::vector<const LeafValue*> found;
    for (const NodeId output : call.outputs) found.push_back(&values_[leaf_of_.at(output)]);
    return found;
  }

 private:
  const std::vector<LeafValue>& values_;
  std::map<NodeId, std::size_t> leaf_of_;
};

// How far two calls' results lie apart, relative to their size; the first `length` elements of each.
double distance(const std::vector<const LeafValue*>& a, const std::vector<const LeafValue*>& b, std::int64_t length) {
  double farthest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!*a[i] || !*b[i]) return HUGE_VAL;
    const std::int64_t n = std::min(length, a[i]->count());
    const double apart_by = apart(a[i]->part(0, n), b[i]->part(0, n)).get().relative();
    if (!(apart_by < HUGE_VAL)) return HUGE_VAL;  // NaN tells no nearness.
    farthest = std::fmax(farthest, apart_by);
  }
  return farthest;
}

// By index, the counterpart of each of so many alike calls: the one in its place, unless what they gave tells that
// programs make them in other orders. Chunks of a batch may be taken in any.
std::vector<std::size_t> counterparts_of(const std::vector<const OpaqueCall*>& mine, const Outputs& our_outputs,
                                         const std::vector<const OpaqueCall*>& others, const Outputs& their_outputs) {
  constexpr double kNear = 0x1p-4, kClearly = 4;
  constexpr std::size_t kAskedMax = 256;
  constexpr std::int64_t kElementsMax = std::int64_t{1} << 26, kGlance = 64;
  const std::size_t n = mine.size();
  std::vector<std::size_t> found(n);
  std::iota(found.begin(), found.end(), std::size_t{0});
  if (n == 1 || n > kAskedMax) return found;
  const HostScope host;  // A device would be waited for.
  const std::int64_t length = kElementsMax / static_cast<std::int64_t>(n * n);
  std::vector<std::vector<const LeafValue*>> gave, theirs_gave;
  for (std::size_t i = 0; i < n; ++i) {
    gave.push_back(our_outputs.of(*mine[i]));
    theirs_gave.push_back(their_outputs.of(*others[i]));
  }
  std::vector<double> in_place;
  for (std::size_t i = 0; i < n; ++i) in_place.push_back(distance(gave[i], theirs_gave[i], length));
  std::vector<std::optional<std::size_t>> moved(n);
  std::vector<bool> taken(n, false);
  for (std::size_t i = 0; i < n; ++i) {
    double nearest = kNear;
    for (std::size_t j = 0; j < n && in_place[i] > 0; ++j) {
      if (j == i || taken[j]) continue;
      if (!(distance(gave[i], theirs_gave[j], kGlance) < kNear)) continue;
      const double by = distance(gave[i], theirs_gave[j], length);
      if (!(by < nearest && kClearly * by < in_place[i] && kClearly * by < in_place[j])) continue;
      nearest = by;
      moved[i] = j;
    }
    if (moved[i]) taken[*moved[i]] = true;
  }
  // The others stay in their places or, where these are taken, in their order.
  for (std::size_t i = 0; i < n; ++i)
    if (!moved[i] && !taken[i]) taken[*(moved[i] = i)] = true;
  for (std::size_t i = 0, free = 0; i < n; ++i) {
    if (!moved[i]) {
      while (taken[free]) ++free;
      taken[*(moved[i] = free)] = true;
    }
    found[i] = *moved[i];
  }
  return found;
}

}  // namespace

std::vector<bool> used_by_taps(const Graph& graph) { return used_by_taps(graph, {}); }

// A call's outputs come after its inputs.
std::vector<bool> used_through_calls(const Graph& graph) {
  std::map<NodeId, const OpaqueCall*> gave;
  for (const OpaqueCall& call : graph.opaque)
    for (const NodeId output : call.outputs) gave[output] = &call;
  return used_by_taps(graph, gave);
}

Cuts match_opaque_calls(const Graph& target, const std::vector<LeafValue>& target_values, const Graph& reference,
                        const std::vector<LeafValue>& reference_values) {
  Cuts cuts;
  const auto ours = by_place(target), theirs = by_place(reference);
  const Outputs our_outputs(target, target_values), their_outputs(reference, reference_values);
  cuts.complete = ours.size() == theirs.size();
  for (const auto& [place, calls] : ours) {
    const auto found = theirs.find(place);
    if (found == theirs.end() || found->second.size() != calls.size()) {
      cuts.complete = false;
      continue;
    }
    std::vector<bool> taken(calls.size(), false);
    for (std::size_t first = 0; first < calls.size(); ++first) {
      if (taken[first]) continue;
      const OpaqueCall& like = *calls[first];
      std::vector<const OpaqueCall*> mine, others;
      for (std::size_t i = first; i < calls.size(); ++i)
        if (!taken[i] && alike(target, like, target, *calls[i])) {
          taken[i] = true;
          mine.push_back(calls[i]);
        }
      for (const OpaqueCall* call : found->second)
        if (alike(target, like, reference, *call)) others.push_back(call);
      if (mine.empty() || mine.size() != others.size()) {
        cuts.complete = false;
        continue;
      }
      const std::vector<std::size_t> counterparts = counterparts_of(mine, our_outputs, others, their_outputs);
      for (std::size_t i = 0; i < mine.size(); ++i) cuts.calls.emplace_back(mine[i], others[counterparts[i]]);
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
