// Pointwise arithmetic, comparisons and choices (ATen: native/cpu/BinaryOpsKernel.cpp, UnaryOpsKernel.cpp).
#include <cmath>
#include <limits>

#include "server/lower/integer.h"
#include "server/lower/operands.h"
#include "server/lower/registry.h"

namespace plumbline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <Primitive primitive>
void lower_unary(Call& call) {
  call.returns(unary(primitive, call.tensor("self")));
}

// Whether these are integers that fp64 does not hold.
bool beyond_exact(Expr x) { return is_integer(x.format()) && !x.emitter->ranges().of(x.id).exact(); }
bool beyond_exact(Expr a, Expr b) {
  return is_integer(a.format()) && is_integer(b.format()) && (beyond_exact(a) || beyond_exact(b));
}

Expr negative(Expr x) {
  return beyond_exact(x) ? whole_difference(x.emitter->constant(0, x.format()), x, x.format()) : -x;
}
void lower_neg(Call& call) { call.returns(negative(call.tensor("self"))); }
void lower_abs(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(beyond_exact(x) ? select(x < 0.0, negative(x), x) : abs(x));
}

// The larger (kMax) or the smaller of two numbers.
Expr extreme(Primitive primitive, Expr a, Expr b) {
  if (!beyond_exact(a, b)) return binary(primitive, a, b);
  const Expr first = long_compare(primitive == Primitive::kMax ? Primitive::kGreater : Primitive::kLess, a, b);
  const Shape shape = first.shape();
  return select(first, expand(a, shape), expand(b, shape));
}
template <Primitive primitive>
void lower_extreme(Call& call) {
  call.returns(extreme(primitive, call.tensor("self"), call.operand("other")));  // Lists take a number.
}

bool gives_integers(Call& call) { return is_integer(call.result_format()) && call.result_format() != Format::kBool; }

Expr operand_of(Call& call, std::string_view name) { return held(call, name, common_format(call)); }

// An operand of a sum, times alpha where that is given and not 1: the product is rounded to the operands' own format
// unless the loop is vectorised.
Expr addend(Call& call, std::string_view name, bool scaled) {
  const Format own = common_format(call);
  const Expr x = narrowed(call.operand(name, own), own);
  if (!scaled || !call.has("alpha") || call.known_number("alpha") == 1.0) return x;
  if (gives_integers(call)) return whole_product(call.operand("alpha", own), x, call.result_format());
  return cast(narrowed(call.operand("alpha", own), own) * x, own);
}

Expr sum_of(Call& call, Expr a, Expr b) { return gives_integers(call) ? whole_sum(a, b, call.result_format()) : a + b; }
Expr difference_of(Call& call, Expr a, Expr b) {
  return gives_integers(call) ? whole_difference(a, b, call.result_format()) : a - b;
}
Expr product_of(Call& call, Expr a, Expr b) {
  return gives_integers(call) ? whole_product(a, b, call.result_format()) : a * b;
}

void lower_add(Call& call) { call.returns(sum_of(call, addend(call, "self", false), addend(call, "other", true))); }
void lower_sub(Call& call) {
  call.returns(difference_of(call, addend(call, "self", false), addend(call, "other", true)));
}
void lower_rsub(Call& call) {
  call.returns(difference_of(call, addend(call, "other", false), addend(call, "self", true)));
}

// A Scalar, which foreach multiplies by in place, is rounded to the tensor's own format; a number that Python gives is
// not.
void lower_mul(Call& call) {
  std::optional<Format> own;
  if (call.overload() != "Tensor" && is_float(call.result_format())) own = call.result_format();
  const Format common = common_format(call);
  call.returns(product_of(call, held(call, "self", common), held_on_the_right(call, "other", common, own)));
}

// Where a remainder with the sign of the dividend has not that of the divisor.
Expr opposite(Expr rest, Expr divisor) {
  const Expr zero = rest.emitter->constant(0);
  const Expr below = compare(Primitive::kLess, rest, zero), negative = compare(Primitive::kLess, divisor, zero);
  return logical_and(not_equal(rest, 0), compare(Primitive::kNotEqual, below, negative));
}

