// Signs, infinities and missing numbers (ATen: native/cpu/BinaryOpsKernel.cpp, UnaryOpsKernel.cpp,
// native/ReduceOps.cpp).
#include <cmath>
#include <limits>
#include <numbers>

#include "server/lower/integer.h"
#include "server/lower/operands.h"
#include "server/lower/registry.h"

namespace plumbline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Expr is_nan(Expr x) { return compare(Primitive::kNotEqual, x, x); }

// The reciprocal of a zero tells its sign.
Expr is_negative(Expr x) {
  if (is_integer(x.format())) return x < 0.0;
  const ComputeIn exactly(*x.emitter, Format::kFloat64);
  const Expr zero = equal(x, 0);
  const Expr reciprocal = unary(Primitive::kReciprocal, select(zero, x, x.emitter->constant(1)));
  return logical_or(x < 0.0, logical_and(zero, reciprocal < 0.0));
}

void lower_signbit(Call& call) { call.returns(is_negative(call.tensor("self"))); }

void lower_copysign(Call& call) {
  const Expr size = abs(call.operand("self")), other = call.operand("other", call.result_format());
  call.returns(select(is_negative(other), -size, size));
}

template <int sign>
void lower_is_infinite(Call& call) {
  call.returns(equal(call.tensor("self"), sign * kInfinity));
}

void lower_nan_to_num(Call& call) {
  const Expr x = call.tensor("self");
  if (!is_float(x.format())) {
    call.returns(x);
    return;
  }
  Emitter& emitter = call.emitter();
  const double most = largest_finite(x.format());
  const auto given = [&](const char* name, double otherwise) {
    return call.has(name) ? call.stored(name) : emitter.constant(otherwise, x.format());
  };
  const Expr above = select(equal(x, kInfinity), given("posinf", most), x);
  const Expr below = select(equal(x, -kInfinity), given("neginf", -most), above);
  call.returns(select(is_nan(x), given("nan", 0), below));
}

// The larger (kMax) or the smaller of the operands that are numbers.
template <Primitive primitive>
void lower_extreme_number(Call& call) {
  const Expr a = call.tensor("self"), b = call.tensor("other");
  if (!is_float(call.result_format())) {
    call.returns(binary(primitive, a, b));
    return;
  }
  call.returns(select(is_nan(a), b, select(is_nan(b), a, binary(primitive, a, b))));
}

// 0 below 0, 1 above, and at 0 what is given.
void lower_heaviside(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(select(equal(x, 0), call.tensor("values"), cast(x > 0.0, call.result_format())));
}

// The larger of both times sqrt(1 + the square of their quotient).
void lower_hypot(Call& call) {
  const Format common = common_format(call);
  const Expr a = abs(held(call, "self", common)), b = abs(held(call, "other", common));
  const Expr large = maximum(a, b), small = minimum(a, b), one = call.emitter().constant(1);
  const Expr quotient = small / select(equal(large, 0), one, large);
  const Expr finite = large * sqrt(1.0 + square(quotient));
  call.returns(select(equal(large, kInfinity), large, finite));
}

void lower_ldexp(Call& call) {
  const Expr two = call.emitter().constant(2);
  call.returns(call.tensor("self") * binary(Primitive::kPow, two, call.tensor("other")));
}

// The angle of a real number is 0, or pi below 0.
void lower_angle(Call& call) {
  const Expr x = call.operand("self");
  Emitter& emitter = call.emitter();
  const Expr turned = select(x < 0.0, emitter.constant(std::numbers::pi), emitter.constant(0));
  call.returns(is_float(x.format()) ? select(is_nan(x), x, turned) : turned);
}

// To a number of decimals: x 10^d is rounded to an integer, each step in the elements' own format.
void lower_round_decimals(Call& call) {
  const Expr x = call.tensor("self");
  const auto decimals = static_cast<double>(call.integer("decimals", 0));
  if (!is_float(x.format()) || std::fabs(decimals) > 300) call.unsupported("decimals of integers");
  const ComputeIn own(call.emitter(), call.result_format());
  const double power = std::pow(10.0, std::fabs(decimals));
  const Expr code = unary(Primitive::kRound, decimals >= 0 ? x * power : x / power);
  call.returns(decimals >= 0 ? code / power : code * power);
  call.decides_code(code, {decimals >= 0 ? 1 / power : power, -kInfinity, kInfinity});
}

}  // namespace

std::span<const Rule> sign_rules() {
  using enum Primitive;
  static const Rule kRules[] = {
      {"signbit", {"default"}, lower_signbit, kOut},
      {"copysign", {"Tensor", "Scalar"}, lower_copysign, kInPlace | kOut},
      {"isposinf", {"default"}, lower_is_infinite<1>, kOut},
      {"isneginf", {"default"}, lower_is_infinite<-1>, kOut},
      {"nan_to_num", {"default"}, lower_nan_to_num, kInPlace | kOut},
      {"fmax", {"default"}, lower_extreme_number<kMax>, kOut},
      {"fmin", {"default"}, lower_extreme_number<kMin>, kOut},
      {"heaviside", {"default"}, lower_heaviside, kInPlace | kOut},
      {"hypot", {"default"}, lower_hypot, kInPlace | kOut},
      {"ldexp", {"Tensor"}, lower_ldexp, kInPlace | kOut},
      {"angle", {"default"}, lower_angle, kOut},
      {"round", {"decimals"}, lower_round_decimals, kInPlace | kOut, DecisionKind::kResult},
  };
  return kRules;
}

}  // namespace plumbline
