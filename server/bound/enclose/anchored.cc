#include "server/bound/enclose/anchored.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "kernels/checks.h"
#include "server/bound/enclose/elementwise.h"
#include "server/bound/enclose/enclosed_tap.h"
#include "server/bound/enclose/observed.h"
#include "server/bound/replay/arithmetic.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

// Observed values that replace the replay's for their consumers: gradients that the framework held at the end of
// backward, and every captured result. What lies beyond is then judged from what was really there.
Overrides observed_anchors(const Graph& graph) {
  Overrides anchors;
  for (const auto& [node, observation] : graph.observed)
    anchors[node] = LeafValue(observation.format, observation.bytes, graph.nodes[node].shape);
  for (const GraphTap& tap : graph.taps) {
    if (tap.kind != TapKind::kGradient || tap.terms.size() != 1) continue;
    const GraphTap::Term& term = tap.terms[0];
    const Node& node = graph.nodes[term.node];
    if (node.primitive != Primitive::kLeaf) anchors[term.node] = LeafValue(term.format, term.observed, node.shape);
  }
  return anchors;
}

// Choices that are made among values which `anchors` change: the others come out as they did.
void anchor_choices(const Graph& graph, const Overrides& choices, Overrides* anchors) {
  std::vector<bool> changed(graph.nodes.size(), false);  // As consumers see it.
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const auto& inputs = graph.nodes[id].inputs;
    changed[id] = std::ranges::any_of(inputs, [&](NodeId input) { return bool{changed[input]}; });
    if (const auto choice = choices.find(id); choice != choices.end() && changed[id]) anchors->insert(*choice);
    changed[id] = changed[id] || anchors->count(id) != 0;
  }
}

// The anchors without those of `decided` that come out so in a replay which holds these alone: no other anchor lies
// before them.
Overrides without_followed(const Graph& graph, Overrides anchors, const Overrides& decided) {
  std::vector<bool> changed(graph.nodes.size(), false);  // As consumers see it.
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const auto& inputs = graph.nodes[id].inputs;
    changed[id] = std::ranges::any_of(inputs, [&](NodeId input) { return bool{changed[input]}; });
    if (!changed[id] && decided.count(id) != 0) anchors.erase(id);
    changed[id] = changed[id] || anchors.count(id) != 0;
  }
  return anchors;
}

// Whether few elements lie between a tap and the anchors or leaves that it was computed from. Where they are many more
// than its own, as behind a batch norm's statistics, its enclosure costs as much as a replay, and mostly says nothing.
class Nearness {
 public:
  Nearness(const Graph& graph, const Overrides& anchors)
      : graph_(graph), anchors_(anchors), seen_by_(graph.nodes.size(), 0) {}

  bool near(const GraphTap& tap) {
    const std::int64_t most = std::max(kFew, kPerElement * count(tap.shape));
    ++tap_;
    std::vector<NodeId> open = nodes_of(tap);
    std::int64_t between = 0;
    while (!open.empty() && between <= most) {
      const NodeId id = open.back();
      open.pop_back();
      const Node& node = graph_.nodes[id];
      if (seen_by_[id] == tap_ || node.primitive == Primitive::kLeaf || anchors_.count(id) != 0) continue;
      seen_by_[id] = tap_;
      between += count(node.shape);
      open.insert(open.end(), node.inputs.begin(), node.inputs.end());
    }
    return between <= most;
  }

 private:
  static constexpr std::int64_t kFew = 1 << 20, kPerElement = 64;
  const Graph& graph_;
  const Overrides& anchors_;
  std::vector<std::uint32_t> seen_by_;  // The last tap that passed each node.
  std::uint32_t tap_ = 0;
};

// The elements of a tap from `begin` on: its terms' exact values and the radii around them, against what was observed.
Comparison judge_elements(const GraphTap& tap, std::int64_t begin, const EnclosedTap& enclosed) {
  std::vector<ComparedTerm> exact, observed;
  for (std::size_t k = 0; k < tap.terms.size(); ++k) {
    const GraphTap::Term& term = tap.terms[k];
    ComparedTerm& centre = exact.emplace_back(enclosed.term(k, term.weight));
    if (is_float(term.format)) {
      centre.u = unit_roundoff(term.format);
      centre.eta = half_smallest_subnormal(term.format);
    }
    const std::uint8_t* const bytes = term.observed->data() + begin * traits(term.format).bytes;
    observed.push_back({{.bytes = bytes, .format = term.format}, term.weight});
  }
  // Our own replay's error is some 2^-53 of the same terms: 2^-20 of an fp32 radius, all of an fp64 one.
  const double own = tap_format(tap) == Format::kFloat64 ? 3 : 1 + 0x1p-20;
  Comparison found = compare(exact, observed, enclosed.values.front().count(), own);
  found.element += static_cast<std::uint64_t>(begin);
  return found;
}

Finding finding_of(const Graph& graph, std::size_t index, const Comparison& judged) {
  const GraphTap& tap = graph.taps[index];
  Finding finding;
  finding.name = tap.name;
  finding.taps = {index};
  finding.elements = static_cast<std::uint64_t>(count(tap.shape));
  finding.proven = true;
  finding.execution = answer_of(judged, tap);
  if (judged.worst < 0) return finding;
  finding.worst_element = judged.element;
  finding.low = judged.centre - judged.radius;
  finding.high = judged.centre + judged.radius;
  finding.observed = judged.value;
  return finding;
}