void require_exact(Call& call, Expr x) {
  if (beyond_exact(x)) call.unsupported("integers beyond 2^53");
}

// An operand of a kernel that rounds numbers like any other.
Expr rounded_operand(Call& call, std::string_view name, Format common) {
  return narrowed(call.operand(name, common), common);
}

// A remainder's divisor.
Expr divisor_of(Call& call) {
  const Format common = common_format(call);
  return reduced_precision(common) ? rounded_operand(call, "other", common) : operand_of(call, "other");
}

template <Primitive primitive>
void lower_binary(Call& call) {
  const Expr a = operand_of(call, "self"),
             b = primitive == Primitive::kFmod ? divisor_of(call) : operand_of(call, "other");
  if (primitive == Primitive::kFmod) require_exact(call, a);
  call.returns(binary(primitive, a, b));
}

// Multiples of the divisor, a - fmod(a, b), are divided, each step rounded to the operands' own format
// (c10/util/generic_math.h).
Expr floor_quotient(Call& call, Expr a, Expr b) {
  const Format own = call.result_format();
  if (!is_float(own)) {
    const auto divisor = call.known_number("other");
    const double power = divisor && *divisor >= 1 ? std::log2(*divisor) : 0.5;
    if (beyond_exact(a) && power == std::trunc(power)) return shifted_right(a, static_cast<int>(power), own);
    require_exact(call, a);
    return unary(Primitive::kFloor, a / b);
  }
  const Expr rest = binary(Primitive::kFmod, a, b);
  const Expr whole = unary(Primitive::kRound, cast(cast(a - rest, own) / b, own));
  return select(equal(b, 0), a / b, whole - opposite(rest, b));
}

void lower_div(Call& call) {
  const Expr self = operand_of(call, "self"), other = held_on_the_right(call, "other", common_format(call));
  const std::string mode = call.text("rounding_mode", "");
  if (mode.empty()) {
    call.returns(self / other);
  } else if (mode == "floor") {
    call.returns(floor_quotient(call, self, other));
  } else {
    const Format own = call.result_format();
    require_exact(call, self);
    call.returns(unary(Primitive::kTrunc, is_float(own) ? cast(self / other, own) : self / other));
  }
}

void lower_floor_divide(Call& call) {
  const Expr other = held_on_the_right(call, "other", common_format(call));
  call.returns(floor_quotient(call, operand_of(call, "self"), other));
}

// Python's modulo: the sign of the divisor.
void lower_remainder(Call& call) {
  const Expr a = operand_of(call, "self"), b = divisor_of(call);
  if (beyond_exact(a)) {
    const auto divisor = call.known_number("other");
    if (!divisor) call.unsupported("integers beyond 2^53");
    call.returns(long_remainder(a, *divisor));
    return;
  }
  const Expr rest = binary(Primitive::kFmod, a, b);
  call.returns(rest + select(opposite(rest, b), b, call.emitter().constant(0)));
}

// The root is rounded to the elements' format before it is inverted where the loop is not vectorised: measured by
// plumbline.calibrate on strided elements.
Expr inverse_root(Expr x) { return 1.0 / (reduced_precision(x.format()) ? cast(sqrt(x), x.format()) : sqrt(x)); }

void lower_rsqrt(Call& call) {
  const Expr self = call.tensor("self");
  call.returns(reduced_precision(self.format()) ? inverse_root(self) : unary(Primitive::kRsqrt, self));
}

