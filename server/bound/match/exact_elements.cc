#include "server/bound/match/exact_elements.h"

#include <algorithm>
#include <cmath>

namespace plumbline {
namespace {

// Operands of products may be held in formats as narrow as bf16 (tf32, bf16 units): so many bits survive in each.
constexpr int kOperandBits = 8;

// The largest power of two that divides every element; infinite for zeros, 0 where an element is not finite.
double grid_of(const Array& values) {
  int lowest = 2048;
  for (std::int64_t i = 0; i < values.count(); ++i) {
    const double x = values.data()[i];
    if (!std::isfinite(x)) return 0;
    if (x == 0) continue;
    int exponent = 0;
    const auto bits = static_cast<std::int64_t>(std::ldexp(std::frexp(std::fabs(x), &exponent), 53));
    lowest = std::min(lowest, exponent - 53 + __builtin_ctzll(static_cast<unsigned long long>(bits)));
  }
  return lowest == 2048 ? HUGE_VAL : std::ldexp(1, lowest);
}

double largest(const Array& values) {
  double most = 0;
  for (std::int64_t i = 0; i < values.count(); ++i) most = std::fmax(most, std::fabs(values.data()[i]));
  return most;
}

Array magnitudes_of(const Array& values) {
  Array magnitudes = Array::uninitialized(values.shape());
  const Array x = values.on_host();
  for (std::int64_t i = 0; i < x.count(); ++i) magnitudes.data()[i] = std::fabs(x.data()[i]);
  return magnitudes;
}

bool power_of_two(double x) {
  int exponent = 0;
  return std::frexp(std::fabs(x), &exponent) == 0.5;
}

// Whether fp64 itself rounds the operation to `value`, or a device's division may.
bool exact_in_fp64(Primitive primitive, double a, double b, double value) {
  switch (primitive) {
    case Primitive::kAdd:
    case Primitive::kSub: {
      const double addend = primitive == Primitive::kAdd ? b : -b, part = value - a;
      return (a - (value - part)) + (addend - part) == 0;  // Knuth's two-sum.
    }
    case Primitive::kMul:
      return std::fma(a, b, -value) == 0;
    case Primitive::kDiv:
      return power_of_two(b) && std::fma(value, b, -a) == 0;
    default:
      return true;  // Of one operand, or a selection of one.
  }
}

bool calculates_exactly(Primitive primitive) {
  using enum Primitive;
  return primitive == kNeg || primitive == kAbs || primitive == kCast || primitive == kAdd || primitive == kSub ||
         primitive == kMul || primitive == kDiv || primitive == kMax || primitive == kMin || primitive == kSelect ||
         primitive == kLogicalNot || primitive == kLogicalAnd || primitive == kLogicalOr || primitive == kIsFinite;
}

bool sums(Primitive primitive) {
  return primitive == Primitive::kSum || primitive == Primitive::kCumsum || primitive == Primitive::kScatterAdd;
}

bool shifts(Primitive primitive) {
  return primitive == Primitive::kWindow || primitive == Primitive::kAssemble || primitive == Primitive::kGatherRows ||
         primitive == Primitive::kAmax || primitive == Primitive::kAmin;
}

// Which way it falls at a tie is a convention: of halves, and of slopes at the kinks of relu and abs. What a program
// itself asks in forward, it means.
bool by_convention(const Graph& graph, NodeId id) {
  const Primitive primitive = graph.nodes[id].primitive;
  if (primitive >= Primitive::kLess && primitive <= Primitive::kGreaterEqual)
    return graph.origins[graph.nodes[id].origin].phase != Phase::kForward;
  return primitive == Primitive::kSign || primitive == Primitive::kRound || primitive == Primitive::kArgmax ||
         primitive == Primitive::kArgsort;
}

Loose everything() { return {true, Array()}; }

Loose given() { return {false, Array(), true}; }

}  // namespace

ExactElements::ExactElements(const MatchSide& side, const Freedoms& freedoms, const std::vector<double>& relative)
    : side_(side), freedoms_(freedoms), relative_(relative) {}

const Loose& ExactElements::of(NodeId id) {
  if (const auto found = known_.find(id); found != known_.end()) return found->second;
  const std::vector<bool> needed = ancestors(side_.graph, {id});
  for (NodeId node = 0; node <= id; ++node)
    if (needed[node] && known_.count(node) == 0) known_[node] = loose(node);
  return known_[id];
}

Loose ExactElements::loose(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  const bool decides = Margins::decides(side_.graph, id);
  if (freedoms_.count(id) != 0 || !side_.replay.has(id)) return everything();
  if (!decides && side_.replay.overridden(id)) return everything();
  if (node.primitive == Primitive::kConstant) return node.attributes.scalar2 == 0 ? given() : everything();
  const bool of_given = std::ranges::all_of(node.inputs, [&](NodeId input) { return known_.at(input).given; });
  if (of_given && (traits(node.primitive).bitwise || !is_float(node.result))) return given();
  if (decides) return decided(id);
  if (node.primitive == Primitive::kIota) {
    Loose counted = calculated(id);
    counted.given = counted.none();
    return counted;
  }
  if (calculates_exactly(node.primitive)) return calculated(id);
  if (sums(node.primitive) || shifts(node.primitive)) return moved_or_summed(id);
  if (node.primitive == Primitive::kMatmul) return product(id);
  const bool whole = std::ranges::all_of(node.inputs, [&](NodeId input) { return known_.at(input).none(); });
  return {!whole || is_float(node.result), Array()};
}

Loose ExactElements::of_operands(NodeId id) {
  for (NodeId input : side_.graph.nodes[id].inputs) of(input);
  return by_convention(side_.graph, id) ? everything() : any_operand(id);
}

Loose ExactElements::any_operand(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  Loose loose;
  for (NodeId input : node.inputs) {
    const Loose& operand = known_.at(input);
    if (operand.all) return everything();
    if (!operand.elements) continue;
    const Array more = operand.elements.expand(node.shape).on_host();
    Array both = Array::uninitialized(node.shape);
    for (std::int64_t i = 0; i < both.count(); ++i)
      both.data()[i] = std::fmax(loose.elements ? loose.elements.data()[i] : 0, more.data()[i]);
    loose.elements = both;
  }
  return loose;
}

// Elementwise: where an operand is loose, or the result is no number of its format.
Loose ExactElements::calculated(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  const Loose operands = any_operand(id);
  if (operands.all || !is_float(node.result)) return operands;  // Integers wrap, and never round.
  const Array value = side_.replay.computed(id).expand(node.shape).on_host();
  const auto operand = [&](std::size_t i) {
    return i < node.inputs.size() ? side_.replay.value(node.inputs[i]).expand(node.shape).on_host() : value;
  };
  const Array a = operand(0), b = operand(1);
  Array loose = Array::uninitialized(node.shape);
  std::int64_t off = 0;
  for (std::int64_t i = 0; i < value.count(); ++i) {
    const double x = value.data()[i];
    const bool exact = round_to(node.result, x) == x && flush(node.result, x) == x &&
                       exact_in_fp64(node.primitive, a.data()[i], b.data()[i], x);
    loose.data()[i] = !exact || (operands.elements && operands.elements.data()[i] != 0);
    off += loose.data()[i] != 0;
  }
  return {off == value.count() && off > 0, off > 0 ? loose : Array()};
}

Loose ExactElements::decided(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  if (node.inputs.size() == 2 && node.inputs[0] == node.inputs[1]) return {};  // A number with itself.
  const bool chooses = node.primitive == Primitive::kArgmax || node.primitive == Primitive::kArgsort;
  const bool exact = std::ranges::all_of(node.inputs, [&](NodeId input) { return known_.at(input).none(); });
  if (exact && !by_convention(side_.graph, id)) return {};
  if (chooses) return everything();
  const Array operands = by_convention(side_.graph, id) ? Array() : any_operand(id).elements;
  const Margins margins(side_, id, nullptr, relative_[id], operands);
  Array open = Array::zeros(node.shape);
  bool some = false;
  for (std::int64_t i = 0; i < open.count(); ++i) {
    open.data()[i] = margins.jump(i) > 0;
    some = some || open.data()[i] != 0;
  }
  return {false, some ? open : Array()};
}

// A sum of multiples of one power of two is exact in any order while the sum of magnitudes stays below 2^p of them, and
// none is so small that a device may flush it.
bool ExactElements::rounds_nowhere(NodeId id, const Array& magnitudes, double grid) const {
  const Format format = side_.graph.nodes[id].result;
  if (!is_float(format)) return true;
  const double most = largest(magnitudes);
  return most == 0 || (grid >= smallest_normal(format) && most <= std::ldexp(grid, traits(format).precision));
}

Loose ExactElements::moved_or_summed(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  const bool indexed = node.primitive == Primitive::kGatherRows || node.primitive == Primitive::kScatterAdd;
  if (indexed && !known_.at(node.inputs[1]).none()) return everything();
  std::vector<Array> loose, magnitudes;
  bool any = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Loose& operand = known_.at(node.inputs[i]);
    const Array value = side_.replay.value(node.inputs[i]);
    if (operand.all && node.primitive != Primitive::kAssemble) return everything();
    if (indexed && i == 1) {
      loose.push_back(value);
      magnitudes.push_back(value);
      continue;
    }
    any = any || !operand.none();
    const Array each = operand.elements ? operand.elements : Array::scalar(operand.all ? 1 : 0);
    loose.push_back(each.expand(value.shape()).materialize());
    magnitudes.push_back(magnitudes_of(value));
  }
  const Primitive carrier = node.primitive == Primitive::kAmin ? Primitive::kAmax : node.primitive;
  const auto carry = [&](const std::vector<Array>& values) {
    return traits(carrier).evaluate(node.attributes, node.shape, values).on_host();
  };
  Loose found;
  if (any) found.elements = carry(loose).materialize();
  if (!sums(node.primitive)) return found;
  const Array sums = carry(magnitudes);
  if (rounds_nowhere(id, sums, grid_of(magnitudes[0].on_host()))) return found;
  // Sums of zeros are exact whatever the others are.
  Array rounded = Array::uninitialized(node.shape);
  for (std::int64_t i = 0; i < sums.count(); ++i)
    rounded.data()[i] = sums.data()[i] != 0 || (found.elements && found.elements.data()[i] != 0);
  return {false, rounded};
}

// All of it, or nothing: a row of zeros in a product of weights stays as open as its neighbours, for what lies at a
// kink because its weights are zero may take either slope.
Loose ExactElements::product(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  if (node.inputs.size() != 2) return everything();
  std::vector<Array> magnitudes;
  double grid = 1;
  for (NodeId input : node.inputs) {
    if (!known_.at(input).none()) return everything();
    magnitudes.push_back(magnitudes_of(side_.replay.value(input)));
    const double own = grid_of(magnitudes.back().on_host());
    if (!(largest(magnitudes.back().on_host()) <= std::ldexp(own, kOperandBits))) return everything();
    grid *= own;
  }
  const Array sums = traits(Primitive::kMatmul).evaluate(node.attributes, node.shape, magnitudes).on_host();
  return {!rounds_nowhere(id, sums, grid), Array()};
}

}  // namespace plumbline
