#include "server/bound/match/exact_elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "server/bound/match/decisions.h"
#include "server/bound/replay/terms.h"

namespace plumbline {
namespace {

// Operands of products may be held in formats as narrow as bf16 (tf32, bf16 units): so many bits survive in each.
constexpr int kOperandBits = 8;

// Significant bits of a number that is not 0, and the power of two of its last one.
struct Bits {
  int significant = 0, last = 0;
};
Bits bits_of(double x) {
  int exponent = 0;
  const auto bits = static_cast<std::int64_t>(std::ldexp(std::frexp(std::fabs(x), &exponent), 53));
  const int zeros = std::countr_zero(static_cast<std::uint64_t>(bits));
  return {53 - zeros, exponent - 53 + zeros};
}

// In what training computes with, the first number mostly is a long one, so that the search ends there.
bool has_long_number(const Array& values) {
  for (std::int64_t i = 0; i < values.count(); ++i) {
    const double x = values.data()[i];
    if (x != 0 && (!std::isfinite(x) || bits_of(x).significant > kOperandBits)) return true;
  }
  return false;
}

// The largest power of two that divides every element; infinite for zeros, 0 where an element is not finite.
double grid_of(const Array& values) {
  constexpr int kNone = 2048;
  int last = kNone;
  for (std::int64_t i = 0; i < values.count(); ++i) {
    const double x = values.data()[i];
    if (!std::isfinite(x)) return 0;
    if (x != 0) last = std::min(last, bits_of(x).last);
  }
  return last == kNone ? HUGE_VAL : std::ldexp(1, last);
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

// Whether fp64 itself rounds the operation to `value`.
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
      return std::fma(value, b, -a) == 0;
    case Primitive::kReciprocal:
      return std::fma(value, a, -1) == 0;
    case Primitive::kSqrt:
      return std::fma(value, value, -a) == 0;
    default:
      return true;  // The others have one operand, or select one.
  }
}

// What a profile promises of quotients and roots that are off by no more ULPs than this beyond their rounding: they
// come out as they are where the format holds them (profile.proto). Below half an ULP that follows, since the exact
// result is the nearest number of the format; at half of one a tie could go to its neighbour, and calibration looks
// whether any does.
constexpr double kFaithful = 0.5;

// By whose promise a representable result comes out as it is.
std::optional<Function> promising(Primitive primitive) {
  switch (primitive) {
    case Primitive::kDiv:
    case Primitive::kReciprocal:
      return Function::kDivide;
    case Primitive::kSqrt:
    case Primitive::kNorm:
      return Function::kSqrt;
    default:
      return std::nullopt;
  }
}

// Division by one number for all elements may be a product with its reciprocal, which rounds twice.
bool same_by_reciprocal(Format format, double a, double b, double value) {
  return round_to(format, a * round_to(format, 1 / b)) == value;
}

bool chooses(Primitive primitive) {
  return primitive == Primitive::kMax || primitive == Primitive::kMin || primitive == Primitive::kSelect;
}

bool calculates_exactly(Primitive primitive) {
  using enum Primitive;
  return primitive == kNeg || primitive == kAbs || primitive == kCast || primitive == kAdd || primitive == kSub ||
         primitive == kMul || primitive == kDiv || primitive == kReciprocal || primitive == kSqrt ||
         primitive == kLogicalNot || primitive == kLogicalAnd || primitive == kLogicalOr || primitive == kIsFinite;
}

bool sums(Primitive primitive) {
  return primitive == Primitive::kSum || primitive == Primitive::kCumsum || primitive == Primitive::kScatterAdd;
}

bool shifts(Primitive primitive) {
  return primitive == Primitive::kWindow || primitive == Primitive::kAssemble || primitive == Primitive::kGatherRows ||
         primitive == Primitive::kAmax || primitive == Primitive::kAmin;
}

// What was given is what it is, but may be rounded where it is cast.
bool holds(Format format, const Array& values) {
  const Array x = values.materialize().on_host();
  return std::all_of(x.data(), x.data() + x.count(), [&](double v) { return round_to(format, v) == v; });
}

Loose everything() { return {true, Array()}; }

Loose where(const std::vector<bool>& off, const Shape& shape) {
  const auto number = std::ranges::count(off, true);
  if (number == 0) return {};
  Array elements = Array::uninitialized(shape);
  std::ranges::copy(off, elements.data());
  return {number == std::ssize(off), elements};
}

}  // namespace

