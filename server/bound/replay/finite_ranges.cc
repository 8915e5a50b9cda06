#include "server/bound/replay/finite_ranges.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/parallel.h"
#include "server/bound/replay/tiles.h"

namespace plumbline {
namespace {

using Range = FiniteRanges::Range;

// The ends, moved outwards by more than an operation rounds to: fp64 loses a part in 2^53 at most, functions a few of
// these, and everything near underflow, but never the sign.
std::optional<Range> around(double low, double high) {
  constexpr double kApart = 0x1p-48, kLeast = 0x1p-960;
  const auto outwards = [](double end, double sign) {
    if (std::fabs(end) < kLeast) return end * sign > 0 ? sign * kLeast : 0.0;
    return end + sign * kApart * std::fabs(end);
  };
  const Range moved{outwards(low, -1), outwards(high, 1)};
  if (!std::isfinite(moved.low) || !std::isfinite(moved.high)) return std::nullopt;  // NaN too.
  return moved;
}

std::optional<Range> among(std::initializer_list<double> ends) { return around(std::min(ends), std::max(ends)); }

bool has_rule(Primitive primitive) {
  using enum Primitive;
  return is_elementwise(primitive) || primitive == kConstant || primitive == kWindow || primitive == kAssemble ||
         primitive == kMatmul;
}

double size(Range x) { return std::max(std::fabs(x.low), std::fabs(x.high)); }

// 0 or 1, whatever the operands are.
bool is_decision(Primitive primitive) {
  using enum Primitive;
  return primitive == kIsFinite || primitive == kLogicalNot || (primitive >= kLess && primitive <= kLogicalOr);
}

Range joined(Range a, Range b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }

}  // namespace

std::optional<Range> FiniteRanges::of_values(NodeId id) const {
  const LeafValue packed = replay_.packed(id);
  if (!packed && !replay_.at_hand(id)) return std::nullopt;
  const Array values = packed ? Array() : replay_.value(id).materialize();
  const std::int64_t n = count(graph_.nodes[id].shape), tiles = count_tiles(n);
  if (n == 0) return Range{0, 0};
  struct Part {
    double low = 0, high = 0, unbounded = 0;
  };
  std::vector<Part> parts(static_cast<std::size_t>(std::max<std::int64_t>(1, tiles)));
  const auto length = (n + std::ssize(parts) - 1) / std::ssize(parts);
  cpu::parallel_for(std::ssize(parts), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      const std::int64_t begin = t * length, size = std::min(length, n - begin);
      if (size <= 0) continue;
      const Array decoded = packed ? packed.part(begin, size) : Array();
      const double* const x = packed ? decoded.data() : values.data() + begin;
      double low = x[0], high = x[0], unbounded = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : unbounded)
      for (std::int64_t i = 0; i < size; ++i) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        unbounded += x[i] - x[i];  // 0 where x is finite, otherwise NaN.
      }
      parts[static_cast<std::size_t>(t)] = {low, high, unbounded};
    }
  });
  Range all{parts[0].low, parts[0].high};
  for (const Part& part : parts) {
    if (part.unbounded != 0) return std::nullopt;
    all = joined(all, {part.low, part.high});
  }
  return all;
}

// What the node is a number of: x of c x, and whether c is negative.
FiniteRanges::Scaled FiniteRanges::scaled(NodeId id) const {
  Scaled found{id, false};
  for (;;) {
    const Node& node = graph_.nodes[found.node];
    if (node.primitive != Primitive::kMul || replay_.overridden(found.node)) return found;
    const auto constant = std::ranges::find_if(node.inputs, [&](NodeId input) {
      return graph_.nodes[input].primitive == Primitive::kConstant && !replay_.overridden(input);
    });
    if (constant == node.inputs.end()) return found;
    found.negative = found.negative != std::signbit(graph_.nodes[*constant].attributes.scalar);
    found.node = constant == node.inputs.begin() ? node.inputs[1] : node.inputs[0];
  }
}

