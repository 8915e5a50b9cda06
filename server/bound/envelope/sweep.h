// Cotangents of functionals of the taps on their way back through a replay, node by node.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "server/bound/envelope/charge.h"
#include "server/bound/envelope/probe.h"
#include "server/bound/envelope/slack.h"
#include "server/bound/replay/replay.h"
#include "server/bound/replay/tapped.h"

namespace plumbline {

// A cotangent at a node: element by element, or a tap's weights while nothing else reaches it.
class Cotangent {
 public:
  Cotangent() = default;
  explicit Cotangent(Array elements) : elements_(std::move(elements)) {}
  explicit Cotangent(Weights weights) : weights_(std::move(weights)) {}

  explicit operator bool() const { return elements_ || weights_; }  // Empty: exactly zero.
  const std::optional<Weights>& weights() const { return weights_; }
  const Array& elements() {
    if (!elements_ && weights_) elements_ = weights_->array();
    return elements_;
  }

 private:
  Array elements_;
  std::optional<Weights> weights_;
};

// Cotangents of all probes on their way back through one replay. They are only carried towards nodes that have an error
// or a freedom of their own, not into leaves that are known, nor into the reshaped weights that come straight from one.
class Sweep {
 public:
  Sweep(const Graph& graph, const Replay& replay, const std::vector<Probe>& probes, const Slack& slack = {},
        const TappedProducts& by_factors = {});

  const std::vector<bool>& carries() const { return carries_; }

  // Where the probe's cotangent at the node is gathered; null: it carries none.
  Array* adjoint(std::size_t probe, NodeId id) { return carries(probe, id) ? &adjoints_[probe][id] : nullptr; }

  // The probe's cotangent at the node, which is given up here; row-major, but for what a window takes over as it lies.
  Cotangent take(std::size_t probe, NodeId id);

  // Adds weights to what flows back to the node, `times` over.
  void hand_on(std::size_t probe, NodeId to, const Array& rows, const Array& columns, double times = 1);

  // `single`: cotangents may be multiplied in single precision. What is replayed for that may not.
  void pull_back(std::size_t probe, NodeId id, Cotangent cotangent, bool single = false);

  // Of nodes that only hand elements on, operands and value have their shapes alone: cotangents move by these.
  Operands operands(NodeId id) const;

  // y^T A B z of the product; its weights are handed on.
  Later<double> read_by_factors(std::size_t probe, NodeId id, const Weights& weights);

 private:
  bool carries(std::size_t probe, NodeId id) const {
    return carries_[id] && (given_[probe] == nullptr || !(*given_[probe])[id]);
  }
  // Weights y z^T stay such behind reshaping and transposition, and behind AB: y (Bz)^T for A, (A^T y) z^T for B.
  // False: not behind this node.
  bool pull_back_weights(std::size_t probe, NodeId id, const Weights& weights);
  Array times_columns(const Weights& weights, NodeId b) const;
  Array times_rows(const Weights& weights, NodeId a) const;

  const Graph& graph_;
  const Replay& replay_;
  const TappedProducts by_factors_;
  std::vector<bool> carries_, slack_;                            // slack_: something of the node's own is not known.
  std::vector<std::shared_ptr<const std::vector<bool>>> given_;  // By probe.
  std::vector<std::vector<Array>> adjoints_;                     // For each probe, what flows back from consumers,
  std::vector<std::multimap<NodeId, Weights>> seeds_;            // and the weights of its taps, on their way.
};

// Each probe's cotangents at these nodes, by probe; empty: none comes there.
std::vector<std::vector<Array>> cotangents_at(const std::vector<NodeId>& nodes, const Graph& graph,
                                              const Replay& replay, const std::vector<Probe>& probes);

}  // namespace plumbline
