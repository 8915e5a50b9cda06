// Re-execution of a part of a graph in at least 100 bits (kernels/wide), by which an accusation is confirmed.
//
// The fp64 replay's own error, which the adjoint sweep otherwise estimates, is its difference from this replay of the
// same leaves and decisions. Where fp64 is too uncertain, near poles and for small differences of large numbers, two
// programs' wide replays still tell whether they agree.
//
// The common mistake: to read a difference of two programs' wide replays as a difference of mathematics at once. The
// wide replay takes constants and attributes exactly as fp64 holds them. Two programs whose constants round one number
// in two ways differ here by about 2^-53 times the adjoint, which is their freedom and not a bug. The caller charges
// such freedoms, as it does in fp64.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/wide/array.h"
#include "server/bound/replay/replay.h"

namespace plumbline {

// What the replay of a cone takes: of the wanted nodes and all that they depend on, up to the given values.
struct WideCost {
  std::int64_t nodes = 0;
  double work = 0;         // In multiply-adds of a product (kernels/wide/evaluate.h).
  std::int64_t bytes = 0;  // Held at once, at most; the wanted values and the evaluation's own copies included.
};

struct WideLimits {
  double work = 2e10;  // Some 20 s on one core.
  std::int64_t bytes = std::int64_t{4} << 30;
  // Called between nodes with the share of the work that is done; false: stop. Empty: never.
  std::function<bool(double share)> progress;
};

WideCost wide_cost(const Graph& graph, const Overrides& given, const std::vector<NodeId>& wanted);

// What wide replays of one graph computed, from the same leaves and given values, for the next of them to take.
class WideValues {
 public:
  const WideArray* find(NodeId id) const;
  void keep(NodeId id, const WideArray& value);  // Until all of it were more than 1 GiB.

 private:
  std::map<NodeId, WideArray> values_;
  std::int64_t bytes_ = 0;
};

// The result of wide_replay. Copies share the values.
class WideReplay {
 public:
  enum class Outcome { kDone, kTooLarge, kStopped };
  Outcome outcome() const { return outcome_; }
  explicit operator bool() const { return outcome_ == Outcome::kDone; }
  const WideCost& cost() const { return cost_; }

  // What the consumers of a wanted node saw: what was given for it, otherwise its result. Empty: not wanted, or not
  // done.
  WideArray value(NodeId id) const;
  // Its own result, whatever was given for it.
  WideArray computed(NodeId id) const;

 private:
  Outcome outcome_ = Outcome::kTooLarge;
  WideCost cost_;
  std::map<NodeId, WideArray> given_, computed_;  // They hold wanted nodes alone.
  friend WideReplay wide_replay(const Graph& graph, const std::vector<LeafValue>& leaves, const Overrides& given,
                                const std::vector<NodeId>& wanted, const WideLimits& limits, WideValues* kept);
};

// Replays the cone of `wanted` from `leaves` (parallel to graph.leaves). Nodes in `given` have these values for all
// who read them; theirs are not computed unless they are wanted. A value is freed when its last reader has been
// computed. Nothing is computed where the cost is beyond the limits. Results of integer operations wrap as their
// formats do. `kept`, if not null: what a replay before kept is not computed again, and what this one computes is kept.
// Throws std::runtime_error if a leaf that is needed is empty.
WideReplay wide_replay(const Graph& graph, const std::vector<LeafValue>& leaves, const Overrides& given,
                       const std::vector<NodeId>& wanted, const WideLimits& limits = {}, WideValues* kept = nullptr);

// The outcomes that a replay followed, of all that jumps in the cone of `wanted` (comparisons, roundings to integers,
// indices): given to a wide replay, it takes the same side everywhere, and its cone ends there.
Overrides shared_decisions(const Graph& graph, const Replay& replay, const std::vector<NodeId>& wanted);

// Sum of weight * node value, as consumers saw it, of the tap's shape. All of its terms were wanted.
WideArray replayed_value(const GraphTap& tap, const WideReplay& replay);

}  // namespace plumbline
