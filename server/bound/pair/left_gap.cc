#include "server/bound/pair/left_gap.h"

#include <algorithm>
#include <iterator>

#include "server/bound/replay/taps.h"

namespace plumbline {

Graph with_taps(const Graph& graph, const LeftPairs& pairs, const GraphTap* LeftPairs::value_type::*side) {
  Graph leaving = graph;
  leaving.taps.clear();
  for (const auto& pair : pairs) leaving.taps.push_back(*(pair.*side));
  return leaving;
}

Replay replay_taps(const Graph& graph, const std::vector<LeafValue>& leaves, const Overrides& overrides,
                   const Replay& base) {
  std::vector<NodeId> nodes;
  for (const GraphTap& tap : graph.taps) std::ranges::copy(nodes_of(tap), std::back_inserter(nodes));
  if (std::ranges::all_of(nodes, [&](NodeId node) { return base.has(node); })) return base;
  return replay(graph, leaves, Precision::kExact, overrides, nullptr, {.only = &nodes});
}

LeftGap::LeftGap(const BoundsInput& input, const PairReplays& replays, LeftPairs pairs)
    : left_(std::move(pairs)),
      target_(with_taps(*input.target, left_, &LeftPairs::value_type::first)),
      reference_(with_taps(*input.reference, left_, &LeftPairs::value_type::second)),
      sides_(input),
      replays_(replays) {
  sides_.target = &target_;
  sides_.reference = &reference_;
  replays_.target = replay_taps(target_, replays.target_leaves, replays.target_overrides, replays.target);
  replays_.reference =
      replay_taps(reference_, replays.reference_leaves, replays.reference_overrides, replays.reference);
  std::vector<PairedTap> paired;
  for (std::size_t i = 0; i < left_.size(); ++i) paired.push_back({i, i});
  gap_.emplace(sides_, replays_, std::move(paired));
}

}  // namespace plumbline
