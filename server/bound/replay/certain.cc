#include "server/bound/replay/certain.h"

#include <algorithm>
#include <cmath>

#include "server/bound/replay/arithmetic.h"

namespace plumbline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Interval united(Interval a, Interval b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }

// The range of a result whose sign is certain where its inputs' signs are.
Interval sign(bool never_negative, bool never_positive) {
  return {never_negative ? 0 : -kInfinity, never_positive ? 0 : kInfinity};
}

Interval product_sign(Interval a, Interval b) {
  return sign((a.low >= 0 && b.low >= 0) || (a.high <= 0 && b.high <= 0),
              (a.low >= 0 && b.high <= 0) || (a.high <= 0 && b.low >= 0));
}

Interval of_values(const Array& values) {
  if (!values || values.count() == 0) return {};
  const Array x = values.on_host();
  Interval range{kInfinity, -kInfinity};
  for (std::int64_t i = 0; i < x.count(); ++i) {
    if (std::isnan(x.data()[i])) return {};
    range = united(range, {x.data()[i], x.data()[i]});
  }
  return range;
}

// A limit that the format does not hold moves by its rounding: only its sign is kept.
Interval held(Format format, Interval range) {
  if (!is_float(format)) return range;
  if (round_to(format, range.low) != range.low) range.low = range.low >= 0 ? 0 : -kInfinity;
  if (round_to(format, range.high) != range.high) range.high = range.high <= 0 ? 0 : kInfinity;
  return range;
}

Interval of_node(const Node& node, const std::vector<Interval>& ranges, const Profile& profile) {
  const auto in = [&](std::size_t i) { return ranges[node.inputs[i]]; };
  switch (node.primitive) {
    case Primitive::kConstant:
      return {node.attributes.scalar, node.attributes.scalar};
    case Primitive::kNeg:
      return {-in(0).high, -in(0).low};
    case Primitive::kAbs:
      return {std::max({0.0, in(0).low, -in(0).high}), std::max(-in(0).low, in(0).high)};
    case Primitive::kCast:
    case Primitive::kAmax:
    case Primitive::kAmin:
    case Primitive::kWindow:
    case Primitive::kGatherRows:
      return in(0);
    case Primitive::kMax:
      return {std::max(in(0).low, in(1).low), std::max(in(0).high, in(1).high)};
    case Primitive::kMin:
      return {std::min(in(0).low, in(1).low), std::min(in(0).high, in(1).high)};
    case Primitive::kSelect:
      return united(in(1), in(2));
    case Primitive::kAssemble: {
      Interval range = node.attributes.has_base ? in(0) : Interval{0, 0};
      for (std::size_t i = 0; i < node.inputs.size(); ++i) range = united(range, in(i));
      return range;
    }
    case Primitive::kExp:
    case Primitive::kSqrt:
    case Primitive::kRsqrt:
    case Primitive::kVarianceRsqrt:
    case Primitive::kNorm:
    case Primitive::kSoftmax:
      return {0, kInfinity};
    case Primitive::kSin:
    case Primitive::kCos:
    case Primitive::kTanh:
    case Primitive::kErf:
    case Primitive::kSigmoid: {
      const auto [low, high] = promised_range(node, profile);
      return {low, high};
    }
    case Primitive::kReciprocal:
    case Primitive::kSum:
    case Primitive::kCumsum:
    case Primitive::kScatterAdd:
      return sign(in(0).low >= 0, in(0).high <= 0);
    case Primitive::kAdd:
      // Rounding is monotone: where a format holds the sum of two limits, no rounded sum passes it.
      return {in(0).low + in(1).low, in(0).high + in(1).high};
    case Primitive::kMul:
      return node.inputs[0] == node.inputs[1] ? Interval{0, kInfinity} : product_sign(in(0), in(1));
    case Primitive::kDiv:
      return product_sign(in(0), in(1));
    case Primitive::kMatmul: {
      const Interval product = product_sign(in(0), in(1));
      if (node.inputs.size() == 2) return product;
      const Interval scaled = node.inputs.size() > 3 ? product_sign(product, in(3)) : product;
      return {scaled.low + in(2).low, scaled.high + in(2).high};
    }
    case Primitive::kPow: {
      const bool even = in(1).low == in(1).high && std::fmod(in(1).low, 2) == 0;
      return sign(even || in(0).low >= 0, false);
    }
    default:
      return {};
  }
}

}  // namespace

std::vector<Interval> certain_ranges(const Graph& graph, const Replay& replay, const std::vector<NodeId>& wanted,
                                     const Profile& profile) {
  const std::vector<bool> needed = ancestors(graph, wanted);
  std::vector<Interval> ranges(graph.nodes.size());
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!needed[id]) continue;
    const Node& node = graph.nodes[id];
    ranges[id] = node.primitive == Primitive::kLeaf ? of_values(replay.value(id))
                                                    : held(node.result, of_node(node, ranges, profile));
  }
  return ranges;
}

}  // namespace plumbline