std::optional<Range> FiniteRanges::of_operands(const Node& node) const {
  std::vector<Range> in;
  for (NodeId input : node.inputs) {
    if (!ranges_[input].range) return std::nullopt;
    in.push_back(*ranges_[input].range);
  }
  const auto spans_zero = [](Range x) { return x.low <= 0 && x.high >= 0; };
  switch (node.primitive) {
    using enum Primitive;
    case kConstant:
      return around(node.attributes.scalar, node.attributes.scalar);
    case kNeg:
      return Range{-in[0].high, -in[0].low};
    case kAbs:
      return Range{std::max({0.0, in[0].low, -in[0].high}), std::max(-in[0].low, in[0].high)};
    case kSqrt:
      return in[0].low < 0 ? std::nullopt : around(std::sqrt(in[0].low), std::sqrt(in[0].high));
    case kRsqrt:
      return in[0].low <= 0 ? std::nullopt : around(1 / std::sqrt(in[0].high), 1 / std::sqrt(in[0].low));
    case kReciprocal:
      return spans_zero(in[0]) ? std::nullopt : around(1 / in[0].high, 1 / in[0].low);
    case kSign:
    case kTanh:
    case kErf:
    case kSin:
    case kCos:
      return around(-1, 1);
    case kSigmoid:
      return around(0, 1);
    case kWindow:
      return in[0];
    case kAssemble: {
      Range all = node.attributes.has_base ? in[0] : Range{0, 0};
      for (const Range& piece : in) all = joined(all, piece);
      return all;
    }
    case kMatmul: {  // alpha a b + c
      const auto terms = static_cast<double>(graph_.nodes[node.inputs[0]].shape.back());
      const double product = size(in[0]) * size(in[1]) * (in.size() > 3 ? std::max(1.0, size(in[3])) : 1);
      const double all = (terms * product + (in.size() > 2 ? size(in[2]) : 0)) * (1 + terms * 0x1p-50);
      return around(-all, all);
    }
    case kCast:
      return is_float(node.result) ? std::optional(in[0]) : std::nullopt;
    case kAdd:
      return around(in[0].low + in[1].low, in[0].high + in[1].high);
    case kSub:
      return around(in[0].low - in[1].high, in[0].high - in[1].low);
    case kMul: {
      std::optional<Range> product =
          among({in[0].low * in[1].low, in[0].low * in[1].high, in[0].high * in[1].low, in[0].high * in[1].high});
      const Scaled a = scaled(node.inputs[0]), b = scaled(node.inputs[1]);
      if (product && a.node == b.node) {  // A number of squares.
        if (a.negative == b.negative)
          product->low = std::max(product->low, 0.0);
        else
          product->high = std::min(product->high, 0.0);
      }
      return product;
    }
    case kDiv:
      if (spans_zero(in[1])) return std::nullopt;
      return among({in[0].low / in[1].low, in[0].low / in[1].high, in[0].high / in[1].low, in[0].high / in[1].high});
    case kMax:
      return Range{std::max(in[0].low, in[1].low), std::max(in[0].high, in[1].high)};
    case kMin:
      return Range{std::min(in[0].low, in[1].low), std::min(in[0].high, in[1].high)};
    case kSelect:
      return joined(in[1], in[2]);
    case kPow:
      if (in[0].low < 0 || in[1].low != in[1].high || in[1].low < 0) return std::nullopt;
      return around(std::pow(in[0].low, in[1].low), std::pow(in[0].high, in[1].low));
    default:
      return std::nullopt;
  }
}

std::optional<Range> FiniteRanges::of(NodeId id) {
  std::vector<NodeId> open = {id};
  while (!open.empty()) {
    const NodeId next = open.back();
    const Node& node = graph_.nodes[next];
    const auto finish = [&](std::optional<Range> range) {
      ranges_[next] = {true, range};
      open.pop_back();
    };
    if (ranges_[next].known) {
      open.pop_back();
    } else if (is_decision(node.primitive) && (node.result == Format::kBool || !replay_.overridden(next))) {
      finish(Range{0, 1});
    } else if (replay_.overridden(next)) {
      finish(std::nullopt);  // Who reads it sees another value.
    } else if (!is_elementwise(node.primitive) && (!has_rule(node.primitive) || replay_.at_hand(next))) {
      finish(of_values(next));
    } else {
      const std::size_t before = open.size();
      for (NodeId input : node.inputs)
        if (!ranges_[input].known) open.push_back(input);
      if (open.size() > before) continue;
      const std::optional<Range> told = of_operands(node);
      finish(told ? told : of_values(next));
    }
  }
  return ranges_[id].range;
}

}  // namespace plumbline
