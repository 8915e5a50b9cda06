#include "server/bound/envelope/sweep.h"

#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/patches.h"
#include "kernels/sums.h"

namespace plumbline {
namespace {

void add(Array& into, const Array& cotangent) {
  if (!into) {
    into = cotangent.materialize();
    return;
  }
  const Array source = cotangent.reshape(into.shape());
  Array sum = into.unique() && into.contiguous() ? into : Array::uninitialized(into.shape());
  current_operations().add(sum, into, source);
  into = sum;
}

Array scaled(const Array& weights, double factor) {
  Array source = weights.materialize();
  if (factor == 1) return source;
  Array result = Array::uninitialized(source.shape());
  current_operations().scale(result, factor, source);
  return result;
}

void make_writable(Array& into, const Shape& shape) {
  if (into && into.unique() && into.contiguous()) return;
  Array fresh = into ? Array::uninitialized(shape) : Array::zeros(shape);
  if (into) current_operations().copy(fresh, into.reshape(shape));
  into = std::move(fresh);
}

// Nodes to which cotangents of the probes come: what is probed, and what that is computed of.
std::vector<bool> reached_nodes(const Graph& graph, const Replay& replay, const std::vector<Probe>& probes) {
  std::vector<bool> reached(graph.nodes.size(), false);
  for (const Probe& probe : probes)
    for (const Probe::Part& part : probe.parts)
      for (const GraphTap::Term& term : graph.taps[part.tap].terms) reached[term.node] = true;
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    if (!reached[id]) continue;
    for (NodeId input : graph.nodes[id].inputs) reached[input] = true;
    if (const std::optional<NodeId> earlier = replay.passed(id)) reached[*earlier] = true;
  }
  return reached;
}

// Those of them that have an error or a freedom of their own or lie after one that has: cotangents are only carried
// towards those, not into leaves that are known, nor into the reshaped weights that come straight from one.
std::vector<bool> carrying_nodes(const Graph& graph, const Replay& replay, const std::vector<bool>& reached,
                                 const Slack& slack) {
  std::vector<bool> carries(graph.nodes.size(), false);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!reached[id]) continue;
    const Node& node = graph.nodes[id];
    const std::optional<NodeId> earlier = replay.passed(id);
    carries[id] = slack.at(id) || (earlier && carries[*earlier]);
    if (carries[id] || !is_float(node.result) || node.primitive == Primitive::kLeaf) continue;
    carries[id] =
        !traits(node.primitive).bitwise || node.primitive == Primitive::kCast || node.primitive == Primitive::kConstant;
    for (NodeId input : node.inputs) carries[id] = carries[id] || carries[input];
  }
  return carries;
}

Array multiply(const Array& a, const Array& b) {
  const std::vector<Array> factors = {a, b};
  return traits(Primitive::kMatmul).evaluate({}, {a.shape()[0], b.shape()[1]}, factors);
}

}  // namespace

Sweep::Sweep(const Graph& graph, const Replay& replay, const std::vector<Probe>& probes, const Slack& slack,
             const TappedProducts& by_factors)
    : graph_(graph),
      replay_(replay),
      by_factors_(by_factors),
      carries_(carrying_nodes(graph, replay, reached_nodes(graph, replay, probes), slack)) {
  adjoints_.assign(probes.size(), std::vector<Array>(graph.nodes.size()));
  seeds_.resize(probes.size());
  for (const Probe& probe : probes) given_.push_back(probe.given);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) slack_.push_back(slack.at(id));
  for (std::size_t p = 0; p < probes.size(); ++p)
    for (const Probe::Part& part : probes[p].parts)
      for (const GraphTap::Term& term : graph.taps[part.tap].terms) {
        Weights weights = part.weights;
        weights.rows = scaled(weights.rows, term.weight);
        seeds_[p].emplace(term.node, std::move(weights));
      }
}

Cotangent Sweep::take(std::size_t probe, NodeId id) {
  Array cotangent = std::move(adjoints_[probe][id]);
  adjoints_[probe][id] = Array();
  if (cotangent && graph_.nodes[id].primitive != Primitive::kWindow) cotangent = cotangent.materialize();
  const auto [first, last] = seeds_[probe].equal_range(id);
  if (!carries(probe, id)) return {};
  const Shape& shape = graph_.nodes[id].shape;
  if (!cotangent && first != last && std::next(first) == last && !first->second.mask)
    return Cotangent(Weights{first->second.rows, first->second.columns, shape});
  for (auto seed = first; seed != last; ++seed) add(cotangent, seed->second.array().reshape(shape));
  return Cotangent(cotangent ? cotangent.reshape(shape) : Array());
}

void Sweep::hand_on(std::size_t probe, NodeId to, const Array& rows, const Array& columns, double times) {
  if (carries(probe, to)) seeds_[probe].emplace(to, Weights{scaled(rows, times), columns, graph_.nodes[to].shape});
}

