#include "server/bound/enclose/observed.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/checks.h"
#include "kernels/cpu/gemm.h"
#include "kernels/device.h"
#include "kernels/projection.h"
#include "server/bound/enclose/legal_product.h"
#include "server/bound/replay/arithmetic.h"

namespace plumbline {
namespace {

// Below, a product's elements cost no more than what is asked first. In multiplications; columns of the result.
constexpr double kLargeProduct = 1 << 30;
constexpr std::int64_t kColumnsMin = 512;
constexpr std::int64_t kRowsSampled = 16;  // So many rows of each matrix of a batch are looked at.

// How many times a radius an element may deviate by, with our own replay's error on top.
double slack_of(const Node& node) { return node.compute == Format::kFloat64 ? 3 : 1 + 0x1p-20; }

// An observed node's elements against its enclosure, and against the range that the profile promises.
class Elements {
 public:
  Elements(const Graph& graph, NodeId id, const LeafValue& observed, const Profile& profile)
      : id_(id),
        result_(graph.nodes[id].result),
        slack_(slack_of(graph.nodes[id])),
        range_(promised_range(graph.nodes[id], profile)),
        observed_(observed) {}

  double count_illegal(const Array& seen, const Array& exact, const Bound& radius) const {
    return count_outside(seen, exact, radius, slack_, range_.low, range_.high);
  }

  // What is illegal of the elements from `begin` on, whose exact values and radius are told.
  IllegalValue check(std::int64_t begin, const Array& exact, const Bound& radius) const {
    IllegalValue illegal;
    illegal.node = id_;
    const Array seen = observed_.part(begin, exact.count()).reshape(exact.shape());
    if (count_illegal(seen, exact, radius) == 0) return illegal;
    const auto [low, high] = range_;
    const Array centres = exact.on_host(), values = seen.on_host();
    const Array radii = radius ? radius.values.on_host() : Array();
    for (std::int64_t i = 0; i < centres.count(); ++i) {
      const double x = values.data()[i], m = centres.data()[i];
      const double r = radii ? radii.data()[i] * slack_ : 0;
      const bool outside = x < low || x > high;
      if (x == m || (std::isnan(x) && std::isnan(m)) || (std::fabs(x - m) <= r && !outside) || !std::isfinite(m))
        continue;
      if (std::isinf(x) && round_to(result_, m + std::copysign(r, x)) == x) continue;  // Overflow.
      // Of what lies beyond the format, terms overflowed first: to infinities of any sign, and NaN where they met.
      if (!std::isfinite(x) && is_float(result_) && std::fabs(m) + r > largest_finite(result_)) continue;
      const auto element = static_cast<std::uint64_t>(begin + i);
      join({id_, std::fabs(x - m), r, element, 1, outside, low, high, x}, &illegal);
    }
    return illegal;
  }

  // The first of the largest deviations stays; none is larger than NaN.
  static void join(const IllegalValue& other, IllegalValue* illegal) {
    if (other.elements == 0) return;
    const double held = illegal->deviation;
    const bool worse = other.deviation > held || (std::isnan(other.deviation) && !std::isnan(held));
    const std::uint64_t before = illegal->elements;
    if (before == 0 || worse) *illegal = other;
    illegal->elements = before + other.elements;
  }