// What a program itself asks in forward, it means.
bool is_kink(const Graph& graph, NodeId id) {
  const Primitive primitive = graph.nodes[id].primitive;
  const Phase phase = graph.origins[graph.nodes[id].origin].phase;
  if (primitive >= Primitive::kLess && primitive <= Primitive::kGreaterEqual) return phase != Phase::kForward;
  return primitive == Primitive::kSign && phase == Phase::kBackward;
}

ExactElements::ExactElements(const MatchSide& side, const Freedoms& freedoms, const std::vector<double>& relative,
                             Halves halves)
    : side_(side), freedoms_(freedoms), relative_(relative), halves_(halves), inner_(inner_results()) {
  for (NodeId id = 0; id < side.graph.nodes.size(); ++id) {
    given_.push_back(is_given(id));
    turns_.push_back(
        Margins::decides(side.graph, id) ||
        std::ranges::any_of(side.graph.nodes[id].inputs, [&](NodeId input) { return bool{turns_[input]}; }));
    possible_.push_back(is_possible(id));
  }
}

std::vector<bool> ExactElements::inner_results() const {
  const std::vector<Node>& nodes = side_.graph.nodes;
  std::vector<bool> inner(nodes.size(), false);
  for (std::size_t id = nodes.size(); id-- > 0;) {
    if (!is_float(nodes[id].result)) continue;
    const bool goes_on = inner[id] || !traits(nodes[id].primitive).bitwise;
    for (NodeId input : nodes[id].inputs)
      if (goes_on && nodes[input].origin == nodes[id].origin) inner[input] = true;
  }
  return inner;
}

bool ExactElements::promised(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  const std::optional<Function> function = promising(node.primitive);
  if (!function || side_.profile == nullptr || inner_[id] || side_.graph.origins[node.origin].defined) return false;
  const FunctionError& stated = side_.profile->functions[static_cast<int>(*function)];
  return stated.ulp <= kFaithful && stated.absolute == 0 && stated.slope == 0;
}

bool ExactElements::by_convention(NodeId id) const {
  const Primitive primitive = side_.graph.nodes[id].primitive;
  if (primitive == Primitive::kRound) return halves_ == Halves::kByAnyRule;
  return is_kink(side_.graph, id) || primitive == Primitive::kArgmax || primitive == Primitive::kArgsort;
}

// What is free, or seen from elsewhere, is not what its operation makes of its operands.
bool ExactElements::of_its_own(NodeId id) const {
  return freedoms_.count(id) == 0 && side_.replay.has(id) &&
         (Margins::decides(side_.graph, id) || !side_.replay.overridden(id));
}

bool ExactElements::is_given(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  if (!of_its_own(id)) return false;
  if (node.primitive == Primitive::kConstant) return node.attributes.scalar2 == 0;
  if (node.primitive == Primitive::kIota) return calculated(id).none();
  return (traits(node.primitive).bitwise || !is_float(node.result)) &&
         std::ranges::all_of(node.inputs, [&](NodeId input) { return bool{given_[input]}; });
}

bool ExactElements::is_possible(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  if (given_[id] || Margins::decides(side_.graph, id)) return true;
  const auto possible = [&](NodeId input) { return bool{possible_[input]}; };
  // Products that round or not, and sums kept as running means (primitive.h).
  if ((node.primitive == Primitive::kMul || node.primitive == Primitive::kSum) && node.attributes.scalar != 0)
    return false;
  if (node.primitive == Primitive::kAssemble || chooses(node.primitive))
    return std::ranges::any_of(node.inputs, possible);
  const bool promises = promising(node.primitive) && (node.primitive == Primitive::kDiv || promised(id));
  const bool kept = promises || (calculates_exactly(node.primitive) && !promising(node.primitive)) ||
                    sums(node.primitive) || shifts(node.primitive) || node.primitive == Primitive::kMatmul ||
                    !is_float(node.result);
  return kept && !node.inputs.empty() && std::ranges::all_of(node.inputs, possible);
}

