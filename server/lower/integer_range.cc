#include "server/lower/integer_range.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace plumbline {
namespace {

IntegerRange united(IntegerRange a, IntegerRange b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high), a.assumed || b.assumed};
}

IntegerRange among(std::initializer_list<double> ends, bool assumed) {
  return {std::min(ends), std::max(ends), assumed};
}

IntegerRange product(IntegerRange a, IntegerRange b) {
  return among({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high}, a.assumed || b.assumed);
}

// The sum of up to `terms` numbers of the range.
IntegerRange sum_of(double terms, IntegerRange range) {
  return {std::min(0.0, range.low * terms), std::max(0.0, range.high * terms), range.assumed};
}

double magnitude(IntegerRange range) { return std::max(std::fabs(range.low), std::fabs(range.high)); }

}  // namespace

int width_of(Format format) { return is_float(format) || format == Format::kBool ? 0 : 8 * traits(format).bytes; }

IntegerRange range_of(Format format) {
  if (format == Format::kBool) return {0, 1};
  const int width = width_of(format);
  if (format == Format::kUInt8) return {0, 255};
  return {-std::ldexp(1.0, width - 1), std::ldexp(1.0, width - 1) - (width < 54 ? 1 : 0)};
}

void IntegerRanges::forget(NodeId first) {
  if (known_.size() > first) known_.resize(first);
}

void IntegerRanges::set(NodeId id, IntegerRange range) {
  if (known_.size() < graph_.nodes.size()) known_.resize(graph_.nodes.size());
  known_[id] = range;
}

IntegerRange IntegerRanges::of(NodeId id) {
  if (known_.size() < graph_.nodes.size()) known_.resize(graph_.nodes.size());
  if (known_[id]) return *known_[id];
  std::vector<NodeId> open{id};
  std::set<NodeId> wanted{id};
  while (!open.empty()) {
    const Node& next = graph_.nodes[open.back()];
    open.pop_back();
    if (next.result == Format::kBool || is_float(next.result)) continue;  // Whatever their operands are.
    for (NodeId input : next.inputs)
      if (!known_[input] && wanted.insert(input).second) open.push_back(input);
  }
  for (NodeId node : wanted) known_[node] = within_format(compute(node), graph_.nodes[node].result);
  return *known_[id];
}

IntegerRange IntegerRanges::within_format(IntegerRange range, Format format) {
  if (!range.assumed) return range;
  const IntegerRange most = is_float(format) ? IntegerRange{-kExactMax, kExactMax} : range_of(format);
  range.low = std::clamp(range.low, std::max(-kExactMax, most.low), kExactMax);
  range.high = std::clamp(range.high, -kExactMax, std::min(kExactMax, most.high));
  return range;
}

IntegerRange IntegerRanges::of_leaf(NodeId id) const {
  const IntegerRange all{-kExactMax, kExactMax, true};
  const auto leaf = std::ranges::lower_bound(graph_.leaves, id, {}, &GraphLeaf::node);  // Made in this order.
  if (leaf == graph_.leaves.end() || leaf->node != id || is_float(leaf->format) || !leaf->bytes) return all;
  if (leaf->bytes->empty()) return {0, 0};
  std::vector<double> values(leaf->bytes->size() / static_cast<std::size_t>(traits(leaf->format).bytes));
  decode(leaf->format, leaf->bytes->data(), static_cast<std::int64_t>(values.size()), values.data());
  const auto [low, high] = std::ranges::minmax(values);
  return {low, high};
}