 private:
  const NodeId id_;
  const Format result_;
  const double slack_;
  const PromisedRange range_;
  const LeafValue observed_;
};

// Every so many rows of [..., rows, columns], from `first` on; of a single row, that.
Array rows_of(const Array& x, std::int64_t first, std::int64_t every) {
  View view{x.shape(), x.strides(), 0};
  const std::size_t at = view.sizes.size() - 2;
  if (view.sizes.size() < 2 || view.sizes[at] == 1) return x;
  view.sizes[at] = (view.sizes[at] - first + every - 1) / every;
  view.offset = first * view.strides[at];
  view.strides[at] *= every;
  return x.restride(view);
}

}  // namespace

ObservedNodes::ObservedNodes(const BoundsInput& input, const Overrides& anchors)
    : input_(input), graph_(*input.target), anchors_(anchors) {
  std::vector<std::vector<NodeId>> ends;
  for (const auto& [id, observation] : graph_.observed) {
    nodes_.push_back(id);
    ends.push_back({id});
  }
  const std::vector<bool> whole = taken_whole(graph_);
  groups_ = group_ends(graph_, ends, [&](NodeId id) { return anchors.count(id) != 0 || whole[id]; });
  for (const ChainGroup& group : groups_)
    std::ranges::copy(group.chain ? enclosed_sources(graph_, *group.chain, anchors) : ends[group.members.front()],
                      std::back_inserter(wanted_));
}

void ObservedNodes::check(const Replay& anchored, Enclosures* enclosures, Bounds* bounds) const {
  std::vector<IllegalValue>& found = bounds->illegal_values;
  for (const ChainGroup& group : groups_) {
    const NodeId first = nodes_[group.members.front()];
    if (group.chain)
      std::ranges::copy(check_chain(group, enclosures, bounds), std::back_inserter(found));
    else if (large_product(first, *enclosures) && !suspicious(first, anchored))
      ++bounds->products_by_rows;
    else
      found.push_back(check_whole(first, anchored, enclosures, bounds));
  }
  std::erase_if(found, [](const IllegalValue& illegal) { return illegal.elements == 0; });
  std::ranges::sort(found, {}, &IllegalValue::node);
}

bool ObservedNodes::large_product(NodeId id, const Enclosures& enclosures) const {
  const Node& node = graph_.nodes[id];
  if (input_.products == ObservedProducts::kEveryElement || node.primitive != Primitive::kMatmul) return false;
  const auto terms = static_cast<double>(graph_.nodes[node.inputs[0]].shape.back());
  return node.compute != Format::kFloat64 && node.shape.back() >= kColumnsMin &&
         static_cast<double>(count(node.shape)) * terms >= kLargeProduct &&
         std::ranges::all_of(node.inputs, [&](NodeId input) { return enclosures.exactly_seen(input); });
}

bool ObservedNodes::suspicious(NodeId id, const Replay& anchored) const {
  const Node& node = graph_.nodes[id];
  std::vector<Array> in;
  for (NodeId input : node.inputs) in.push_back(anchored.value(input));
  const Array observed = anchored.value(id);
  const Arithmetic arithmetic = arithmetic_of(graph_, node, *input_.profile);
  const std::uint64_t seed = input_.seed ^ id;
  if (outlying_rows(arithmetic, in, observed, seed) > 0) return true;

  const std::int64_t rows = node.shape[node.shape.size() - 2];
  const std::int64_t every = std::max<std::int64_t>(1, rows / kRowsSampled);
  const auto first = static_cast<std::int64_t>(seed % static_cast<std::uint64_t>(every));
  in[0] = rows_of(in[0], first, every);
  if (in.size() > 2) in[2] = rows_of(in[2], first, every);
  const Array seen = rows_of(observed, first, every);
  const Array exact = traits(node.primitive).evaluate(node.attributes, seen.shape(), in);
  const Bound error = traits(node.primitive).local_error(node.attributes, arithmetic, in, exact);
  return Elements(graph_, id, {}, *input_.profile).count_illegal(seen, exact, error) > 0;
}

// What a formula tells is judged there alone: what comes after it goes on from what was observed.
void ObservedNodes::leave_unjudged(NodeId id, Bounds* bounds) const {
  if (graph_.origins[graph_.nodes[id].origin].defined) bounds->unjudged.push_back(id);
}

bool ObservedNodes::is_legal_product(NodeId id, const Replay& anchored) const {
  const Node& node = graph_.nodes[id];
  if (node.primitive != Primitive::kMatmul || graph_.origins[node.origin].defined || current_device() != nullptr)
    return false;
  const std::vector<Array> in = anchored.operands(id);
  if (in[1].shape().size() > node.shape.size()) return false;  // Patches.
  const Arithmetic arithmetic = arithmetic_of(graph_, node, *input_.profile);
  const LeafValue& observed = anchors_.at(id);
  if (in_16_bits(node.inputs[0], anchored) && in_16_bits(node.inputs[1], anchored)) {
    Array sums;
    {
      const cpu::SinglePrecision enough(true);
      sums = traits(Primitive::kMatmul).evaluate(node.attributes, node.shape, in);
    }
    const double off = 0x1p-24 * static_cast<double>(in[0].shape().back());
    if (legal_product(node, arithmetic, in, sums, off, observed, slack_of(node))) return true;
  }
  return legal_product(node, arithmetic, in, anchored.computed(id), 0, observed, slack_of(node));
}

// Products of such numbers are exact in fp32, so that a sum of n of them in fp32 loses n 2^-24 of their magnitudes.
bool ObservedNodes::in_16_bits(NodeId id, const Replay& anchored) const {
  while (!anchored.overridden(id) && graph_.nodes[id].primitive == Primitive::kWindow) id = graph_.nodes[id].inputs[0];
  const LeafValue held = anchored.packed(id);
  return held && is_float(held.format()) && traits(held.format()).precision <= traits(Format::kFloat16).precision;
}

IllegalValue ObservedNodes::check_whole(NodeId id, const Replay& anchored, Enclosures* enclosures,
                                        Bounds* bounds) const {
  if (is_legal_product(id, anchored)) {
    enclosures->leave(id);
    return {};
  }
  const Array exact = anchored.computed(id);  // Before its enclosure is taken, which may give it up.
  const Enclosure enclosure = enclosures->take(id);
  if (enclosure.exploded) {
    leave_unjudged(id, bounds);
    return {};
  }
  return Elements(graph_, id, anchors_.at(id), *input_.profile).check(0, exact, enclosure.radius);
}

std::vector<IllegalValue> ObservedNodes::check_chain(const ChainGroup& group, Enclosures* enclosures,
                                                     Bounds* bounds) const {
  const TiledChain& chain = *group.chain;
  std::vector<Elements> members;
  for (std::size_t index : group.members)
    members.emplace_back(graph_, nodes_[index], anchors_.at(nodes_[index]), *input_.profile);
  EnclosedChain enclosed(chain, enclosures);
  std::vector<std::vector<IllegalValue>> parts(static_cast<std::size_t>(count_tiles(chain)));
  for_each_index(count_tiles(chain), [&](std::int64_t number) {
    const Tile tile = enclosed.tile(number);
    for (std::size_t k = 0; k < members.size(); ++k)
      parts[static_cast<std::size_t>(number)].push_back(members[k].check(tile.begin, tile.ends[k], tile.radii[k]));
  });
  const std::vector<bool> exploded = enclosed.exploded();
  std::vector<IllegalValue> found;
  for (std::size_t k = 0; k < members.size(); ++k) {
    if (exploded[chain.ends[k]]) {
      leave_unjudged(nodes_[group.members[k]], bounds);
      continue;
    }
    IllegalValue& whole = found.emplace_back();
    for (const std::vector<IllegalValue>& part : parts) Elements::join(part[k], &whole);
  }
  return found;
}

}  // namespace plumbline