// Exponents that the kernel knows are written out (native/cpu/PowKernel.cpp).
void lower_pow(Call& call) {
  const Format common = common_format(call, {"self", "exponent"});
  const Expr base = is_float(call.result_format()) ? rounded_operand(call, "self", common) : call.operand("self");
  const auto known = call.known_number("exponent");
  if (!known) {
    const Expr power = call.operand("exponent");
    call.returns(binary(Primitive::kPow, base, is_float(call.result_format()) ? narrowed(power, common) : power));
    return;
  }
  const double exponent = *known;
  // In bf16 its loops multiply numbers of bf16, and round each product. In fp16 they hold fp32, whose range is wider.
  const auto times = [&](Expr a, Expr b) { return product_of(call, a, b); };
  const auto squared = [&] {
    if (gives_integers(call)) return times(base, base);
    return base.format() == Format::kBFloat16 ? cast(base * base, base.format()) : base * base;
  };
  if (exponent == 0) {
    call.returns(expand(call.emitter().constant(1), base.shape()));
  } else if (exponent == 1) {
    call.returns(base);
  } else if (exponent == 2) {
    call.returns(times(base, base));
  } else if (exponent == 3) {
    call.returns(times(squared(), base));
  } else if (exponent == 0.5) {
    call.returns(sqrt(base));
  } else if (exponent == -0.5) {
    call.returns(inverse_root(base));
  } else if (exponent == -1) {
    call.returns(unary(Primitive::kReciprocal, base));
  } else if (exponent == -2) {
    call.returns(1.0 / squared());
  } else {
    // A number becomes one of the elements' format in loops that are vectorised; in others, as for a tensor's last
    // elements, it stays as it is (native/cpu/PowKernel.cpp).
    const Format own = call.result_format();
    const double off = is_float(own) ? std::fabs(exponent - round_to(own, exponent)) : 0;
    const bool moves = off > 0 && std::isfinite(off);
    call.returns(binary(Primitive::kPow, base,
                        moves ? call.emitter().inexact_constant(exponent, off, own) : call.operand("exponent", own)));
  }
}

void lower_square(Call& call) { call.returns(product_of(call, call.tensor("self"), call.tensor("self"))); }

// clamp(x) = min(max(x, low), high)
void lower_clamp(Call& call) {
  Expr x = call.tensor("self");
  if (call.has("min")) x = extreme(Primitive::kMax, x, call.operand("min"));
  if (call.has("max")) x = extreme(Primitive::kMin, x, call.operand("max"));
  call.returns(x);
}

void lower_lerp(Call& call) {
  const Format common = common_format(call, {"self", "end", "weight"});
  const Expr self = held(call, "self", common), end = held(call, "end", common), weight = held(call, "weight", common);
  // ATen's lerp (native/Lerp.h) starts from the nearer end.
  if (std::fabs(call.known_number("weight").value_or(0)) >= 0.5) {
    call.returns(end - (end - self) * (1.0 - weight));
  } else {
    call.returns(self + weight * (end - self));
  }
}

void lower_addcmul(Call& call) {
  const Format common = common_format(call, {"self", "tensor1", "tensor2"});
  const Expr scaled = call.operand_or("value", 1) * held(call, "tensor1", common);
  call.returns(held(call, "self", common) + scaled * held(call, "tensor2", common));
}

void lower_addcdiv(Call& call) {
  const Format common = common_format(call, {"self", "tensor1", "tensor2"});
  const Expr scaled = call.operand_or("value", 1) * held(call, "tensor1", common);
  call.returns(held(call, "self", common) + scaled / held(call, "tensor2", common));
}

template <Primitive primitive>
void lower_compare(Call& call) {
  constexpr bool logical = primitive == Primitive::kLogicalAnd || primitive == Primitive::kLogicalOr;
  const Format common = compared_format(call);
  Expr self = call.tensor("self"), other = call.operand("other", common);
  if (!logical) {
    self = narrowed(self, common);
    other = narrowed(other, common);
  }
  call.returns(!logical && beyond_exact(self, other) ? long_compare(primitive, self, other)
                                                     : compare(primitive, self, other));
}

void lower_logical_not(Call& call) { call.returns(logical_not(call.tensor("self"))); }
void lower_logical_xor(Call& call) {
  call.returns(compare(Primitive::kNotEqual, not_equal(call.tensor("self"), 0), not_equal(call.operand("other"), 0)));
}

// On booleans bitwise operations are the logical ones.
void lower_bitwise_not(Call& call) {
  if (gives_integers(call)) {
    call.returns(bitwise_not(call.tensor("self"), call.result_format()));
  } else {
    lower_logical_not(call);
  }
}

template <Primitive primitive, Bits kind>
void lower_bitwise(Call& call) {
  if (gives_integers(call)) {
    call.returns(bitwise(kind, call.operand("self"), call.operand("other"), call.result_format()));
  } else {
    lower_compare<primitive>(call);
  }
}

