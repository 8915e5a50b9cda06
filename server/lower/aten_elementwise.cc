// Pointwise arithmetic, comparisons and choices (ATen: native/cpu/BinaryOpsKernel.cpp, UnaryOpsKernel.cpp).
#include <cmath>
#include <limits>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <Primitive primitive>
void lower_unary(Call& call) {
  call.returns(unary(primitive, call.tensor("self")));
}

template <Primitive primitive>
void lower_binary(Call& call) {
  call.returns(binary(primitive, call.operand("self"), call.operand("other")));
}

// The format that the operands of a sum are converted to: numbers and tensors without dimensions take the others'.
Format common_format(Call& call) {
  Format common = call.result_format();
  for (const char* name : {"self", "other"}) {
    if (!is_float(common) || !call.is_tensor(name)) continue;
    const Expr x = call.tensor(name);
    if (x.rank() > 0 && is_float(x.format())) common = promote(common, x.format());
  }
  return is_float(common) ? common : call.emitter().compute();
}

// x in `format`, where that holds less.
Expr narrowed(Expr x, Format format) {
  return is_float(x.format()) && traits(x.format()).precision > traits(format).precision ? cast(x, format) : x;
}

// An operand of a sum, times alpha where that is given and not 1: the product is rounded to the operands' own format
// unless the loop is vectorised.
Expr addend(Call& call, std::string_view name, bool scaled) {
  const Format own = common_format(call);
  const Expr x = narrowed(call.operand(name, own), own);
  if (!scaled || !call.has("alpha") || call.known_number("alpha") == 1.0) return x;
  return cast(narrowed(call.operand("alpha", own), own) * x, own);
}

void lower_add(Call& call) { call.returns(addend(call, "self", false) + addend(call, "other", true)); }
void lower_sub(Call& call) { call.returns(addend(call, "self", false) - addend(call, "other", true)); }
void lower_rsub(Call& call) { call.returns(addend(call, "other", false) - addend(call, "self", true)); }

// A Scalar, which foreach multiplies by in place, is rounded to the tensor's own format; a number that Python gives is
// not.
void lower_mul(Call& call) {
  std::optional<Format> own;
  if (call.overload() != "Tensor" && is_float(call.result_format())) own = call.result_format();
  call.returns(call.operand("self") * call.operand("other", own));
}

// Where a remainder with the sign of the dividend has not that of the divisor.
Expr opposite(Expr rest, Expr divisor) {
  const Expr zero = rest.emitter->constant(0);
  const Expr below = compare(Primitive::kLess, rest, zero), negative = compare(Primitive::kLess, divisor, zero);
  return logical_and(not_equal(rest, 0), compare(Primitive::kNotEqual, below, negative));
}

// Multiples of the divisor, a - fmod(a, b), are divided, each step rounded to the operands' own format
// (c10/util/generic_math.h).
Expr floor_quotient(Call& call, Expr a, Expr b) {
  const Format own = call.result_format();
  if (!is_float(own)) return unary(Primitive::kFloor, a / b);
  const Expr rest = binary(Primitive::kFmod, a, b);
  const Expr whole = unary(Primitive::kRound, cast(cast(a - rest, own) / b, own));
  return select(equal(b, 0), a / b, whole - opposite(rest, b));
}

void lower_div(Call& call) {
  const Expr self = call.operand("self"), other = call.operand("other");
  const std::string mode = call.text("rounding_mode", "");
  if (mode.empty()) {
    call.returns(self / other);
  } else if (mode == "floor") {
    call.returns(floor_quotient(call, self, other));
  } else {
    const Format own = call.result_format();
    call.returns(unary(Primitive::kTrunc, is_float(own) ? cast(self / other, own) : self / other));
  }
}

void lower_floor_divide(Call& call) { call.returns(floor_quotient(call, call.operand("self"), call.operand("other"))); }

// Python's modulo: the sign of the divisor.
void lower_remainder(Call& call) {
  const Expr a = call.operand("self"), b = call.operand("other");
  const Expr rest = binary(Primitive::kFmod, a, b);
  call.returns(rest + select(opposite(rest, b), b, call.emitter().constant(0)));
}

bool reduced_precision(Format format) { return format == Format::kFloat16 || format == Format::kBFloat16; }

// The root is rounded to the elements' format before it is inverted where the loop is not vectorised: measured by
// plumbline.calibrate on strided elements.
Expr inverse_root(Expr x) { return 1.0 / (reduced_precision(x.format()) ? cast(sqrt(x), x.format()) : sqrt(x)); }

void lower_rsqrt(Call& call) {
  const Expr self = call.tensor("self");
  call.returns(reduced_precision(self.format()) ? inverse_root(self) : unary(Primitive::kRsqrt, self));
}

// Exponents that the kernel knows are written out (native/cpu/PowKernel.cpp).
void lower_pow(Call& call) {
  const Expr base = call.operand("self");
  const auto known = call.known_number("exponent");
  if (!known) {
    call.returns(binary(Primitive::kPow, base, call.operand("exponent")));
    return;
  }
  const double exponent = *known;
  // In bf16 its loops multiply numbers of bf16, and round each product. In fp16 they hold fp32, whose range is wider.
  const auto squared = [&] {
    return base.format() == Format::kBFloat16 ? cast(base * base, base.format()) : base * base;
  };
  if (exponent == 0) {
    call.returns(expand(call.emitter().constant(1), base.shape()));
  } else if (exponent == 1) {
    call.returns(base);
  } else if (exponent == 2) {
    call.returns(base * base);
  } else if (exponent == 3) {
    call.returns(squared() * base);
  } else if (exponent == 0.5) {
    call.returns(sqrt(base));
  } else if (exponent == -0.5) {
    call.returns(inverse_root(base));
  } else if (exponent == -1) {
    call.returns(unary(Primitive::kReciprocal, base));
  } else if (exponent == -2) {
    call.returns(1.0 / squared());
  } else {
    // A number becomes one of the elements' format.
    call.returns(binary(Primitive::kPow, base, call.operand("exponent", call.result_format())));
  }
}

