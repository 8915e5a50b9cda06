#include "server/bound/replay.h"

#include <cmath>
#include <stdexcept>

#include "kernels/cpu/parallel.h"

namespace plumbline {
namespace {

Array decode_bytes(Format format, const Bytes& bytes, const Shape& shape) {
  Array values = Array::uninitialized(shape);
  decode(format, bytes->data(), values.count(), values.data());
  return values;
}

Array rounded(Format format, const Array& exact) {
  if (!is_float(format) || format == Format::kFloat64) return exact;
  const Array source = exact.materialize();
  Array result = Array::uninitialized(source.shape());
  const double* in = source.data();
  double* out = result.data();
  cpu::parallel_for(source.count(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    if (format == Format::kFloat32) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<float>(in[i]);
    } else {
      for (std::int64_t i = begin; i < end; ++i) out[i] = round_to(format, in[i]);
    }
  });
  return result;
}

}  // namespace

std::vector<Array> leaf_values(const Graph& graph) {
  std::vector<Array> values(graph.leaves.size());
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) {
    const GraphLeaf& leaf = graph.leaves[i];
    if (leaf.bytes) values[i] = decode_bytes(leaf.format, leaf.bytes, graph.nodes[leaf.node].shape);
  }
  return values;
}

std::vector<bool> ancestors(const Graph& graph, const std::vector<NodeId>& of) {
  std::vector<bool> found(graph.nodes.size(), false);
  for (NodeId id : of) found[id] = true;
  for (std::size_t i = graph.nodes.size(); i-- > 0;)
    if (found[i])
      for (NodeId input : graph.nodes[i].inputs) found[input] = true;
  return found;
}

std::vector<bool> needed_nodes(const Graph& graph) {
  std::vector<NodeId> needed;
  for (const GraphTap& tap : graph.taps)
    for (const GraphTap::Term& term : tap.terms) needed.push_back(term.node);
  for (const auto& [node, observation] : graph.observed) needed.push_back(node);
  for (const GraphDecision& decision : graph.decisions) needed.push_back(decision.node);
  for (const OpaqueCall& call : graph.opaque) needed.insert(needed.end(), call.inputs.begin(), call.inputs.end());
  return ancestors(graph, needed);
}

Replay replay(const Graph& graph, const std::vector<Array>& leaves, Precision precision, const Overrides& overrides,
              const Replay* base, const std::vector<bool>* exact) {
  const std::vector<bool> needed = needed_nodes(graph);
  std::vector<std::size_t> leaf_index(graph.nodes.size(), leaves.size());
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) leaf_index[graph.leaves[i].node] = i;

  Replay result;
  result.values.resize(graph.nodes.size());
  std::vector<bool> changed(graph.nodes.size(), base == nullptr);
  const auto is_exact = [&](NodeId id) { return precision == Precision::kExact || (exact != nullptr && (*exact)[id]); };
  std::vector<Array> inputs;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!needed[id]) continue;
    const Node& node = graph.nodes[id];
    if (exact != nullptr && (*exact)[id]) changed[id] = true;
    for (NodeId input : node.inputs) changed[id] = changed[id] || changed[input];
    const auto override_it = overrides.find(id);
    if (!changed[id] && override_it == overrides.end()) {
      result.values[id] = base->values[id];
      if (const auto known = base->computed.find(id); known != base->computed.end()) result.computed.insert(*known);
      continue;
    }
    Array value;
    if (!changed[id]) {
      const auto known = base->computed.find(id);
      value = known == base->computed.end() ? base->values[id] : known->second;
    } else if (node.primitive == Primitive::kLeaf) {
      const std::size_t leaf = leaf_index[id];
      if (leaf == leaves.size() || !leaves[leaf])
        throw std::runtime_error("leaf '" + (leaf == leaves.size() ? std::string("?") : graph.leaves[leaf].name) +
                                 "': expected its content, found none");
      value = leaves[leaf];
    } else {
      inputs.clear();
      for (NodeId input : node.inputs) inputs.push_back(result.values[input]);
      value = traits(node.primitive).evaluate(node.attributes, node.shape, inputs);
      // Bitwise primitives hand on values that their inputs' formats already hold.
      if (!is_exact(id) && !(traits(node.primitive).bitwise && node.primitive != Primitive::kCast))
        value = rounded(node.result, value);
    }
    if (override_it != overrides.end()) {
      result.computed[id] = value;
      value = override_it->second;
      changed[id] = true;
    }
    result.values[id] = std::move(value);
  }
  return result;
}

namespace {

// How far x lies from what rounds to the integer `code`.
double integer_margin(Primitive rounding, double x, double code) {
  double low = code - 0.5, high = code + 0.5;
  if (rounding == Primitive::kFloor || (rounding == Primitive::kTrunc && code > 0)) {
    low = code;
    high = code + 1;
  } else if (rounding == Primitive::kCeil || (rounding == Primitive::kTrunc && code < 0)) {
    low = code - 1;
    high = code;
  } else if (rounding == Primitive::kTrunc) {
    low = -1;
    high = 1;
  }
  return std::fmax(0, std::fmax(low - x, x - high));
}

}  // namespace

DecisionCheck check_decisions(const Graph& graph, const Replay& exact) {
  DecisionCheck check;
  // Values before a grid that only one program has lie as far from the exact ones as those of a narrow format.
  bool coarse = false;
  for (const Node& node : graph.nodes) coarse = coarse || node.primitive == Primitive::kQuantize;
  for (const GraphDecision& decision : graph.decisions) {
    const Node& node = graph.nodes[decision.node];
    const Array own = exact.values[decision.node].materialize();
    Array observed = decode_bytes(decision.format, decision.sides, own.shape());
    check.total += static_cast<std::uint64_t>(own.count());
    std::uint64_t differing = 0;
    for (std::int64_t i = 0; i < own.count(); ++i) {
      if (observed.data()[i] != observed.data()[i]) observed.data()[i] = own.data()[i];
      differing += own.data()[i] != observed.data()[i];
    }
    if (differing == 0) continue;
    check.differing += differing;

    const bool comparison = node.inputs.size() == 2;
    const bool rounding = node.primitive == Primitive::kRound || node.primitive == Primitive::kFloor ||
                          node.primitive == Primitive::kCeil || node.primitive == Primitive::kTrunc;
    if (comparison || rounding) {
      const Array a = exact.values[node.inputs[0]].expand(own.shape()).materialize();
      const Array b = comparison ? exact.values[node.inputs[1]].expand(own.shape()).materialize() : Array();
      double squares = 0, margin = 0;
      for (std::int64_t i = 0; i < own.count(); ++i) {
        const double difference = a.data()[i] - (comparison ? b.data()[i] : 0);
        squares += difference * difference;
        if (own.data()[i] == observed.data()[i]) continue;
        margin = std::fmax(margin, comparison ? std::fabs(difference)
                                              : integer_margin(node.primitive, difference, observed.data()[i]));
      }
      const Format format = graph.nodes[node.inputs[0]].result;
      const bool narrow = coarse || traits(format).precision <= traits(Format::kFloat16).precision;
      const double limit = std::ldexp(std::sqrt(squares / static_cast<double>(own.count())), narrow ? -4 : -12);
      if (!(margin <= limit)) check.illegal.push_back(decision.node);
    }
    check.overrides[decision.node] = observed;
  }
  return check;
}

}  // namespace plumbline