void Sweep::pull_back(std::size_t probe, NodeId id, Cotangent cotangent, bool single) {
  const Node& node = graph_.nodes[id];
  if (cotangent.weights() && !replay_.passed(id) && pull_back_weights(probe, id, *cotangent.weights())) return;
  if (const std::optional<NodeId> earlier = replay_.passed(id)) {
    if (Array* const to = adjoint(probe, *earlier))
      add(*to, cotangent.elements().reshape(graph_.nodes[*earlier].shape));
    return;
  }
  std::vector<Array*> into;
  bool any = false;
  for (NodeId input : node.inputs) {
    into.push_back(adjoint(probe, input));
    any = any || into.back() != nullptr;
  }
  if (!any) return;
  auto [inputs, value] = operands(id);
  const std::optional<PatchOperand> patches = replay_.patches(id);
  const bool apart = patches && (slack_[node.inputs[1]] || slack_[patches->window]);
  if (apart) inputs[1] = replay_.value(node.inputs[1]);
  const cpu::SinglePrecision cotangents(single);
  if (patches && !apart) {
    if (Array* const image = adjoint(probe, patches->image)) {
      into[1] = nullptr;  // The nodes between only move what comes to them.
      make_writable(*image, graph_.nodes[patches->image].shape);
      cpu::add_at_patches(inputs[0], cotangent.elements(), patches->view, *image);
    }
  }
  traits(node.primitive).pull_back(node.attributes, inputs, value, cotangent.elements(), into);
}

Operands Sweep::operands(NodeId id) const {
  const Node& node = graph_.nodes[id];
  if (node.primitive == Primitive::kWindow || node.primitive == Primitive::kAssemble) {
    const auto shaped = [&](NodeId of) { return Array::scalar(0).expand(graph_.nodes[of].shape); };
    Operands moved{{}, shaped(id)};
    for (NodeId input : node.inputs) moved.inputs.push_back(shaped(input));
    return moved;
  }
  const auto unread = by_factors_.find(id);
  Array value = unread == by_factors_.end() ? replay_.computed(id) : unread->second.observed(graph_, node);
  return {replay_.operands(id), std::move(value)};
}

Later<double> Sweep::read_by_factors(std::size_t probe, NodeId id, const Weights& weights) {
  const Node& node = graph_.nodes[id];
  const Array down = times_rows(weights, node.inputs[0]), across = times_columns(weights, node.inputs[1]);
  hand_on(probe, node.inputs[0], weights.rows, across);
  hand_on(probe, node.inputs[1], down, weights.columns);
  return dot(down.reshape({down.count()}), across.reshape({across.count()}));
}

bool Sweep::pull_back_weights(std::size_t probe, NodeId id, const Weights& weights) {
  const Node& node = graph_.nodes[id];
  const bool matrix = node.shape == Shape{weights.rows.count(), weights.columns.count()};
  if (reshapes(graph_, node)) {
    hand_on(probe, node.inputs[0], weights.rows, weights.columns);
  } else if (matrix && transposes(graph_, node)) {
    hand_on(probe, node.inputs[0], weights.columns, weights.rows);
  } else if (matrix && node.primitive == Primitive::kMatmul && node.inputs.size() == 2) {
    const NodeId a = node.inputs[0], b = node.inputs[1];
    if (carries(probe, a)) hand_on(probe, a, weights.rows, times_columns(weights, b));
    if (carries(probe, b)) hand_on(probe, b, times_rows(weights, a), weights.columns);
  } else {
    return false;
  }
  return true;
}

Array Sweep::times_columns(const Weights& weights, NodeId b) const {
  return multiply(replay_.value(b), weights.columns.reshape({weights.columns.count(), 1}));
}

Array Sweep::times_rows(const Weights& weights, NodeId a) const {
  return multiply(weights.rows.reshape({1, weights.rows.count()}), replay_.value(a));
}

std::vector<std::vector<Array>> cotangents_at(const std::vector<NodeId>& nodes, const Graph& graph,
                                              const Replay& replay, const std::vector<Probe>& probes) {
  Slack wanted;
  for (NodeId node : nodes) wanted.freedoms[node] = {};
  std::vector<std::vector<Array>> found(probes.size(), std::vector<Array>(nodes.size()));
  Sweep sweep(graph, replay, probes, wanted);
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    const auto at = std::ranges::find(nodes, id) - nodes.begin();
    for (std::size_t p = 0; p < probes.size(); ++p) {
      Cotangent cotangent = sweep.take(p, id);
      if (!cotangent) continue;
      if (at < std::ssize(nodes)) found[p][static_cast<std::size_t>(at)] = cotangent.elements();
      sweep.pull_back(p, id, std::move(cotangent));
    }
  }
  return found;
}

}  // namespace plumbline
