#include "server/bound/pair/carried.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "server/bound/match/transplant.h"
#include "server/bound/pair/confirm.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr double kReplayNoise = 1e-9;  // Far above the errors of two replays.

// The program with what it carries in place of its taps.
Graph with_carried_taps(const Graph& graph) {
  Graph carrying = graph;
  carrying.taps = carrying.carried;
  return carrying;
}

// A replay that has the values of all taps of `graph`, which is the base's but for these.
Replay with_taps(const Graph& graph, const std::vector<LeafValue>& leaves, const Overrides& overrides,
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
  if (replays.one_program || input.target->carried.empty() || input.reference->carried.empty()) return;
  const Graph target = with_carried_taps(*input.target), reference = with_carried_taps(*input.reference);
  std::vector<PairedTap> pairs;
  for (std::size_t t = 0; t < target.taps.size(); ++t) {
    const auto other = std::ranges::find(reference.taps, target.taps[t].name, &GraphTap::name);
    if (other != reference.taps.end() && other->shape == target.taps[t].shape && count(other->shape) > 0)
      pairs.push_back({t, static_cast<std::size_t>(other - reference.taps.begin())});
  }
  if (pairs.empty()) return;
  BoundsInput sides = input;
  sides.target = &target;
  sides.reference = &reference;
  PairReplays both = replays;
  both.target = with_taps(target, replays.target_leaves, replays.target_overrides, replays.target);
  both.reference = with_taps(reference, replays.reference_leaves, replays.reference_overrides, replays.reference);
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