// Compares each tap whose nodes are the chain's ends; a comparison is empty where its enclosure exploded.
std::vector<std::optional<Comparison>> judge_chain(const Graph& graph, const TiledChain& chain,
                                                   const std::vector<std::size_t>& taps, Enclosures* enclosures) {
  EnclosedChain enclosed(chain, enclosures);
  std::vector<std::vector<Comparison>> parts(static_cast<std::size_t>(count_tiles(chain)));
  for_each_index(count_tiles(chain), [&](std::int64_t number) {
    const Tile found = enclosed.tile(number);
    ChainEnds ends(chain);
    for (std::size_t index : taps) {
      const GraphTap& tap = graph.taps[index];
      parts[static_cast<std::size_t>(number)].push_back(judge_elements(tap, found.begin, ends.tap(tap, found)));
    }
  });
  const std::vector<bool> exploded = enclosed.exploded();
  std::vector<std::optional<Comparison>> judged;
  ChainEnds ends(chain);
  for (std::size_t i = 0; i < taps.size(); ++i) {
    Comparison whole;
    for (const std::vector<Comparison>& part : parts) whole.join(part[i]);
    judged.push_back(ends.lost(graph.taps[taps[i]], exploded) ? std::nullopt : std::optional(whole));
  }
  return judged;
}

std::optional<Comparison> judge_whole(const GraphTap& tap, const Replay& anchored, Enclosures* enclosures) {
  const std::optional<EnclosedTap> enclosed = enclosed_tap(tap, anchored, enclosures);
  return enclosed ? std::optional(judge_elements(tap, 0, *enclosed)) : std::nullopt;
}

}  // namespace

Anchored anchored_replay(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& followed,
                         const DecisionCheck& decisions) {
  Overrides anchors = observed_anchors(graph);
  if (anchors.empty()) return {{}, followed};
  Overrides decided = decisions.overrides;
  for (const auto& [node, value] : anchors) decided.erase(node);
  anchors.insert(decided.begin(), decided.end());
  anchor_choices(graph, decisions.choices, &anchors);  // Observed values tie where exact ones do not.
  Replay between = replay(graph, leaves, Precision::kExact, without_followed(graph, anchors, decided), &followed,
                          {.read_once = true});
  return {std::move(anchors), std::move(between)};
}

// A decision is observed wherever it is made: between two of them lies the whole network.
bool has_captured_results(const Graph& graph) {
  std::set<NodeId> decisions_made;
  for (const GraphDecision& decision : graph.decisions) decisions_made.insert(decision.node);
  return std::ranges::any_of(graph.observed,
                             [&](const auto& observed) { return decisions_made.count(observed.first) == 0; });
}

std::vector<bool> judge_between_observed(const BoundsInput& input, const Anchored& between,
                                         const std::vector<std::size_t>& taps, Bounds* bounds) {
  const Graph& graph = *input.target;
  std::vector<bool> enclosed(graph.taps.size(), false);
  const Overrides& anchors = between.anchors;
  const Replay& anchored = between.replay;
  if (anchors.empty()) return enclosed;
  const bool captured = has_captured_results(graph);
  Nearness nearness(graph, anchors);
  std::vector<std::size_t> candidates;
  std::vector<std::vector<NodeId>> ends;
  for (std::size_t index : taps) {
    const GraphTap& tap = graph.taps[index];
    if (!captured && (!outlives_step(tap.kind) || !nearness.near(tap))) continue;
    candidates.push_back(index);
    ends.push_back(nodes_of(tap));
  }
  const std::vector<bool> whole = taken_whole(graph);
  const auto groups = group_ends(graph, ends, [&](NodeId id) { return anchors.count(id) != 0 || whole[id]; });
  const ObservedNodes observed(input, anchors);
  std::vector<NodeId> wanted = observed.wanted();
  for (const ChainGroup& group : groups)
    std::ranges::copy(group.chain ? enclosed_sources(graph, *group.chain, anchors) : ends[group.members.front()],
                      std::back_inserter(wanted));
  Enclosures enclosures(graph, anchored, wanted, input.profile, anchors);
  observed.check(anchored, &enclosures, bounds);

  std::map<std::size_t, Comparison> judged;  // The key is a tap.
  for (const ChainGroup& group : groups) {
    std::vector<std::size_t> members;
    for (std::size_t index : group.members) members.push_back(candidates[index]);
    std::vector<std::optional<Comparison>> found;
    if (group.chain)
      found = judge_chain(graph, *group.chain, members, &enclosures);
    else
      found = {judge_whole(graph.taps[members.front()], anchored, &enclosures)};
    for (std::size_t i = 0; i < found.size(); ++i)
      if (found[i] && found[i]->finite) judged.emplace(members[i], *found[i]);
  }
  // What an operation gave whose own audit says nothing is no ground to go on from: left to the envelopes as well.
  std::vector<bool> doubtful(graph.nodes.size(), false);
  for (NodeId node : bounds->unjudged) doubtful[node] = true;
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    for (NodeId input : graph.nodes[id].inputs) doubtful[id] = doubtful[id] || doubtful[input];
  for (const auto& [index, one] : judged) {
    if (std::ranges::any_of(nodes_of(graph.taps[index]), [&](NodeId node) { return bool{doubtful[node]}; })) continue;
    Finding finding = finding_of(graph, index, one);
    const Answer& found = finding.execution;
    // Where worst cases say nothing, chance may: left to the envelopes of first order.
    if (found.vacuous() && found.deviation <= found.envelope) continue;
    enclosed[index] = true;
    bounds->findings.push_back(std::move(finding));
  }
  return enclosed;
}

}  // namespace plumbline