template <bool left>
void lower_shift(Call& call) {
  const Expr x = call.operand("self");
  const auto by = call.known_number("other");
  if (!gives_integers(call) || !by) call.unsupported("shifts by a tensor");
  const Format format = call.result_format();
  const int bits = static_cast<int>(*by);
  if (!left) {
    call.returns(shifted_right(x, bits, format));
    return;
  }
  if (bits < 0 || bits >= width_of(format)) call.unsupported("a shift by more bits than there are");
  const auto factor = static_cast<std::int64_t>(std::uint64_t{1} << bits);
  call.returns(whole_product(x, whole_constant(call.emitter(), factor, format), format));
}

void lower_isnan(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(compare(Primitive::kNotEqual, x, x));
}

void lower_isinf(Call& call) { call.returns(equal(abs(call.tensor("self")), kInfinity)); }

void lower_isfinite(Call& call) {
  const Expr made = unary(Primitive::kIsFinite, call.tensor("self"));
  call.emitter().graph().nodes[made.id].result = Format::kBool;
  call.returns(made);
}

// Numbers that are copied, not computed with, are rounded to the result's format at once.
void lower_where(Call& call) {
  const Expr a = call.stored("self"), b = call.stored("other");
  call.returns(select(call.tensor("condition"), a, b));
}

void lower_masked_fill(Call& call) {
  call.returns(select(call.tensor("mask"), call.stored("value"), call.tensor("self")));
}

}  // namespace

