#include "server/bound/replay/terms.h"

#include <algorithm>
#include <cmath>

#include "kernels/sums.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

// So many roundings of its terms, in the tap's format, may be all that a value is.
constexpr double kRoundings = 8;

double roundoff(Format format) { return is_float(format) ? unit_roundoff(format) : 0; }

// What a value with this norm is measured by.
double measure(double norm, double terms, Format format) {
  return std::isfinite(terms) && norm <= kRoundings * roundoff(format) * terms ? terms : norm;
}

Array magnitude(const Array& value) {
  const std::vector<Array> input = {value};
  return traits(Primitive::kAbs).evaluate({}, value.shape(), input);
}

bool scales(const Graph& graph, const Node& node, std::size_t factor) {
  return count(graph.nodes[node.inputs[factor]].shape) == 1;
}

// The inputs that hold the numbers of an operation that moves them.
std::vector<std::size_t> moved(const Node& node) {
  switch (node.primitive) {
    case Primitive::kSelect:
      return {1, 2};
    case Primitive::kGatherRows:
    case Primitive::kScatterAdd:
      return {0};
    case Primitive::kAssemble: {
      std::vector<std::size_t> all(node.inputs.size());
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
      return all;
    }
    default:
      return {};
  }
}

// The inputs of a product that make it zero where they are.
std::vector<std::size_t> factors(const Node& node) {
  switch (node.primitive) {
    case Primitive::kMul:
    case Primitive::kMatmul:
      return {0, 1};
    case Primitive::kDiv:
      return {0};
    default:
      return {};
  }
}

// Magnitudes of the terms of some nodes, worked out from their first ancestors on.
class Terms {
 public:
  using Visit = std::function<void(NodeId, const Array&)>;

  // Keeps what `of` holds, or, where there is `visit`, tells it.
  Terms(const Graph& graph, const Replay& replay, std::vector<NodeId> of, bool products, const Unmoved& unmoved = {},
        const Visit& visit = {})
      : graph_(graph), replay_(replay), products_(products), unmoved_(unmoved) {
    std::vector<bool> seen(graph.nodes.size(), false), told(graph.nodes.size(), false);
    std::vector<NodeId> order;
    for (NodeId id : of) {
      if (visit)
        told[id] = true;
      else
        ++readers_[id];
    }
    while (!of.empty()) {
      const NodeId id = of.back();
      of.pop_back();
      if (seen[id]) continue;
      seen[id] = true;
      order.push_back(id);
      for (NodeId input : read(id)) {
        ++readers_[input];
        of.push_back(input);
      }
    }
    std::sort(order.begin(), order.end());
    for (NodeId id : order) {
      terms_[id] = of_node(id);
      if (told[id]) visit(id, terms_.at(id));
      if (!readers_.contains(id)) terms_.erase(id);
      for (NodeId input : read(id))
        if (--readers_[input] == 0) terms_.erase(input);
    }
  }

  const Array& of(NodeId id) const { return terms_.at(id); }

 private:
  bool is_product(const Node& node) const {
    return products_ && summands(graph_, node).empty() && !factors(node).empty();
  }

  // The inputs whose terms are looked at.
  std::vector<NodeId> read(NodeId id) const {
    const Node& node = graph_.nodes[id];
    if (const auto all = unmoved_.find(id); all != unmoved_.end() && !all->second) return {};
    std::vector<std::size_t> which = summands(graph_, node);
    if (which.empty()) which = moved(node);
    if (which.empty() && products_) which = factors(node);
    std::vector<NodeId> inputs;
    for (std::size_t i : which) inputs.push_back(node.inputs[i]);
    return inputs;
  }

  bool is_zero(NodeId id) const {
    const double norm = norm2(replay_.value(id)), terms = norm2(terms_.at(id));
    return norm < terms && measure(norm, terms, graph_.nodes[id].result) == terms;
  }

