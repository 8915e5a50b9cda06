// The elementwise primitives: one row each, of rules for everything that is known of it. Whole arrays (elementwise.cc,
// radius.cc, error.cc) and chains (kernels/chain.h, pullback.h) go by this table.
#pragma once

#include <stdexcept>
#include <type_traits>

#include "kernels/ball/scalar.h"
#include "kernels/primitive/primitive.h"
#include "kernels/primitive/rule/derivative.h"
#include "kernels/primitive/rule/error.h"
#include "kernels/primitive/rule/radius.h"

namespace plumbline::primitive::element {

// A row: what the primitive computes (ball/scalar.h), how it hands cotangents on, what it makes of its operands' balls,
// and how far its rounding moves it. A column that is missing does not compile.
template <Primitive kOf, int kOperands, class F, class DerivativeRule, class RadiusRule, class ErrorRule>
struct Element {
  static_assert(!std::is_same_v<DerivativeRule, Flat> || !kDifferentiable<F>);
  static constexpr Primitive kPrimitive = kOf;
  static constexpr int kArity = kOperands;
  using Value = F;
  using Derivative = DerivativeRule;
  using Radius = RadiusRule;
  using Error = ErrorRule;
};
template <Primitive kOf, class F, class D, class R, class E>
using Unary = Element<kOf, 1, F, D, R, E>;
template <Primitive kOf, class F, class D, class R, class E>
using Binary = Element<kOf, 2, F, D, R, E>;
template <Primitive kOf, class F, class D, class R, class E>
using Ternary = Element<kOf, 3, F, D, R, E>;

// Ends the computation: a primitive that is not elementwise has no row.
[[noreturn]] PLUMBLINE_HOST_DEVICE inline void no_row() {
#if defined(__CUDA_ARCH__)
  __trap();
#else
  throw std::logic_error("not an elementwise primitive");
#endif
}

// `visitor(Element<...>{})` of an elementwise primitive. The visitor's operators belong to one side.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Visitor>
PLUMBLINE_HOST_DEVICE constexpr auto visit(Primitive primitive, const Visitor& visitor) {
  using enum Primitive;
  namespace s = scalar;
  switch (primitive) {
    case kNeg:
      return visitor(Unary<kNeg, s::Neg, Slope, Lipschitz, Bitwise>{});
    case kAbs:
      return visitor(Unary<kAbs, s::Abs, Slope, Lipschitz, Bitwise>{});
    case kSign:
      return visitor(Unary<kSign, s::Sign, Flat, Step<s::Sign>, Bitwise>{});
    case kExp:
      return visitor(Unary<kExp, s::Exp, Slope, Gentle<s::Exp, 1>, Exponential>{});
    case kExpm1:
      return visitor(Unary<kExpm1, s::Expm1, Slope, Monotone<s::Expm1>, ByProfile<Function::kExpm1>>{});
    case kLog:
      return visitor(Unary<kLog, s::Log, Slope, Monotone<s::Log>, ByProfile<Function::kLog>>{});
    case kLog1p:
      return visitor(Unary<kLog1p, s::Log1p, Slope, Monotone<s::Log1p>, ByProfile<Function::kLog1p>>{});
    case kSqrt:
      return visitor(Unary<kSqrt, s::Sqrt, Slope, Monotone<s::Sqrt>, ByProfile<Function::kSqrt>>{});
    case kRsqrt:
      return visitor(Unary<kRsqrt, s::Rsqrt, Slope, Monotone<s::Rsqrt>, ByProfile<Function::kRsqrt>>{});
    case kReciprocal:
      return visitor(Unary<kReciprocal, s::Reciprocal, Slope, Inverse, ByProfile<Function::kDivide>>{});
    case kSin:
      return visitor(Unary<kSin, s::Sin, Slope, Lipschitz, ByProfile<Function::kSin>>{});
    case kCos:
      return visitor(Unary<kCos, s::Cos, Slope, Lipschitz, ByProfile<Function::kCos>>{});
    case kTanh:
      return visitor(Unary<kTanh, s::Tanh, Slope, Gentle<s::Tanh, 2>, ByProfile<Function::kTanh>>{});
    case kErf:
      return visitor(Unary<kErf, s::Erf, Slope, Monotone<s::Erf>, ByProfile<Function::kErf>>{});
    case kSigmoid:
      return visitor(Unary<kSigmoid, s::Sigmoid, Slope, Gentle<s::Sigmoid, 1>, ByProfile<Function::kSigmoid>>{});
    case kFloor:
      return visitor(Unary<kFloor, s::Floor, Flat, Step<s::Floor>, Bitwise>{});
    case kCeil:
      return visitor(Unary<kCeil, s::Ceil, Flat, Step<s::Ceil>, Bitwise>{});
    case kRound:
      return visitor(Unary<kRound, s::Round, Flat, Step<s::Round>, Bitwise>{});
    case kTrunc:
      return visitor(Unary<kTrunc, s::Trunc, Flat, Step<s::Trunc>, Bitwise>{});
    case kIsFinite:
      return visitor(Unary<kIsFinite, s::IsFinite, Flat, Finite, Bitwise>{});
    case kLogicalNot:
      return visitor(Unary<kLogicalNot, s::LogicalNot, Flat, Decision, Bitwise>{});
    case kCast:
      return visitor(Unary<kCast, s::Identity, Slope, Lipschitz, Bitwise>{});
    case kAdd:
      return visitor(Binary<kAdd, s::Add, Slopes, Sum, Addition<1>>{});
    case kSub:
      return visitor(Binary<kSub, s::Sub, Slopes, Sum, Addition<-1>>{});
    case kMul:
      return visitor(Binary<kMul, s::Mul, Slopes, Product, Multiplication>{});
    case kDiv:
      return visitor(Binary<kDiv, s::Div, QuotientSlopes, Quotient, Division>{});
    case kPow:
      return visitor(Binary<kPow, s::Pow, Slopes, Power, ByProfile<Function::kPow>>{});
    case kAtan2:
      return visitor(Binary<kAtan2, s::Atan2, Slopes, Angle, ByProfile<Function::kAtan2>>{});
    case kMax:
      return visitor(Binary<kMax, s::Maximum, Slopes, Extreme, Bitwise>{});
    case kMin:
      return visitor(Binary<kMin, s::Minimum, Slopes, Extreme, Bitwise>{});
    case kFmod:
      return visitor(Binary<kFmod, s::Fmod, Slopes, Remainder, BitwiseUnlessFlushed>{});
    case kLess:
      return visitor(Binary<kLess, s::Less, Flat, Comparison, Bitwise>{});
    case kLessEqual:
      return visitor(Binary<kLessEqual, s::LessEqual, Flat, Comparison, Bitwise>{});
    case kGreater:
      return visitor(Binary<kGreater, s::Greater, Flat, Comparison, Bitwise>{});
    case kGreaterEqual:
      return visitor(Binary<kGreaterEqual, s::GreaterEqual, Flat, Comparison, Bitwise>{});
    case kEqual:
      return visitor(Binary<kEqual, s::Equal, Flat, Comparison, Bitwise>{});
    case kNotEqual:
      return visitor(Binary<kNotEqual, s::NotEqual, Flat, Comparison, Bitwise>{});
    case kLogicalAnd:
      return visitor(Binary<kLogicalAnd, s::LogicalAnd, Flat, Decision, Bitwise>{});
    case kLogicalOr:
      return visitor(Binary<kLogicalOr, s::LogicalOr, Flat, Decision, Bitwise>{});
    case kSelect:
      return visitor(Ternary<kSelect, s::Select, ChosenSlope, Choice, Bitwise>{});
    default:
      break;  // Not elementwise: `complete` shows below that every elementwise primitive has its row.
  }
  no_row();
}

struct PrimitiveOf {
  template <class E>
  PLUMBLINE_HOST_DEVICE constexpr Primitive operator()(E) const {
    return E::kPrimitive;
  }
};
constexpr bool complete() {
  for (auto p = Primitive::kLeaf; p < Primitive::kCount; p = static_cast<Primitive>(static_cast<int>(p) + 1))
    if (is_elementwise(p) && visit(p, PrimitiveOf{}) != p) return false;
  return true;
}
static_assert(complete());

struct HandsOn {
  int operand;
  template <class E>
  PLUMBLINE_HOST_DEVICE constexpr bool operator()(E) const {
    return E::Derivative::hands_on(operand);
  }
};
// Whether a cotangent passes to this operand.
PLUMBLINE_HOST_DEVICE constexpr bool hands_on(Primitive primitive, int operand) {
  return visit(primitive, HandsOn{operand});
}

struct IsFlat {
  template <class E>
  PLUMBLINE_HOST_DEVICE constexpr bool operator()(E) const {
    return std::is_same_v<typename E::Derivative, Flat>;
  }
};
// Whether it is an elementwise decision or step.
constexpr bool flat(Primitive primitive) { return is_elementwise(primitive) && visit(primitive, IsFlat{}); }

// What operand `kOperand` of an E is handed of its cotangent g.
template <class E, int kOperand>
struct HandedOn {
  PLUMBLINE_HOST_DEVICE double operator()(double g, double a, double b, double t) const {
    if constexpr (E::Derivative::hands_on(kOperand)) {
      return E::Derivative::template handed_on<typename E::Value, kOperand>(g, a, b, t);
    } else {
      return 0.0;
    }
  }
};

LocalError local_error(Primitive primitive, const Attributes& attributes, const Arithmetic& arithmetic);
// Operands below it are flushed to zero; 0: none are.
double flushed_below(Primitive primitive, const Arithmetic& arithmetic);

}  // namespace plumbline::primitive::element
