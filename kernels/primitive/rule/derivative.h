// How an elementwise primitive hands a cotangent g to one of its operands (vector-Jacobian product): one rule for each
// form that its derivative has. a, b: its first operands; t: its result.
//
// A derivative that is unbounded is infinite; 0 * infinity is 0 only where g is exactly 0.
#pragma once

#include "kernels/ball/scalar.h"

namespace plumbline::primitive::element {

template <class F>
inline constexpr bool kDifferentiable = requires {
  &F::derivative;
}
|| requires { &F::first; };

// Decisions and steps: no cotangent passes.
struct Flat {
  static constexpr bool hands_on(int) { return false; }
};

// A function of one operand, by its value's derivative.
struct Slope {
  static constexpr bool hands_on(int) { return true; }
  template <class F, int kOperand>
  PLUMBLINE_HOST_DEVICE static double handed_on(double g, double a, double, double t) {
    return scalar::pull(g, F::derivative(a, t));
  }
};

// A function of two operands, by its value's partial derivatives.
struct Slopes {
  static constexpr bool hands_on(int) { return true; }
  template <class F, int kOperand>
  PLUMBLINE_HOST_DEVICE static double handed_on(double g, double a, double b, double t) {
    if constexpr (kOperand == 0) {
      return scalar::pull(g, F::first(a, b, t));
    } else {
      return scalar::pull(g, F::second(a, b, t));
    }
  }
};

// A quotient's slopes are worked out as g / b, which may be finite where 1 / b overflows.
struct QuotientSlopes {
  static constexpr bool hands_on(int) { return true; }
  template <class F, int kOperand>
  PLUMBLINE_HOST_DEVICE static double handed_on(double g, double, double b, double t) {
    const double of_first = g / b, of_second = -g * t / b;
    return g == 0 ? 0.0 : kOperand == 0 ? of_first : of_second;
  }
};

// To the side that was taken; the condition is a decision.
struct ChosenSlope {
  static constexpr bool hands_on(int operand) { return operand != 0; }
  template <class F, int kOperand>
  PLUMBLINE_HOST_DEVICE static double handed_on(double g, double condition, double, double) {
    return (condition != 0) == (kOperand == 1) ? g : 0.0;
  }
};

}  // namespace plumbline::primitive::element