void lower_square(Call& call) { call.returns(square(call.tensor("self"))); }

// clamp(x) = min(max(x, low), high)
void lower_clamp(Call& call) {
  Expr x = call.tensor("self");
  if (call.has("min")) x = maximum(x, call.operand("min"));
  if (call.has("max")) x = minimum(x, call.operand("max"));
  call.returns(x);
}

void lower_lerp(Call& call) {
  const Expr self = call.tensor("self"), end = call.tensor("end"), weight = call.operand("weight");
  // ATen's lerp (native/Lerp.h) starts from the nearer end.
  if (std::fabs(call.known_number("weight").value_or(0)) >= 0.5) {
    call.returns(end - (end - self) * (1.0 - weight));
  } else {
    call.returns(self + weight * (end - self));
  }
}

void lower_addcmul(Call& call) {
  const Expr product = call.operand_or("value", 1) * call.tensor("tensor1") * call.tensor("tensor2");
  call.returns(call.tensor("self") + product);
}

void lower_addcdiv(Call& call) {
  const Expr quotient = call.operand_or("value", 1) * call.tensor("tensor1") / call.tensor("tensor2");
  call.returns(call.tensor("self") + quotient);
}

template <Primitive primitive>
void lower_compare(Call& call) {
  // A Python number takes the format of the tensor that it is compared with.
  const Expr self = call.tensor("self");
  const Format format = is_float(self.format()) ? self.format() : call.emitter().compute();
  call.returns(compare(primitive, self, call.operand("other", format)));
}

void lower_logical_not(Call& call) { call.returns(logical_not(call.tensor("self"))); }
void lower_logical_xor(Call& call) {
  call.returns(compare(Primitive::kNotEqual, not_equal(call.tensor("self"), 0), not_equal(call.operand("other"), 0)));
}

// Bitwise operations are modelled on booleans only, where they are the logical ones.
void require_boolean(Call& call) {
  if (call.result_format() != Format::kBool) call.unsupported("bitwise on integers");
}

void lower_bitwise_not(Call& call) {
  require_boolean(call);
  lower_logical_not(call);
}

template <Primitive primitive>
void lower_bitwise(Call& call) {
  require_boolean(call);
  lower_compare<primitive>(call);
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
  const Format format = call.result_format();
  const Expr a = call.operand("self", format), b = call.operand("other", format);
  call.returns(select(call.tensor("condition"), a, b));
}

void lower_masked_fill(Call& call) {
  const Expr value = call.operand("value", call.result_format());
  call.returns(select(call.tensor("mask"), value, call.tensor("self")));
}

}  // namespace

std::span<const Rule> elementwise_rules() {
  using enum Primitive;
  static const Rule kRules[] = {
      {"neg", {"default"}, lower_unary<kNeg>, kPointwise},
      {"abs", {"default"}, lower_unary<kAbs>, kPointwise},
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
      {"div", {"Tensor", "Scalar", "Tensor_mode", "Scalar_mode"}, lower_div, kPointwise},
      {"floor_divide", {"default", "Scalar"}, lower_floor_divide, kInPlace | kOut},
      {"remainder", {"Tensor", "Scalar"}, lower_remainder, kInPlace | kOut},
      {"fmod", {"Tensor", "Scalar"}, lower_binary<kFmod>, kInPlace | kOut},
      {"pow", {"Tensor_Scalar", "Tensor_Tensor", "Scalar"}, lower_pow, kPointwise},
      {"maximum", {"default"}, lower_binary<kMax>, kPointwise},
      {"minimum", {"default"}, lower_binary<kMin>, kPointwise},
      {"atan2", {"default"}, lower_binary<kAtan2>, kInPlace | kOut},
      {"max", {"other"}, lower_binary<kMax>},
      {"min", {"other"}, lower_binary<kMin>},
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
      {"bitwise_not", {"default"}, lower_bitwise_not, kInPlace | kOut | kObserved},
      {"bitwise_and", {"Tensor", "Scalar"}, lower_bitwise<kLogicalAnd>, kInPlace | kOut | kObserved},
      {"__and__", {"Tensor", "Scalar"}, lower_bitwise<kLogicalAnd>, kObserved},
      {"bitwise_or", {"Tensor", "Scalar"}, lower_bitwise<kLogicalOr>, kInPlace | kOut | kObserved},
      {"__or__", {"Tensor", "Scalar"}, lower_bitwise<kLogicalOr>, kObserved},
      {"bitwise_xor", {"Tensor", "Scalar"}, lower_bitwise<kNotEqual>, kInPlace | kOut | kObserved},
      {"isnan", {"default"}, lower_isnan},
      {"isinf", {"default"}, lower_isinf},
      {"isfinite", {"default"}, lower_isfinite},
      {"where", {"self", "ScalarOther", "ScalarSelf", "Scalar"}, lower_where},
      {"masked_fill", {"Scalar", "Tensor"}, lower_masked_fill, kInPlace},
  };
  return kRules;
}

}  // namespace plumbline