bool ExactElements::settled(NodeId id) const {
  return known_.count(id) != 0 || given_[id] || !possible_[id] || !of_its_own(id) ||
         (Margins::decides(side_.graph, id) && by_convention(id));
}

const Loose& ExactElements::of(NodeId id) {
  std::vector<NodeId> open{id};
  std::set<NodeId> wanted{id};
  while (!open.empty()) {
    const NodeId next = open.back();
    open.pop_back();
    if (settled(next)) continue;
    for (NodeId input : side_.graph.nodes[next].inputs)
      if (wanted.insert(input).second) open.push_back(input);
  }
  for (NodeId node : wanted)  // In topological order.
    if (known_.count(node) == 0) known_[node] = loose(node);
  return known_[id];
}

Loose ExactElements::loose(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  if (given_[id]) return {};
  if (!of_its_own(id) || !possible_[id]) return everything();
  if (Margins::decides(side_.graph, id)) return decided(id);
  if (chooses(node.primitive)) return chosen(id);
  if (node.primitive == Primitive::kNorm) return norm(id);
  if (calculates_exactly(node.primitive)) return calculated(id);
  if (sums(node.primitive) || shifts(node.primitive)) return moved_or_summed(id);
  if (node.primitive == Primitive::kMatmul) return product(id);
  const bool whole = std::ranges::all_of(node.inputs, [&](NodeId input) { return known_.at(input).none(); });
  return {!whole || is_float(node.result), Array()};
}

Loose ExactElements::of_operands(NodeId id) {
  if (by_convention(id)) return everything();
  for (NodeId input : side_.graph.nodes[id].inputs) of(input);
  return any_operand(id);
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
  const bool divides = node.primitive == Primitive::kDiv, promise = promised(id);
  const bool by_one = divides && count(side_.graph.nodes[node.inputs[1]].shape) == 1;
  const auto quotient_is = [&](double dividend, double divisor, double x) {
    if (power_of_two(divisor)) return true;
    return promise && flush(node.result, divisor) == divisor &&
           (!by_one || same_by_reciprocal(node.compute, dividend, divisor, x));
  };
  std::vector<bool> off(static_cast<std::size_t>(value.count()));
  for (std::int64_t i = 0; i < value.count(); ++i) {
    const double x = value.data()[i];
    const bool exact = round_to(node.result, x) == x && flush(node.result, x) == x &&
                       exact_in_fp64(node.primitive, a.data()[i], b.data()[i], x) &&
                       (!divides || quotient_is(a.data()[i], b.data()[i], x));
    off[static_cast<std::size_t>(i)] = !exact || (operands.elements && operands.elements.data()[i] != 0);
  }
  return where(off, node.shape);
}

double ExactElements::slack_of(NodeId operand) const {
  double squares = 0, finite = 0;
  const Array terms = terms_magnitude(side_.graph, side_.replay, operand).on_host();
  for (std::int64_t i = 0; i < terms.count(); ++i) {
    if (!std::isfinite(terms.data()[i])) continue;
    squares += terms.data()[i] * terms.data()[i];
    ++finite;
  }
  return finite == 0 ? 0 : std::sqrt(squares / finite);
}