  Array of_node(NodeId id) const {
    const Node& node = graph_.nodes[id];
    const std::vector<NodeId> from = read(id);
    const bool product = is_product(node);
    if (from.empty() || (product && std::ranges::none_of(from, [&](NodeId in) { return is_zero(in); })))
      return magnitude(replay_.value(id));
    const bool moves_numbers = !moved(node).empty();
    std::vector<Array> inputs;
    for (NodeId in : node.inputs) {
      const bool known = std::ranges::find(from, in) != from.end();
      if (known && (!product || is_zero(in)))
        inputs.push_back(terms_.at(in));
      else
        inputs.push_back(moves_numbers && !known ? replay_.value(in) : magnitude(replay_.value(in)));
    }
    const Primitive primitive = node.primitive == Primitive::kSub   ? Primitive::kAdd
                                : node.primitive == Primitive::kNeg ? Primitive::kAbs
                                                                    : node.primitive;
    Array terms = traits(primitive).evaluate(node.attributes, node.shape, inputs);
    const auto unmoved = unmoved_.find(id);
    if (unmoved == unmoved_.end()) return terms;
    const std::vector<Array> where{unmoved->second, terms, magnitude(replay_.value(id))};
    return traits(Primitive::kSelect).evaluate({}, node.shape, where);
  }

  const Graph& graph_;
  const Replay& replay_;
  const bool products_;
  const Unmoved unmoved_;
  std::map<NodeId, std::size_t> readers_;  // How many still read a node's terms.
  std::map<NodeId, Array> terms_;
};

double measured(const Terms& terms, const GraphTap& tap, double norm) {
  double sum = 0;
  for (const GraphTap::Term& term : tap.terms) sum += std::fabs(term.weight) * norm2(terms.of(term.node));
  return measure(norm, sum, tap.terms.front().format);
}

}  // namespace

std::vector<std::size_t> summands(const Graph& graph, const Node& node) {
  switch (node.primitive) {
    case Primitive::kAdd:
    case Primitive::kSub:
      return {0, 1};
    case Primitive::kNeg:
    case Primitive::kAbs:
    case Primitive::kSum:
    case Primitive::kCumsum:
    case Primitive::kWindow:
    case Primitive::kCast:
      return {0};
    case Primitive::kMul:
      if (scales(graph, node, 1)) return {0};
      if (scales(graph, node, 0)) return {1};
      return {};
    case Primitive::kDiv:
      if (scales(graph, node, 1)) return {0};
      return {};
    default:
      return {};
  }
}

Array terms_magnitude(const Graph& graph, const Replay& replay, NodeId node) {
  return Terms(graph, replay, {node}, false).of(node);
}

void visit_terms(const Graph& graph, const Replay& replay, const std::vector<NodeId>& nodes, const Unmoved& unmoved,
                 const std::function<void(NodeId, const Array&)>& visit) {
  Terms(graph, replay, nodes, false, unmoved, visit);
}

double tap_magnitude(const Graph& graph, const Replay& replay, const GraphTap& tap, double norm) {
  if (tap.scale > 0) return tap.scale;
  return measured(Terms(graph, replay, nodes_of(tap), false), tap, norm);
}

std::map<std::size_t, double> tap_magnitudes(const Graph& graph, const Replay& replay,
                                             const std::map<std::size_t, double>& norms) {
  std::vector<NodeId> nodes;
  for (const auto& [tap, norm] : norms)
    if (graph.taps[tap].scale <= 0) std::ranges::copy(nodes_of(graph.taps[tap]), std::back_inserter(nodes));
  const Terms terms(graph, replay, nodes, true);
  std::map<std::size_t, double> magnitudes;
  for (const auto& [tap, norm] : norms)
    magnitudes[tap] = graph.taps[tap].scale > 0 ? graph.taps[tap].scale : measured(terms, graph.taps[tap], norm);
  return magnitudes;
}

}  // namespace plumbline
