// How an elementwise primitive hands a cotangent g to one of its operands, element by element (vector-Jacobian
// product): chains (kernels/pullback.h) and whole arrays (elementwise.cc) go by it.
#pragma once

#include "kernels/primitive/element.h"

namespace plumbline::primitive::element {

// Decisions and steps: no cotangent passes.
constexpr bool flat(Primitive primitive) {
  using enum Primitive;
  return primitive == kSign || (primitive >= kFloor && primitive <= kLogicalNot) ||
         (primitive >= kLess && primitive <= kLogicalOr);
}
// Whether a cotangent passes to this operand.
constexpr bool hands_on(Primitive primitive, int operand) {
  return !flat(primitive) && !(primitive == Primitive::kSelect && operand == 0);
}

// To operand `kOperand` of an E whose first operands are a and b and whose result is t. A derivative that is unbounded
// is infinite; 0 * infinity is 0 only where g is exactly 0.
template <class E, int kOperand>
struct HandedOn {
  PLUMBLINE_HOST_DEVICE double operator()(double g, double a, [[maybe_unused]] double b, double t) const {
    using F = typename E::Value;
    if constexpr (!hands_on(E::kPrimitive, kOperand)) {
      return 0.0;
    } else if constexpr (E::kPrimitive == Primitive::kSelect) {
      return (a != 0) == (kOperand == 1) ? g : 0.0;
    } else if constexpr (E::kPrimitive == Primitive::kDiv) {  // Where 1 / b overflows, g / b may not.
      const double of_first = g / b, of_second = -g * t / b;
      return g == 0 ? 0.0 : kOperand == 0 ? of_first : of_second;
    } else if constexpr (E::kArity == 1) {
      return scalar::pull(g, F::derivative(a, t));
    } else if constexpr (kOperand == 0) {
      return scalar::pull(g, F::first(a, b, t));
    } else {
      return scalar::pull(g, F::second(a, b, t));
    }
  }
};

}  // namespace plumbline::primitive::element
