// What two programs leave beside their taps, for the step that follows: gradients, and data of their own.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "server/bound/pair/gap.h"

namespace plumbline {

using LeftPairs = std::vector<std::pair<const GraphTap*, const GraphTap*>>;

// The program with one side of these in place of its taps.
Graph with_taps(const Graph& graph, const LeftPairs& pairs, const GraphTap* LeftPairs::value_type::*side);

// A replay that has the values of all taps of `graph`, which is the base's but for these.
Replay replay_taps(const Graph& graph, const std::vector<LeafValue>& leaves, const Overrides& overrides,
                   const Replay& base);

// Their gap.
class LeftGap {
 public:
  // What `pairs` point to, and what `input` does, must live as long.
  LeftGap(const BoundsInput& input, const PairReplays& replays, LeftPairs pairs);
  LeftGap(const LeftGap&) = delete;

  const Gap& gap() const { return *gap_; }
  const BoundsInput& sides() const { return sides_; }  // With what is left as taps.

 private:
  LeftPairs left_;
  Graph target_, reference_;
  BoundsInput sides_;
  PairReplays replays_;
  std::optional<Gap> gap_;
};

}  // namespace plumbline