// The element of the operand that is taken, where it is certain that this one is: of a maximum, where the other one
// lies farther below than it may be off, and is made of nothing that jumps.
Loose ExactElements::chosen(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  const bool selects = node.primitive == Primitive::kSelect;
  if (std::ranges::all_of(node.inputs.begin() + (selects ? 1 : 0), node.inputs.end(),
                          [&](NodeId input) { return known_.at(input).all; }))
    return everything();
  const auto loose_at = [&](std::size_t i) {
    const Loose& operand = known_.at(node.inputs[i]);
    return operand.elements ? operand.elements.expand(node.shape).on_host()
                            : Array::full(node.shape, operand.all ? 1 : 0);
  };
  std::vector<Array> values, loose;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    values.push_back(side_.replay.value(node.inputs[i]).expand(node.shape).on_host());
    loose.push_back(loose_at(i));
  }
  double slack = 0;
  if (!selects && is_float(node.result))
    for (NodeId input : node.inputs)
      if (!known_.at(input).none()) slack += slack_of(input);
  const Array result = side_.replay.computed(id).expand(node.shape).on_host();
  std::vector<bool> off(static_cast<std::size_t>(result.count()));
  for (std::int64_t i = 0; i < result.count(); ++i) {
    const auto at = [i](const Array& array) { return array.data()[i]; };
    const double x = at(result);
    bool exact = !is_float(node.result) || round_to(node.result, x) == x;  // It may be narrower than the operands.
    if (selects) {
      exact = exact && at(loose[0]) == 0 && at(loose[at(values[0]) != 0 ? 1 : 2]) == 0;
    } else if (at(loose[0]) != 0 || at(loose[1]) != 0) {
      const double a = at(values[0]), b = at(values[1]), reach = slack + std::fabs(a) + std::fabs(b);
      const bool first = (node.primitive == Primitive::kMax) == (a > b);
      exact = exact && at(loose[first ? 0 : 1]) == 0 && !turns_[node.inputs[first ? 1 : 0]] &&
              std::fabs(a - b) > relative_[id] * reach;
    }
    off[static_cast<std::size_t>(i)] = !exact;
  }
  return where(off, node.shape);
}

// The root of a sum of squares in any order, where that is a square.
Loose ExactElements::norm(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  const Array x = side_.replay.value(node.inputs[0]).materialize().on_host();
  const Loose& operand = known_.at(node.inputs[0]);
  if (operand.all) return everything();
  const Array away = operand.elements ? operand.elements.expand(x.shape()).materialize().on_host() : Array();
  Array squares = Array::uninitialized(x.shape()), grids = Array::uninitialized(x.shape());
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double value = x.data()[i];
    squares.data()[i] = value * value;
    const bool known = std::isfinite(value) && !(away && away.data()[i] != 0);
    grids.data()[i] = !known ? 0 : value == 0 ? HUGE_VAL : std::ldexp(1, 2 * bits_of(value).last);
  }
  const auto reduced = [&](Primitive primitive, const Array& of) {
    return traits(primitive).evaluate(node.attributes, node.shape, std::vector{of}).on_host();
  };
  const Array total = reduced(Primitive::kSum, squares), grid = reduced(Primitive::kAmin, grids);
  const Array root = side_.replay.computed(id).expand(node.shape).on_host();
  std::vector<bool> off(static_cast<std::size_t>(root.count()));
  for (std::int64_t i = 0; i < root.count(); ++i) {
    const double r = root.data()[i], sum = total.data()[i];
    const bool whole = grid.data()[i] >= smallest_normal(node.result) &&
                       sum <= std::ldexp(grid.data()[i], traits(node.result).precision);
    off[static_cast<std::size_t>(i)] = !whole || round_to(node.result, r) != r || std::fma(r, r, -sum) != 0;
  }
  return where(off, node.shape);
}

Loose ExactElements::decided(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  if (node.inputs.size() == 2 && node.inputs[0] == node.inputs[1]) return {};  // A number with itself.
  if (node.primitive == Primitive::kArgmax) return everything();
  if (node.primitive == Primitive::kArgsort) return ordered(id);
  Array operands;  // Where they are loose; empty: everywhere.
  if (!by_convention(id)) {
    const Loose loose = any_operand(id);
    if (loose.none()) return {};
    operands = loose.elements;
  }
  const Margins margins(side_, id, nullptr, relative_[id], operands);
  Array open = Array::zeros(node.shape);
  bool some = false;
  for (std::int64_t i = 0; i < open.count(); ++i) {
    open.data()[i] = margins.jump(i) > 0;
    some = some || open.data()[i] != 0;
  }
  return {false, some ? open : Array()};
}