IntegerRange IntegerRanges::compute(NodeId id) {
  const Node& node = graph_.nodes[id];
  const IntegerRange all{-kExactMax, kExactMax, true};
  if (node.primitive == Primitive::kLeaf) return of_leaf(id);
  if (node.result == Format::kBool) return {0, 1};
  const auto in = [&](std::size_t i) { return of(node.inputs[i]); };
  const auto whole = [&](std::size_t i) { return !is_float(graph_.nodes[node.inputs[i]].result); };
  if (node.primitive != Primitive::kConstant && node.primitive != Primitive::kIota && is_float(node.result)) return all;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (!whole(i) && node.primitive != Primitive::kArgsort && node.primitive != Primitive::kArgmax) return all;
  const double elements = static_cast<double>(count(node.shape));
  const auto reduced = [&] {
    const double from = static_cast<double>(count(graph_.nodes[node.inputs[0]].shape));
    return elements > 0 ? from / elements : 0;
  };
  switch (node.primitive) {
    case Primitive::kConstant:
      return {node.attributes.scalar, node.attributes.scalar};
    case Primitive::kIota:
      return among(
          {node.attributes.scalar, node.attributes.scalar + node.attributes.scalar2 * std::max(0.0, elements - 1)},
          false);
    case Primitive::kNeg:
      return {-in(0).high, -in(0).low, in(0).assumed};
    case Primitive::kAbs:
      return {0, magnitude(in(0)), in(0).assumed};
    case Primitive::kSign:
      return {-1, 1};
    case Primitive::kCast:
    case Primitive::kFloor:
    case Primitive::kCeil:
    case Primitive::kRound:
    case Primitive::kTrunc:
    case Primitive::kWindow:
    case Primitive::kGatherRows:
    case Primitive::kAmax:
    case Primitive::kAmin:
      return in(0);
    case Primitive::kAdd:
      return {in(0).low + in(1).low, in(0).high + in(1).high, in(0).assumed || in(1).assumed};
    case Primitive::kSub:
      return {in(0).low - in(1).high, in(0).high - in(1).low, in(0).assumed || in(1).assumed};
    case Primitive::kMul:
      return product(in(0), in(1));
    case Primitive::kDiv: {  // The divisor is an integer that is not 0.
      const double most = magnitude(in(0));
      const IntegerRange by = in(1);
      const double least = by.low > 0 ? by.low : by.high < 0 ? -by.high : 1;
      return {in(0).low >= 0 && by.low > 0 ? 0 : -most / least, most / least, in(0).assumed || by.assumed};
    }
    case Primitive::kFmod: {
      const double most = std::min(magnitude(in(0)), std::max(0.0, magnitude(in(1)) - 1));
      return {in(0).low >= 0 ? 0 : -most, in(0).high <= 0 ? 0 : most, in(0).assumed || in(1).assumed};
    }
    case Primitive::kMax:
      return {std::max(in(0).low, in(1).low), std::max(in(0).high, in(1).high), in(0).assumed || in(1).assumed};
    case Primitive::kMin:
      return {std::min(in(0).low, in(1).low), std::min(in(0).high, in(1).high), in(0).assumed || in(1).assumed};
    case Primitive::kPow: {
      const double most = std::pow(magnitude(in(0)), std::max(0.0, in(1).high));
      return {in(0).low >= 0 ? 0 : -most, std::max(1.0, most), in(0).assumed || in(1).assumed};
    }
    case Primitive::kSelect:
      return united(in(1), in(2));
    case Primitive::kAssemble: {
      IntegerRange range;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) range = united(range, in(i));
      return range;
    }
    case Primitive::kSum:
      return sum_of(reduced(), in(0));
    case Primitive::kCumsum:
      return sum_of(static_cast<double>(node.shape.at(static_cast<std::size_t>(node.attributes.dims.at(0)))), in(0));
    case Primitive::kScatterAdd:
      return sum_of(static_cast<double>(graph_.nodes[node.inputs[0]].shape.at(0)), in(0));
    case Primitive::kArgmax:
    case Primitive::kArgsort:
      return {0, static_cast<double>(count(graph_.nodes[node.inputs[0]].shape))};
    case Primitive::kMatmul: {
      const double terms = static_cast<double>(graph_.nodes[node.inputs[0]].shape.back());
      const IntegerRange sums = sum_of(terms, product(in(0), in(1)));
      if (node.inputs.size() == 2) return sums;
      const IntegerRange scaled = node.inputs.size() > 3 ? product(sums, in(3)) : sums;
      return {scaled.low + in(2).low, scaled.high + in(2).high, scaled.assumed || in(2).assumed};
    }
    default:
      return all;
  }
}

}  // namespace plumbline
