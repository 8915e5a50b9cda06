#include "server/bound/interval.h"

#include <cmath>

#include "server/bound/arithmetic.h"

namespace plumbline {
namespace {

// |x| + r with the sign of x: the point of the enclosure where every magnitude-based error model is largest.
Array inflated(const Array& centre, const Bound& radius) {
  if (!radius) return centre;
  const Array x = centre.materialize(), r = radius.values.materialize();
  Array result = Array::uninitialized(x.shape());
  for (std::int64_t i = 0; i < x.count(); ++i)
    result.data()[i] = std::copysign(std::fabs(x.data()[i]) + r.data()[i], x.data()[i]);
  return result;
}

// Error models of these are not monotone in the magnitude of their inputs: rows are shift invariant and bounded.
bool row_normalised(Primitive primitive) {
  return primitive == Primitive::kSoftmax || primitive == Primitive::kLogSoftmax ||
         primitive == Primitive::kVarianceRsqrt;
}

// (a + b)(1 + 2^-40), above the rounding of one addition.
Bound sum(const Bound& a, const Bound& b) {
  if (!a) return b;
  if (!b) return a;
  const Array x = a.values.materialize(), y = b.values.materialize();
  Array result = Array::uninitialized(x.shape());
  const double up = 1 + std::ldexp(1.0, -40);
  for (std::int64_t i = 0; i < x.count(); ++i) result.data()[i] = (x.data()[i] + y.data()[i]) * up;
  return {result};
}

// How far the value that a consumer read may lie from what was stored: fused kernels may skip a rounding.
Bound unrounded(const Graph& graph, NodeId id, const Array& stored, const Profile& profile) {
  if (!profile.casts_elided) return {};
  const Node& node = graph.nodes[id];
  return with_storage_rounding({node.compute, node.result, &profile}, stored, {});
}

bool useless(const Bound& radius, const Array& value) {
  if (!radius) return false;
  const Array r = radius.values.materialize(), x = value.materialize();
  double largest_radius = 0, largest_value = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    if (std::isnan(r.data()[i])) return true;
    largest_radius = std::fmax(largest_radius, r.data()[i]);
    if (std::isfinite(x.data()[i])) largest_value = std::fmax(largest_value, std::fabs(x.data()[i]));
  }
  return !std::isfinite(largest_radius) || (largest_value > 0 && largest_radius > 1e6 * largest_value);
}

}  // namespace

Enclosures enclose(const Graph& graph, const Replay& replay, const std::vector<NodeId>& wanted, const Profile& profile,
                   const Overrides& anchors) {
  const std::size_t nodes = graph.nodes.size();
  Enclosures result{std::vector<Bound>(nodes), std::vector<bool>(nodes, false), std::vector<bool>(nodes, false)};
  std::vector<bool> needed(nodes, false);
  for (NodeId id : wanted) needed[id] = true;
  // An anchor's own radius is that of its segment, so its inputs are needed where it is wanted or computed; what lies
  // behind it is not needed by its consumers.
  std::vector<bool> wanted_itself = needed;
  for (std::size_t id = nodes; id-- > 0;) {
    if (!needed[id] || (anchors.count(static_cast<NodeId>(id)) != 0 && !wanted_itself[id])) continue;
    for (NodeId input : graph.nodes[id].inputs) needed[input] = true;
  }

  std::vector<Array> centres, inflated_inputs;
  std::vector<Bound> radii;
  for (NodeId id = 0; id < nodes; ++id) {
    if (!needed[id]) continue;
    const Node& node = graph.nodes[id];
    result.visited[id] = true;
    if (node.primitive == Primitive::kLeaf || (anchors.count(id) != 0 && !wanted_itself[id])) continue;
    centres.clear();
    inflated_inputs.clear();
    radii.clear();
    bool moved = false, lost = false;
    for (NodeId input : node.inputs) {
      const bool exact = anchors.count(input) != 0;
      lost = lost || (!exact && result.exploded[input]);
      centres.push_back(replay.values[input]);
      radii.push_back(exact ? unrounded(graph, input, replay.values[input], profile) : result.radii[input]);
      moved = moved || radii.back();
    }
    if (lost) {
      result.exploded[id] = true;
      continue;
    }
    const PrimitiveTraits& primitive = traits(node.primitive);
    const auto computed = replay.computed.find(id);
    const Array& value = computed == replay.computed.end() ? replay.values[id] : computed->second;
    Bound carried;
    if (moved) carried = primitive.radius(node.attributes, centres, radii, value);
    const Arithmetic arithmetic = arithmetic_of(graph, node, profile);
    Bound own;
    if (!moved || row_normalised(node.primitive)) {
      own = primitive.local_error(node.attributes, arithmetic, centres, inflated(value, carried));
    } else {
      for (std::size_t i = 0; i < centres.size(); ++i) inflated_inputs.push_back(inflated(centres[i], radii[i]));
      own = primitive.local_error(node.attributes, arithmetic, inflated_inputs, inflated(value, carried));
    }
    result.radii[id] = sum(carried, own);
    if (useless(result.radii[id], value)) {
      result.exploded[id] = true;
      result.radii[id] = Bound();
    }
  }
  return result;
}

}  // namespace plumbline