// The position of a number that another one lies beside, no farther than both may be off, is that of either.
Loose ExactElements::ordered(NodeId id) const {
  const Node& node = side_.graph.nodes[id];
  const Array x = side_.replay.value(node.inputs[0]).on_host();
  const double slack = relative_[id] * slack_of(node.inputs[0]);
  const auto dim = static_cast<std::size_t>(node.attributes.dims[0]);
  const auto length = static_cast<std::size_t>(x.shape()[dim]), kept = static_cast<std::size_t>(node.shape[dim]);
  std::size_t inner = 1;
  for (std::size_t d = dim + 1; d < x.shape().size(); ++d) inner *= static_cast<std::size_t>(x.shape()[d]);
  std::vector<bool> off(static_cast<std::size_t>(count(node.shape)));
  std::vector<double> row(length);
  for (std::size_t r = 0; kept > 0 && r < off.size() / kept; ++r) {
    const std::size_t outer = r / inner, column = r % inner;
    for (std::size_t i = 0; i < length; ++i) row[i] = x.data()[(outer * length + i) * inner + column];
    if (std::ranges::any_of(row, [](double value) { return std::isnan(value); })) return everything();
    std::ranges::sort(row, std::greater());
    for (std::size_t i = 0; i < kept; ++i) {
      const auto apart = [&](std::size_t high) {
        const double size = std::fmax(std::fabs(row[high]), std::fabs(row[high + 1]));
        return row[high] - row[high + 1] > slack + relative_[id] * size;
      };
      off[(outer * kept + i) * inner + column] = (i > 0 && !apart(i - 1)) || (i + 1 < length && !apart(i));
    }
  }
  return where(off, node.shape);
}

// A sum of multiples of one power of two is exact in any order while the sum of magnitudes stays below 2^p of them, and
// none is so small that a device may flush it.
bool ExactElements::rounds_nowhere(NodeId id, const Array& magnitudes, double grid) const {
  const Node& node = side_.graph.nodes[id];
  if (!is_float(node.result)) return true;
  const Format format = node.attributes.narrow != Format::kUnknown ? node.attributes.narrow : node.result;
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
    if (sums(node.primitive)) magnitudes.push_back(magnitudes_of(value));
  }
  const Primitive carrier = node.primitive == Primitive::kAmin ? Primitive::kAmax : node.primitive;
  const auto carry = [&](const std::vector<Array>& values) {
    return traits(carrier).evaluate(node.attributes, node.shape, values).on_host();
  };
  Loose found;
  if (any) found.elements = carry(loose).materialize();
  if (!sums(node.primitive)) return found;
  const Array total = carry(magnitudes);
  if (rounds_nowhere(id, total, grid_of(magnitudes[0].on_host()))) return found;
  // Sums of zeros are exact whatever the others are.
  Array rounded = Array::uninitialized(node.shape);
  for (std::int64_t i = 0; i < total.count(); ++i)
    rounded.data()[i] = total.data()[i] != 0 || (found.elements && found.elements.data()[i] != 0);
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
    const Array value = side_.replay.value(input).on_host();
    if (has_long_number(value)) return everything();
    magnitudes.push_back(magnitudes_of(value));
    const double own = grid_of(value);
    if (!(largest(magnitudes.back()) <= std::ldexp(own, kOperandBits))) return everything();
    grid *= own;
  }
  const Array sums = traits(Primitive::kMatmul).evaluate(node.attributes, node.shape, magnitudes).on_host();
  return {!rounds_nowhere(id, sums, grid), Array()};
}

Unmoved unmoved_elements(const MatchSide& side, const std::vector<NodeId>& wanted) {
  const Graph& graph = side.graph;
  const std::vector<bool> read = ancestors(graph, wanted);
  std::vector<bool> trained(graph.nodes.size(), false);
  for (const GraphLeaf& leaf : graph.leaves) trained[leaf.node] = persistent(leaf.role);
  const std::vector<double> relative(graph.nodes.size(), kReplayError);
  const Freedoms none;
  ExactElements exact(side, none, relative);
  Unmoved found;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    for (NodeId input : node.inputs) trained[id] = trained[id] || trained[input];
    const bool rounds = !traits(node.primitive).bitwise || node.primitive == Primitive::kCast;
    if (!read[id] || trained[id] || !rounds || !is_float(node.result) || !side.replay.has(id)) continue;
    const Loose& loose = exact.of(id);
    if (!loose.all && holds(node.result, side.replay.computed(id))) found.emplace(id, loose.elements);
  }
  return found;
}

}  // namespace plumbline
