#include "server/bound/pair/carried.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "server/bound/match/readings.h"
#include "server/bound/match/transplant.h"
#include "server/bound/pair/confirm.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr double kReplayNoise = 1e-9;  // Far above the errors of two replays.

using Pairs = std::vector<std::pair<const GraphTap*, const GraphTap*>>;

// The node whose elements this one hands on.
NodeId made_by(const Graph& graph, NodeId node) {
  while (reshapes(graph, graph.nodes[node])) node = graph.nodes[node].inputs[0];
  return node;
}

using Names = std::map<std::string, const GraphTap*>;

Names names_of(const std::vector<GraphTap>& taps) {
  Names names;
  for (const GraphTap& tap : taps) names[tap.name] = &tap;
  return names;
}

// Whether what is carried is the gradient that the step's own tap is of, and there is no other reading of that.
bool is_judged(const Graph& graph, const Names& taps, const GraphTap& carried) {
  const std::string_view leaf = carried.name, begin = "state:", end = ".grad";
  const std::string name(leaf.substr(begin.size(), leaf.size() - begin.size() - end.size()));
  const auto tap = taps.find("grad:" + name);
  if (tap == taps.end()) return false;
  for (const std::string& other : all_readings(tap->first))
    if (other != tap->first && taps.contains(other)) return false;
  const std::vector<GraphTap::Term>& terms = tap->second->terms;
  return terms.size() == 1 && terms[0].weight == 1 &&
         made_by(graph, terms[0].node) == made_by(graph, carried.terms[0].node);
}

// Those that both programs leave, but for what both judge as they leave it.
Pairs pair_carried(const Graph& target, const Graph& reference) {
  const Names left = names_of(reference.carried), ours = names_of(target.taps), theirs = names_of(reference.taps);
  Pairs pairs;
  for (const GraphTap& carried : target.carried) {
    const auto other = left.find(carried.name);
    if (other == left.end() || other->second->shape != carried.shape || count(carried.shape) == 0) continue;
    if (!is_judged(target, ours, carried) || !is_judged(reference, theirs, *other->second))
      pairs.emplace_back(&carried, other->second);
  }
  return pairs;
}

// The program with some of what it carries in place of its taps.
Graph with_taps(const Graph& graph, const Pairs& pairs, const GraphTap* Pairs::value_type::*side) {
  Graph carrying = graph;
  carrying.taps.clear();
  for (const auto& pair : pairs) carrying.taps.push_back(*(pair.*side));
  return carrying;
}

// A replay that has the values of all taps of `graph`, which is the base's but for these.
Replay replay_taps(const Graph& graph, const std::vector<LeafValue>& leaves, const Overrides& overrides,
                   const Replay& base) {
  std::vector<NodeId> nodes;
  for (const GraphTap& tap : graph.taps) std::ranges::copy(nodes_of(tap), std::back_inserter(nodes));
  if (std::ranges::all_of(nodes, [&](NodeId node) { return base.has(node); })) return base;
  return replay(graph, leaves, Precision::kExact, overrides, nullptr, {.only = &nodes});
}

const GraphLeaf* leaf_named(const Graph& graph, const std::string& name) {
  const auto found = std::ranges::find(graph.leaves, name, &GraphLeaf::name);
  return found == graph.leaves.end() ? nullptr : &*found;
}

}  // namespace

void compare_carried(const BoundsInput& input, const PairReplays& replays, Bounds* bounds) {
  if (replays.one_program) return;
  const Pairs carried = pair_carried(*input.target, *input.reference);
  if (carried.empty()) return;
  const Graph target = with_taps(*input.target, carried, &Pairs::value_type::first),
              reference = with_taps(*input.reference, carried, &Pairs::value_type::second);
  std::vector<PairedTap> pairs;
  for (std::size_t i = 0; i < carried.size(); ++i) pairs.push_back({i, i});
  BoundsInput sides = input;
  sides.target = &target;
  sides.reference = &reference;
  PairReplays both = replays;
  both.target = replay_taps(target, replays.target_leaves, replays.target_overrides, replays.target);
  both.reference = replay_taps(reference, replays.reference_leaves, replays.reference_overrides, replays.reference);
  const Gap gap(sides, both, std::move(pairs));
  const PairedTap* farthest = nullptr;
  double most = kReplayNoise;
  for (const PairedTap& pair : gap.pairs()) {
    if (gap.parting(pair) != Gap::Parting::kNone) continue;  // Not finite: that shows in the taps of the step.
    if (const double by = gap.relative(pair); by > most) {
      most = by;
      farthest = &pair;
    }
  }
  if (farthest == nullptr) return;
  const std::vector<Probe> probe{gap.probe(*farthest)};
  std::vector<Answer> answer = gap.ask(probe);
  confirm(sides, gap, probe, &answer);
  if (answer.front().failed() && answer.front().confirmed) bounds->apart = {target.taps[farthest->target].name, most};
}

void forget_cleared(const Graph& graph, std::vector<std::string>* leaves) {
  if (leaves->empty()) return;
  const std::vector<bool> used = used_by_taps(graph);
  std::erase_if(*leaves, [&](const std::string& name) {
    const GraphLeaf* const leaf = leaf_named(graph, name);
    if (leaf == nullptr || !carried_gradient(leaf->role, leaf->name)) return false;
    if (!used[leaf->node]) return true;
    const Array content = LeafValue(leaf->format, leaf->bytes, graph.nodes[leaf->node].shape);
    return std::all_of(content.data(), content.data() + content.count(), [](double x) { return x == 0; });
  });
}

bool still_apart(const GradientApart& apart, const Graph& target, const Graph& reference) {
  const GraphLeaf *ours = leaf_named(target, apart.leaf), *theirs = leaf_named(reference, apart.leaf);
  if (ours == nullptr || theirs == nullptr || !ours->bytes || !theirs->bytes) return false;
  if (!used_by_taps(target)[ours->node] || !used_by_taps(reference)[theirs->node]) return false;
  const Shape& shape = target.nodes[ours->node].shape;
  if (count(shape) != count(reference.nodes[theirs->node].shape)) return false;
  // In part, since what lies between the steps, or their own roundings, may have moved both.
  return plumbline::apart(LeafValue(ours->format, ours->bytes, shape), LeafValue(theirs->format, theirs->bytes, shape))
             .get()
             .relative() > std::fmin(1, apart.by) / 2;
}

}  // namespace plumbline
