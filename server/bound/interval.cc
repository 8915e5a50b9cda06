#include "server/bound/interval.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cpu/loop.h"
#include "server/bound/arithmetic.h"

namespace plumbline {
namespace {

// |x| + r with the sign of x: the point of the enclosure where every magnitude-based error model is largest.
Array inflated(const Array& centre, const Bound& radius) {
  if (!radius) return centre;
  Array result = Array::uninitialized(centre.shape());
  cpu::map(
      result, [](double c, double d) { return std::copysign(std::fabs(c) + d, c); }, centre, radius.values);
  return result;
}

// Error models of these are not monotone in the magnitude of their inputs: rows are shift invariant and bounded.
bool row_normalised(Primitive primitive) {
  return primitive == Primitive::kSoftmax || primitive == Primitive::kLogSoftmax ||
         primitive == Primitive::kVarianceRsqrt;
}

// Error models of these look at the result alone.
bool of_result_alone(Primitive primitive) {
  return traits(primitive).bitwise || primitive == Primitive::kAdd || primitive == Primitive::kSub ||
         primitive == Primitive::kMul;
}

// (a + b)(1 + 2^-40), above the rounding of one addition; takes the place of `b` where that is not shared.
Bound sum(const Bound& a, const Bound& b) {
  if (!a) return b;
  if (!b) return a;
  const bool ours = b.values.unique() && b.values.contiguous();
  Array result = ours ? b.values : Array::uninitialized(b.values.shape());
  constexpr double kUp = 1 + 0x1p-40;
  cpu::map(
      result, [](double p, double q) { return (p + q) * kUp; }, a.values, b.values);
  return {result};
}

}  // namespace

// How far the value that a consumer read may lie from what was stored: fused kernels may skip a rounding.
Bound Enclosures::unrounded(NodeId id, const Array& stored) const {
  const Node& node = graph_.nodes[id];
  if (profile_ == nullptr || (!profile_->casts_elided && !graph_.origins[node.origin].fused)) return {};
  return with_storage_rounding({node.compute, node.result, profile_}, stored, {});
}

// Radius of a node's result, given its inputs' and its value: what they carry and its own error.
Bound Enclosures::enclose(NodeId id, const std::vector<Array>& centres, const std::vector<Bound>& radii,
                          const Array& value) const {
  const Node& node = graph_.nodes[id];
  const PrimitiveTraits& primitive = traits(node.primitive);
  const bool moved = std::ranges::any_of(radii, [](const Bound& radius) { return static_cast<bool>(radius); });
  Bound carried;
  if (moved) carried = primitive.radius(node.attributes, centres, radii, value);
  const Arithmetic arithmetic = profile_ != nullptr ? arithmetic_of(graph_, node, *profile_) : replay_arithmetic();
  std::vector<Array> farthest;
  if (moved && !row_normalised(node.primitive) && !of_result_alone(node.primitive))
    for (std::size_t i = 0; i < centres.size(); ++i) farthest.push_back(inflated(centres[i], radii[i]));
  return sum(carried, primitive.local_error(node.attributes, arithmetic, farthest.empty() ? centres : farthest,
                                            inflated(value, carried)));
}

Largest Largest::of(const Bound& radius, const Array& value) {
  if (!radius) return {};
  const Array radii = radius.values.materialize(), values = value.materialize();
  const double *r = radii.data(), *v = values.data();
  const auto magnitude = [](double x) { return std::bit_cast<std::int64_t>(std::fabs(x)); };
  Largest largest;
  for (std::int64_t i = 0; i < values.count(); ++i) {
    const Largest one = {magnitude(r[i]), magnitude(v[i])};
    largest.join(one.value < magnitude(HUGE_VAL) ? one : Largest());
  }
  return largest;
}

bool Largest::exploded() const {
  const double r = std::bit_cast<double>(radius), v = std::bit_cast<double>(value);
  return !(r < HUGE_VAL) || (v > 0 && r > 1e6 * v);
}

// An anchor's own radius is that of its segment, so its inputs are used where it is wanted itself; what lies behind it
// is not used by its consumers.
Enclosures::Enclosures(const Graph& graph, const Replay& replay, const std::vector<NodeId>& wanted,
                       const Profile* profile, const Overrides& anchors)
    : graph_(graph),
      replay_(replay),
      profile_(profile),
      anchors_(anchors),
      uses_(graph.nodes.size(), 0),
      known_(graph.nodes.size(), false),
      enclosures_(graph.nodes.size()) {
  for (NodeId id : wanted) ++uses_[id];
  for (std::size_t id = graph.nodes.size(); id-- > 0;) {
    if (uses_[id] == 0) continue;
    for (NodeId input : graph.nodes[id].inputs)
      if (!anchored(input)) ++uses_[input];
  }
}

Enclosure Enclosures::take(NodeId id) {
  std::vector<NodeId> open{id}, missing;
  while (!open.empty()) {
    const NodeId next = open.back();
    open.pop_back();
    if (known_[next]) continue;
    known_[next] = true;
    missing.push_back(next);
    for (NodeId input : graph_.nodes[next].inputs)
      if (!anchored(input)) open.push_back(input);
  }
  std::sort(missing.begin(), missing.end());
  for (NodeId node : missing) {
    enclosures_[node] = compute(node);
    for (NodeId input : graph_.nodes[node].inputs)
      if (!anchored(input)) use(input);
  }
  Enclosure result = enclosures_[id];
  use(id);
  return result;
}

void Enclosures::use(NodeId id) {
  if (--uses_[id] == 0) enclosures_[id].radius = Bound();
}

Enclosure Enclosures::compute(NodeId id) {
  const Node& node = graph_.nodes[id];
  if (node.primitive == Primitive::kLeaf) return {};
  std::vector<Array> centres;
  std::vector<Bound> radii;
  for (NodeId input : node.inputs) {
    if (!anchored(input) && enclosures_[input].exploded) return {{}, true};
    centres.push_back(replay_.value(input));
    radii.push_back(anchored(input) ? unrounded(input, centres.back()) : enclosures_[input].radius);
  }
  const Array value = replay_.computed(id);
  Enclosure result{enclose(id, centres, radii, value)};
  if (Largest::of(result.radius, value).exploded()) return {{}, true};
  return result;
}

std::vector<NodeId> enclosed_sources(const Graph& graph, const Stretch& stretch, const Overrides& anchors) {
  std::vector<NodeId> sources = stretch.sources;
  std::erase_if(sources,
                [&](NodeId id) { return anchors.count(id) != 0 || graph.nodes[id].primitive == Primitive::kLeaf; });
  return sources;
}

EnclosedStretch::EnclosedStretch(const Stretch& stretch, Enclosures* enclosures)
    : stretch_(stretch),
      enclosures_(*enclosures),
      tiles_(enclosures->graph_, enclosures->replay_, stretch),
      sources_(stretch.sources.size()),
      lost_(stretch.sources.size(), false),
      largest_(static_cast<std::size_t>(count_tiles(stretch))) {
  for (NodeId id : enclosed_sources(enclosures->graph_, stretch, enclosures->anchors_)) {
    const auto i = std::ranges::find(stretch.sources, id) - stretch.sources.begin();
    const Enclosure enclosure = enclosures->take(id);
    lost_[i] = enclosure.exploded;
    if (enclosure.radius) sources_[i] = {enclosure.radius.values.materialize()};
  }
}

EnclosedStretch::Enclosed EnclosedStretch::tile(std::int64_t index) {
  Enclosed found{tiles_.tile(index), std::vector<Bound>(sources_.size())};
  const Tile& tile = found.tile;
  std::vector<Bound>& radii = found.radii;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const NodeId id = stretch_.sources[i];
    if (sources_[i]) radii[i] = {tile.of(sources_[i].values)};
    if (enclosures_.anchored(id)) radii[i] = enclosures_.unrounded(id, tile.values[i]);
  }
  std::vector<Array> centres;
  std::vector<Bound> inputs;
  std::vector<Largest>& largest = largest_[static_cast<std::size_t>(index)];
  for (const Stretch::Step& step : stretch_.steps) {
    centres.clear();
    inputs.clear();
    for (std::size_t input : step.inputs) {
      centres.push_back(tile.values[input]);
      inputs.push_back(radii[input]);
    }
    const Array& value = tile.values[radii.size()];
    radii.push_back(enclosures_.enclose(step.node, centres, inputs, value));
    largest.push_back(Largest::of(radii.back(), value));
  }
  return found;
}

std::vector<bool> EnclosedStretch::exploded() const {
  std::vector<bool> exploded = lost_;
  for (std::size_t k = 0; k < stretch_.steps.size(); ++k) {
    Largest whole;
    for (const std::vector<Largest>& tile : largest_) whole.join(tile[k]);
    const auto before = [&](std::size_t input) { return exploded[input]; };
    exploded.push_back(whole.exploded() || std::ranges::any_of(stretch_.steps[k].inputs, before));
  }
  return exploded;
}

}  // namespace plumbline
