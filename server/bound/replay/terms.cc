#include "server/bound/replay/terms.h"

#include <algorithm>
#include <cmath>

#include "kernels/sums.h"

namespace plumbline {
namespace {

// So many roundings of its terms, in the tap's format, may be all that a value is.
constexpr double kRoundings = 8;

Array magnitude(const Array& value) {
  const std::vector<Array> input = {value};
  return traits(Primitive::kAbs).evaluate({}, value.shape(), input);
}

// The inputs whose terms make up the node's; empty: its value is a term itself.
std::vector<std::size_t> summands(const Graph& graph, const Node& node) {
  switch (node.primitive) {
    case Primitive::kAdd:
    case Primitive::kSub:
      return {0, 1};
    case Primitive::kNeg:
    case Primitive::kAbs:
    case Primitive::kSum:
    case Primitive::kWindow:
    case Primitive::kCast:
      return {0};
    case Primitive::kMul:
      if (count(graph.nodes[node.inputs[1]].shape) == 1) return {0};
      if (count(graph.nodes[node.inputs[0]].shape) == 1) return {1};
      return {};
    case Primitive::kDiv:
      if (count(graph.nodes[node.inputs[1]].shape) == 1) return {0};
      return {};
    default:
      return {};
  }
}

}  // namespace

Array terms_magnitude(const Graph& graph, const Replay& replay, NodeId node) {
  std::vector<NodeId> open{node}, order;
  std::vector<bool> seen(graph.nodes.size(), false);
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    order.push_back(id);
    for (std::size_t i : summands(graph, graph.nodes[id])) open.push_back(graph.nodes[id].inputs[i]);
  }
  std::sort(order.begin(), order.end());
  std::map<NodeId, Array> terms;
  for (NodeId id : order) {
    const Node& at = graph.nodes[id];
    const std::vector<std::size_t> from = summands(graph, at);
    if (from.empty()) {
      terms[id] = magnitude(replay.value(id));
      continue;
    }
    std::vector<Array> inputs;
    for (std::size_t i = 0; i < at.inputs.size(); ++i) {
      const auto known = terms.find(at.inputs[i]);
      inputs.push_back(known != terms.end() ? known->second : magnitude(replay.value(at.inputs[i])));
    }
    const Primitive primitive = at.primitive == Primitive::kSub   ? Primitive::kAdd
                                : at.primitive == Primitive::kNeg ? Primitive::kAbs
                                                                  : at.primitive;
    terms[id] = traits(primitive).evaluate(at.attributes, at.shape, inputs);
  }
  return terms.at(node);
}

double tap_magnitude(const Graph& graph, const Replay& replay, const GraphTap& tap, double norm) {
  if (tap.scale > 0) return tap.scale;
  double terms = 0;
  for (const GraphTap::Term& term : tap.terms)
    terms += std::fabs(term.weight) * norm2(terms_magnitude(graph, replay, term.node));
  const double u = is_float(tap.terms.front().format) ? unit_roundoff(tap.terms.front().format) : 0;
  return std::isfinite(terms) && norm <= kRoundings * u * terms ? terms : norm;
}

}  // namespace plumbline
