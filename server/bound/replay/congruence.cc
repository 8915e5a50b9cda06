#include "server/bound/replay/congruence.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>

#include "kernels/ball/key.h"
#include "kernels/device.h"
#include "kernels/operations.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr int kTriedMax = 16;  // Candidates of one hash: a graph that was made to have many takes no longer.

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

class Hash {
 public:
  template <class T>
  Hash& add(T x) {
    hash_ = key::mixed(hash_) ^ static_cast<std::uint64_t>(x);
    return *this;
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

std::uint64_t consumer_hash(Primitive primitive, NodeId operand) { return Hash().add(primitive).add(operand).value(); }

// Some elements of a value, and how many there are.
std::uint64_t content_hash(const Array& value) {
  const std::int64_t n = value.count();
  Hash hash;
  hash.add(n);
  for (const std::int64_t i : {std::int64_t{0}, n / 3, n / 2, n - 1}) hash.add(bits(value.data()[i]));
  return hash.value();
}

std::uint64_t leaf_hash(const LeafValue& leaf) {
  const HostScope host;  // A device would be waited for.
  const Array first = leaf.part(0, std::min<std::int64_t>(leaf.count(), 8)).materialize().on_host();
  Hash hash;
  hash.add(leaf.count());
  for (std::int64_t i = 0; i < first.count(); ++i) hash.add(bits(first.data()[i]));
  return hash.value();
}

// The dimensions of `shape` without the first.
std::span<const std::int64_t> rest(const Shape& shape) { return std::span(shape).subspan(1); }
std::int64_t elements(std::span<const std::int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

std::uint64_t rows_hash(const Shape& shape) {
  Hash hash;
  hash.add(shape.size());
  for (const std::int64_t size : rest(shape)) hash.add(size);
  return hash.value();
}

// So many elements repeat over and over; 0: none do.
std::int64_t period_of(const Node& node) {
  if (node.primitive == Primitive::kConstant) return 1;
  if (node.primitive != Primitive::kWindow) return 0;
  std::size_t d = 0;
  while (d < node.shape.size() && node.attributes.view.strides[d] == 0) ++d;
  return d == 0 ? 0 : elements(std::span(node.shape).subspan(d));
}

// The elements of a row, where the node puts rows of its operands into rows of its own: each of them within one; 0: it
// does not.
std::int64_t row_of_assembled(const Node& node) {
  std::int64_t row = 0;
  for (const View& view : node.attributes.views) {
    if (view.sizes.empty() || view.strides[0] == 0 || (row != 0 && row != view.strides[0])) return 0;
    row = view.strides[0];
    std::int64_t last = view.offset;
    for (std::size_t d = 1; d < view.sizes.size(); ++d) last += (view.sizes[d] - 1) * view.strides[d];
    if (last >= row || view.sizes[0] * row != node.attributes.size) return 0;
  }
  return row;
}

// How a primitive takes an operand whose node has fewer rows than another of its kind, all else alike.
enum class Taken : std::uint8_t { kByRows, kWhole };

// Nothing: rows of the result are not made of the same rows of operands.
std::optional<Taken> taken(const Graph& graph, const Node& node, std::size_t input) {
  using enum Primitive;
  const std::size_t rank = node.shape.size();
  const Shape& shape = graph.nodes[node.inputs[input]].shape;
  const auto broadcast = [&] {
    return shape.size() == rank && shape.front() == node.shape.front() ? Taken::kByRows : Taken::kWhole;
  };
  if (rank == 0) return Taken::kWhole;
  if (is_elementwise(node.primitive)) return broadcast();
  if (node.primitive >= kSum && node.primitive <= kCumsum) {  // Along dimensions, of which one may be that of the rows.
    if (!node.attributes.dims.empty() && node.attributes.dims.front() == 0) return std::nullopt;
    return Taken::kByRows;
  }
  switch (node.primitive) {
    case kSoftmax:
    case kLogSoftmax:
      return rank > 1 ? std::optional(Taken::kByRows) : std::nullopt;
    case kMatmul:
      if (rank == 2 && input == 1) return Taken::kWhole;
      return broadcast();
    case kGatherRows:
      return input == 0 ? Taken::kWhole : Taken::kByRows;
    default:
      return std::nullopt;
  }
}

}  // namespace

Congruence::Congruence(const Graph& known_graph, const std::vector<LeafValue>& known_leaves, const Replay& known,
                       const Graph& graph, const std::vector<LeafValue>& leaves)
    : known_graph_(known_graph),
      known_(known),
      known_side_{known_graph, known_leaves, Places(known_graph.nodes.size()), {}},
      side_{graph, leaves, Places(graph.nodes.size()), {}},
      periods_(known_graph.nodes.size(), 0) {
  for (Side* const side : {&known_side_, &side_})
    for (std::size_t i = 0; i < side->graph.leaves.size(); ++i) side->leaf_of[side->graph.leaves[i].node] = i;
  for (NodeId id = 0; id < known_graph.nodes.size(); ++id) {
    if (!known.has(id)) continue;
    const Node& node = known_graph.nodes[id];
    std::optional<Place>& place = known_side_.places[id];
    if ((place = find(known_side_, id))) continue;
    const bool told = current_device() == nullptr && node.primitive != Primitive::kWindow && known.at_hand(id) &&
                      !known.packed(id) && count(node.shape) > 0;
    if (const Array value = told ? known.value(id).materialize() : Array()) {
      place = find_content(known_side_, node, value);
      if (!place) contents_.emplace(content_hash(value), id);
    }
    if (!place) place = Place{id, 0};
    periods_[id] = period_of(node);
    const auto leaf = known_side_.leaf_of.find(id);
    if (leaf != known_side_.leaf_of.end()) {
      leaves_.emplace(leaf_hash(known_leaves[leaf->second]), id);
      if (known_graph.leaves[leaf->second].role == LeafRole::kData && !node.shape.empty())
        batches_.emplace(rows_hash(node.shape), id);
    } else {
      numbered_.emplace(hash_of(known_side_, node), id);
    }
    for (const NodeId input : node.inputs)
      consumers_.emplace(consumer_hash(node.primitive, known_side_.places[input]->node), id);
  }
}

std::uint64_t Congruence::hash_of(const Side& side, const Node& node) {
  Hash hash;
  hash.add(node.primitive);
  if (node.inputs.empty()) hash.add(bits(node.attributes.scalar)).add(bits(node.attributes.scalar2));
  for (const NodeId input : node.inputs) hash.add(side.places[input]->node);
  return hash.value();
}

std::optional<Congruence::Place> Congruence::find(const Side& side, NodeId id) const {
  const Node& node = side.graph.nodes[id];
  if (node.primitive == Primitive::kLeaf) return find_leaf(side, id);
  for (const NodeId input : node.inputs)
    if (!side.places[input]) return std::nullopt;
  if (node.primitive == Primitive::kCast && is_float(node.result) && is_float(side.graph.nodes[node.inputs[0]].result))
    return side.places[node.inputs[0]];
  if (node.primitive == Primitive::kWindow && is_row_major(node.attributes.view)) {
    const Place of = *side.places[node.inputs[0]];
    return Place{of.node, of.offset + node.attributes.view.offset};
  }
  if (node.primitive == Primitive::kAssemble)
    if (const std::optional<Place> place = find_assembled(side, node)) return place;
  int tried = 0;
  for (auto [m, last] = numbered_.equal_range(hash_of(side, node)); m != last && tried < kTriedMax; ++m, ++tried) {
    const std::optional<std::int64_t> offset = rows_of(side, node, m->second);
    if (offset && *offset + count(node.shape) <= size_of(m->second)) return place_in(m->second, *offset);
  }
  return std::nullopt;
}

std::optional<Congruence::Place> Congruence::find_leaf(const Side& side, NodeId id) const {
  const auto at = side.leaf_of.find(id);
  if (at == side.leaf_of.end() || !side.leaves[at->second]) return std::nullopt;
  const LeafValue& leaf = side.leaves[at->second];
  if (leaf.count() == 0) return std::nullopt;
  const auto known = [&](NodeId m) -> const LeafValue& {
    return known_side_.leaves[known_side_.leaf_of.find(m)->second];
  };
  int tried = 0;
  for (auto [m, last] = leaves_.equal_range(leaf_hash(leaf)); m != last && tried < kTriedMax; ++m, ++tried)
    if (bitwise_equal(known(m->second), leaf)) return place_in(m->second, 0);
  if (&side == &known_side_) return std::nullopt;
  // A part of the batch, which may come to the step as one.
  const Shape& shape = side.graph.nodes[id].shape;
  if (shape.empty() || side.graph.leaves[at->second].role != LeafRole::kData) return std::nullopt;
  tried = 0;
  for (auto [m, last] = batches_.equal_range(rows_hash(shape)); m != last; ++m) {
    const LeafValue& whole = known(m->second);
    if (!std::ranges::equal(rest(known_graph_.nodes[m->second].shape), rest(shape))) continue;
    for (std::int64_t begin = 0; begin + leaf.count() <= whole.count(); begin += leaf.count()) {
      if (tried++ == kTriedMax) return std::nullopt;
      if (bitwise_equal(whole.part(begin, leaf.count()), leaf.part(0, leaf.count()))) return place_in(m->second, begin);
    }
  }
  return std::nullopt;
}

std::optional<Congruence::Place> Congruence::find_assembled(const Side& side, const Node& node) const {
  const Attributes& how = node.attributes;
  if (how.has_base || how.views.empty()) return std::nullopt;
  const Place first = *side.places[node.inputs[0]];
  std::int64_t end = 0;
  for (std::size_t i = 0; i < how.views.size(); ++i) {
    const Place piece = *side.places[node.inputs[i]];
    if (!is_row_major(how.views[i]) || how.views[i].offset != end || piece.node != first.node ||
        piece.offset != first.offset + end)
      return std::nullopt;
    end += count(how.views[i].sizes);
  }
  return end == count(node.shape) ? std::optional(first) : std::nullopt;
}

std::optional<std::int64_t> Congruence::rows_of(const Side& side, const Node& node, NodeId numbered) const {
  const Node& whole = known_graph_.nodes[numbered];
  if (node.primitive != whole.primitive || node.inputs.size() != whole.inputs.size() ||
      is_float(node.result) != is_float(whole.result) || (!is_float(node.result) && node.result != whole.result))
    return std::nullopt;
  const auto place = [&](std::size_t i) { return *side.places[node.inputs[i]]; };
  const auto apart = [&](std::size_t i) { return place(i).offset - known_side_.places[whole.inputs[i]]->offset; };
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (place(i).node != known_side_.places[whole.inputs[i]]->node) return std::nullopt;
  if (node.primitive == Primitive::kWindow) return rows_of_window(node, apart(0), numbered);
  if (node.primitive == Primitive::kAssemble && node.shape != whole.shape)
    return rows_of_assembled(side, node, numbered);
  if (!(node.attributes == whole.attributes)) return std::nullopt;
  if (node.inputs.empty()) return 0;
  const bool fewer = node.shape != whole.shape;
  if (fewer && (node.shape.empty() || node.shape.size() != whole.shape.size() || node.shape[0] >= whole.shape[0] ||
                !std::ranges::equal(rest(node.shape), rest(whole.shape))))
    return std::nullopt;
  std::optional<std::int64_t> first;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Shape &shape = side.graph.nodes[node.inputs[i]].shape, &of = known_graph_.nodes[whole.inputs[i]].shape;
    const std::optional<Taken> how = fewer ? taken(known_graph_, whole, i) : Taken::kWhole;
    if (!how) return std::nullopt;
    const std::int64_t period = periods_[place(i).node];
    if (*how == Taken::kWhole) {
      if (shape != of || (apart(i) != 0 && (period == 0 || apart(i) % period != 0))) return std::nullopt;
      continue;
    }
    if (shape.size() != of.size() || shape[0] != node.shape[0] || of[0] != whole.shape[0] ||
        !std::ranges::equal(rest(shape), rest(of)))
      return std::nullopt;
    const std::int64_t row = elements(rest(of));
    const bool alike = period != 0 && row % period == 0;  // All of its rows are.
    if (row == 0 || apart(i) % (alike ? period : row) != 0) return std::nullopt;
    if (alike) continue;
    if (first && *first != apart(i) / row) return std::nullopt;
    first = apart(i) / row;
  }
  const std::int64_t begin = first.value_or(0);
  if (begin < 0 || (fewer && begin + node.shape[0] > whole.shape[0])) return std::nullopt;
  return begin * (fewer ? elements(rest(whole.shape)) : 0);
}

std::optional<std::int64_t> Congruence::rows_of_window(const Node& node, std::int64_t apart, NodeId numbered) const {
  const View &view = node.attributes.view, &of = known_graph_.nodes[numbered].attributes.view;
  if (view.sizes.empty() || view.sizes.size() != of.sizes.size() || view.sizes[0] > of.sizes[0]) return std::nullopt;
  for (std::size_t d = 0; d < view.sizes.size(); ++d) {
    if (d > 0 && view.sizes[d] != of.sizes[d]) return std::nullopt;
    if (view.sizes[d] > 1 && view.strides[d] != of.strides[d]) return std::nullopt;
  }
  const std::int64_t between = apart + view.offset - of.offset, stride = of.strides[0];
  if (stride == 0 ? between != 0 : between % stride != 0) return std::nullopt;
  const std::int64_t first = stride == 0 ? 0 : between / stride;
  if (first < 0 || first + view.sizes[0] > of.sizes[0]) return std::nullopt;
  return first * elements(rest(of.sizes));
}

std::optional<std::int64_t> Congruence::rows_of_assembled(const Side& side, const Node& node, NodeId numbered) const {
  const Node& whole = known_graph_.nodes[numbered];
  const Attributes &how = node.attributes, &of = whole.attributes;
  const std::int64_t row = row_of_assembled(node);
  if (row == 0 || row_of_assembled(whole) != row || how.has_base != of.has_base || how.size > of.size ||
      how.views.size() != of.views.size())
    return std::nullopt;
  std::optional<std::int64_t> first;
  const auto follows = [&](std::size_t input, std::int64_t length) {
    const std::int64_t apart =
        side.places[node.inputs[input]]->offset - known_side_.places[whole.inputs[input]]->offset;
    if (length == 0 || apart % length != 0 || (first && *first != apart / length)) return false;
    first = apart / length;
    return true;
  };
  if (how.has_base && !follows(0, row)) return std::nullopt;
  for (std::size_t i = 0; i < how.views.size(); ++i) {
    const View &view = how.views[i], &wider = of.views[i];
    if (view.offset != wider.offset || view.strides != wider.strides ||
        !std::ranges::equal(rest(view.sizes), rest(wider.sizes)) ||
        !follows(i + (how.has_base ? 1 : 0), elements(rest(view.sizes))))
      return std::nullopt;
  }
  if (!first || *first < 0 || *first > (of.size - how.size) / row) return std::nullopt;
  return *first * row;
}

bool Congruence::holds(Place place, const Array& value) const {
  if (!known_.at_hand(place.node) || known_.packed(place.node) || place.offset < 0 ||
      place.offset + value.count() > size_of(place.node))
    return false;
  const Array of = known_.value(place.node).materialize();
  return std::memcmp(of.data() + place.offset, value.data(),
                     static_cast<std::size_t>(value.count()) * sizeof(double)) == 0;
}

std::optional<Congruence::Place> Congruence::find_content(const Side& side, const Node& node,
                                                          const Array& computed) const {
  if (current_device() != nullptr || computed.count() == 0) return std::nullopt;
  const Array value = computed.materialize();
  int tried = 0;
  for (auto [m, last] = contents_.equal_range(content_hash(value)); m != last && tried < kTriedMax; ++m, ++tried)
    if (size_of(m->second) == value.count() && holds({m->second, 0}, value)) return Place{m->second, 0};
  // The rows that an operand has of its like.
  for (const NodeId input : node.inputs) {
    const std::optional<Place>& place = side.places[input];
    if (!place) continue;
    const std::int64_t part = count(side.graph.nodes[input].shape), whole = size_of(place->node);
    tried = 0;
    for (auto [m, last] = consumers_.equal_range(consumer_hash(node.primitive, place->node));
         m != last && tried < kTriedMax; ++m, ++tried) {
      const std::int64_t size = size_of(m->second);
      if (whole == 0 || size % whole != 0 || value.count() != part * (size / whole)) continue;
      const Place rows = place_in(m->second, place->offset * (size / whole));
      if (holds(rows, value)) return rows;
    }
  }
  return std::nullopt;
}

Array Congruence::held(NodeId id) {
  const Node& node = side_.graph.nodes[id];
  const std::optional<Place>& place = side_.places[id] = find(side_, id);
  if (!place || node.primitive == Primitive::kWindow || node.primitive == Primitive::kLeaf ||
      !known_.at_hand(place->node) || known_.packed(place->node))
    return {};
  return known_.value(place->node).materialize().window({node.shape, row_major_strides(node.shape), place->offset});
}

void Congruence::computed(NodeId id, const Array& value) {
  if (!side_.places[id] && side_.graph.nodes[id].primitive != Primitive::kWindow)
    side_.places[id] = find_content(side_, side_.graph.nodes[id], value);
}

std::vector<bool> Congruence::common() const {
  std::vector<bool> found;
  for (const std::optional<Place>& place : side_.places) found.push_back(place.has_value());
  return found;
}

std::vector<bool> Congruence::common_of_known() const {
  using Range = std::pair<std::int64_t, std::int64_t>;  // Begin and end.
  std::map<NodeId, std::vector<Range>> ranges;
  for (NodeId id = 0; id < side_.places.size(); ++id)
    if (const std::optional<Place>& place = side_.places[id])
      ranges[place->node].emplace_back(place->offset, place->offset + count(side_.graph.nodes[id].shape));
  std::vector<bool> found(known_side_.places.size(), false);
  for (auto& [numbered, of] : ranges) {
    std::ranges::sort(of);
    std::vector<Range> joined;
    for (const Range& range : of)
      if (joined.empty() || range.first > joined.back().second)
        joined.push_back(range);
      else
        joined.back().second = std::max(joined.back().second, range.second);
    of = std::move(joined);
  }
  for (NodeId id = 0; id < found.size(); ++id) {
    const std::optional<Place>& place = known_side_.places[id];
    if (!place) continue;
    const auto of = ranges.find(place->node);
    if (of == ranges.end()) continue;
    const std::int64_t end = place->offset + count(known_graph_.nodes[id].shape);
    found[id] = periods_[place->node] != 0 || std::ranges::any_of(of->second, [&](const Range& range) {
                  return range.first <= place->offset && end <= range.second;
                });
  }
  return found;
}

}  // namespace plumbline