std::span<const Rule> elementwise_rules() {
  using enum Primitive;
  static const Rule kRules[] = {
      {"neg", {"default"}, lower_neg, kPointwise},
      {"abs", {"default"}, lower_abs, kPointwise},
      {"sign", {"default"}, lower_unary<kSign>, kPointwise, DecisionKind::kResult},
      {"sgn", {"default"}, lower_unary<kSign>, kPointwise, DecisionKind::kResult},
      {"exp", {"default"}, lower_unary<kExp>, kPointwise},
      {"expm1", {"default"}, lower_unary<kExpm1>, kPointwise},
      {"log", {"default"}, lower_unary<kLog>, kPointwise},
      {"log1p", {"default"}, lower_unary<kLog1p>, kPointwise},
      {"sqrt", {"default"}, lower_unary<kSqrt>, kPointwise},
      {"rsqrt", {"default"}, lower_rsqrt, kPointwise},
      {"reciprocal", {"default"}, lower_unary<kReciprocal>, kPointwise},
      {"sin", {"default"}, lower_unary<kSin>, kPointwise},
      {"cos", {"default"}, lower_unary<kCos>, kPointwise},
      {"erf", {"default"}, lower_unary<kErf>, kPointwise},
      {"floor", {"default"}, lower_unary<kFloor>, kPointwise, DecisionKind::kResult},
      {"ceil", {"default"}, lower_unary<kCeil>, kPointwise, DecisionKind::kResult},
      {"round", {"default"}, lower_unary<kRound>, kPointwise, DecisionKind::kResult},
      {"trunc", {"default"}, lower_unary<kTrunc>, kPointwise, DecisionKind::kResult},
      {"square", {"default"}, lower_square, kInPlace | kOut},
      {"add", {"Tensor", "Scalar"}, lower_add, kPointwise},
      {"sub", {"Tensor", "Scalar"}, lower_sub, kPointwise},
      {"rsub", {"Tensor", "Scalar"}, lower_rsub},
      {"mul", {"Tensor", "Scalar"}, lower_mul, kPointwise},
      {"div", {"Tensor", "Scalar"}, lower_div, kPointwise},
      {"div", {"Tensor_mode", "Scalar_mode"}, lower_div, kInPlace | kOut, DecisionKind::kResult},
      {"floor_divide", {"default", "Scalar"}, lower_floor_divide, kInPlace | kOut},
      {"remainder", {"Tensor", "Scalar"}, lower_remainder, kInPlace | kOut},
      {"fmod", {"Tensor", "Scalar"}, lower_binary<kFmod>, kInPlace | kOut},
      {"pow", {"Tensor_Scalar", "Tensor_Tensor", "Scalar"}, lower_pow, kPointwise},
      {"maximum", {"default"}, lower_extreme<kMax>, kPointwise},
      {"minimum", {"default"}, lower_extreme<kMin>, kPointwise},
      {"atan2", {"default"}, lower_binary<kAtan2>, kInPlace | kOut},
      {"max", {"other"}, lower_extreme<kMax>},
      {"min", {"other"}, lower_extreme<kMin>},
      {"clamp", {"default", "Tensor"}, lower_clamp, kInPlace | kOut},
      {"clamp_min", {"default", "Tensor"}, lower_clamp, kPointwise},
      {"clamp_max", {"default", "Tensor"}, lower_clamp, kPointwise},
      {"lerp", {"Scalar", "Tensor"}, lower_lerp, kPointwise},
      {"addcmul", {"default"}, lower_addcmul, kPointwise},
      {"addcdiv", {"default"}, lower_addcdiv, kPointwise},
      {"lt", {"Tensor", "Scalar"}, lower_compare<kLess>, kOut, DecisionKind::kResult},
      {"le", {"Tensor", "Scalar"}, lower_compare<kLessEqual>, kOut, DecisionKind::kResult},
      {"gt", {"Tensor", "Scalar"}, lower_compare<kGreater>, kOut, DecisionKind::kResult},
      {"ge", {"Tensor", "Scalar"}, lower_compare<kGreaterEqual>, kOut, DecisionKind::kResult},
      {"eq", {"Tensor", "Scalar"}, lower_compare<kEqual>, kOut, DecisionKind::kResult},
      {"ne", {"Tensor", "Scalar"}, lower_compare<kNotEqual>, kOut, DecisionKind::kResult},
      {"logical_not", {"default"}, lower_logical_not, kInPlace | kOut},
      {"logical_and", {"default"}, lower_compare<kLogicalAnd>, kInPlace | kOut},
      {"logical_or", {"default"}, lower_compare<kLogicalOr>, kInPlace | kOut},
      {"logical_xor", {"default"}, lower_logical_xor, kInPlace | kOut},
      {"bitwise_not", {"default"}, lower_bitwise_not, kInPlace | kOut},
      {"bitwise_and", {"Tensor", "Scalar"}, lower_bitwise<kLogicalAnd, Bits::kAnd>, kInPlace | kOut | kObserved},
      {"__and__", {"Tensor", "Scalar"}, lower_bitwise<kLogicalAnd, Bits::kAnd>, kObserved},
      {"bitwise_or", {"Tensor", "Scalar"}, lower_bitwise<kLogicalOr, Bits::kOr>, kInPlace | kOut | kObserved},
      {"__or__", {"Tensor", "Scalar"}, lower_bitwise<kLogicalOr, Bits::kOr>, kObserved},
      {"bitwise_xor", {"Tensor", "Scalar"}, lower_bitwise<kNotEqual, Bits::kExclusiveOr>, kInPlace | kOut | kObserved},
      {"__xor__", {"Tensor", "Scalar"}, lower_bitwise<kNotEqual, Bits::kExclusiveOr>, kObserved},
      {"bitwise_left_shift", {"Tensor", "Tensor_Scalar"}, lower_shift<true>, kInPlace | kOut | kObserved},
      {"__lshift__", {"Tensor", "Scalar"}, lower_shift<true>, kObserved},
      {"bitwise_right_shift", {"Tensor", "Tensor_Scalar"}, lower_shift<false>, kInPlace | kOut | kObserved},
      {"__rshift__", {"Tensor", "Scalar"}, lower_shift<false>, kObserved},
      {"isnan", {"default"}, lower_isnan},
      {"isinf", {"default"}, lower_isinf},
      {"isfinite", {"default"}, lower_isfinite},
      {"where", {"self", "ScalarOther", "ScalarSelf", "Scalar"}, lower_where},
      {"masked_fill", {"Scalar", "Tensor"}, lower_masked_fill, kInPlace},
  };
  return kRules;
}

}  // namespace plumbline
