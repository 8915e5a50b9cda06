// Chains: elementwise nodes that are read by each other alone, but for the last. A cotangent goes through all of them
// in them in one pass, which computes again what lies between (kernels/pullback.h).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "server/bound/envelope/charge.h"

namespace plumbline {

// The nodes of one chain, in topological order.
using NodeChain = std::vector<NodeId>;

class NodeChains {
 public:
  // Chains are made of the nodes that carry cotangents (`carries` tells it of each node), but for those that are to be
  // passed one by one (`alone`).
  NodeChains(const Graph& graph, const Replay& replay, const std::vector<bool>& carries,
             const std::function<bool(NodeId)>& alone);

  const NodeChain* ending_at(NodeId id) const;  // Null: none does.
  bool within(NodeId id) const { return chain_of_[id] != kNone && chains_[chain_of_[id]].back() != id; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<NodeChain> chains_;
  std::vector<std::size_t> chain_of_;  // The chain of each node.
};

// What a functional sees of a chain. Lists have an entry for each step.
struct ChainFunctional {
  std::size_t probe = 0;
  bool target = false, own_by_chance = false;  // Functional
  std::vector<Array> seeds;                    // Cotangents from elsewhere, in the steps' shapes; empty: none.
  double squares = 0;                          // Functional

  // Found by pull_back.
  std::vector<bool> reached{};
  std::vector<Later<Charges>> charges{};  // Before shared events are looked at, where they are open.
  std::vector<bool> open{};               // Whether shared events are still to be looked for.
  // Where steps are open.
  std::vector<Array> cotangents{};
  std::vector<std::optional<EventWeights>> weights{};
};

class ChainPullback {
 public:
  // `target`, by step, and `own`: empty: not asked for.
  ChainPullback(const Graph& graph, const Replay& replay, const NodeChain& chain,
                const std::vector<std::optional<Arithmetic>>& target, const Arithmetic* own);

  bool of_target(std::size_t step) const { return !pullback_.steps[step].target.none(); }
  bool of_own(std::size_t step) const { return !pullback_.steps[step].own.none(); }
  // The errors of all elements of a step: the target's, or otherwise our own. They are empty where the step is not
  // open, and on a device.
  const Array& errors(std::size_t step) const { return errors_[step]; }

  // Where the cotangent of a source is gathered, in its shape; null: it carries none.
  using Adjoints = std::function<Array*(std::size_t probe, NodeId source)>;
  void pull_back(std::vector<ChainFunctional>* functionals, const Adjoints& adjoint);

 private:
  // What happens to the elements of tile t, which begin and are so many.
  using OfTile = std::function<void(std::int64_t t, std::int64_t begin, std::int64_t length)>;
  void for_each_tile(const OfTile& of_tile) const;
  // Whether the functional asks of the step by chance, and what draws of it are asked for.
  bool by_chance(const ChainFunctional& functional, std::size_t step) const;
  Functional asking(const ChainFunctional& functional, std::size_t step) const;
  bool draws(const ChainFunctional& functional, std::size_t step) const;
  PulledFunctional asked_of(ChainFunctional* functional, const Adjoints& adjoint);
  void show(ChainFunctional* functional, std::size_t step, PulledFunctional* asked);
  void weigh(ChainFunctional* functional, std::int64_t t, std::int64_t begin, std::int64_t length) const;
  void space_draws(const std::vector<ChainFunctional>& functionals, std::vector<PulledFunctional>* asked) const;
  void show_open(std::vector<ChainFunctional>* functionals, std::vector<PulledFunctional> asked);
  // `found`: where sources are of one element and the cotangents of these are not in `asked`.
  void hand_on(const PulledFunctional& asked, const PulledBack& found, std::size_t probe,
               const Adjoints& adjoint) const;
  // On a device, which is not waited for and where every functional is open.
  void pull_back_later(std::vector<ChainFunctional>* functionals, const std::vector<PulledFunctional>& asked,
                       const Adjoints& adjoint);

  const Graph& graph_;
  const NodeChain& chain_;
  const Shape shape_;
  std::vector<NodeId> sources_;
  Pullback pullback_;
  std::vector<Array> errors_;
};

}  // namespace plumbline
