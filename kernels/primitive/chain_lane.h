// One element of one step of a chain (kernels/chain.h), as a device does it. The host's blocks (cpu/chain.h) do the
// same.
#pragma once

#include <cmath>

#include "kernels/chain.h"

namespace plumbline::primitive::chain {

#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class E>
PLUMBLINE_HOST_DEVICE double value_of(const double (&x)[3]) {
  using F = typename E::Value;
  if constexpr (E::kArity == 1) return F::value(x[0]);
  if constexpr (E::kArity == 2) return F::value(x[0], x[1]);
  if constexpr (E::kArity == 3) return F::value(x[0], x[1], x[2]);
}

// What the balls make of the result t.
template <class E>
PLUMBLINE_HOST_DEVICE double carried_of(const double (&x)[3], const double (&r)[3], double t) {
  using R = typename E::Radius;
  double carried = 0;
  if constexpr (E::kArity == 1) carried = R::radius(x[0], r[0], t);
  if constexpr (E::kArity == 2) carried = R::radius(x[0], r[0], x[1], r[1], t);
  if constexpr (E::kArity == 3) carried = R::radius(x[0], r[0], x[1], r[1], x[2], r[2], t);
  return up(carried);
}

struct ValueOf {
  const double (&x)[3];
  template <class E>
  PLUMBLINE_HOST_DEVICE double operator()(E) const {
    return value_of<E>(x);
  }
};
struct CarriedOf {
  const double (&x)[3];
  const double (&r)[3];
  double t;
  template <class E>
  PLUMBLINE_HOST_DEVICE double operator()(E) const {
    return carried_of<E>(x, r, t);
  }
};

PLUMBLINE_HOST_DEVICE inline double value(const Chain::Step& step, const double (&x)[3]) {
  if (step.fixed_exponent && scalar::is_small_power(x[1])) return scalar::small_power(x[0], x[1]);
  return element::visit(step.primitive, ValueOf{x});
}

// How far the rounding of a result t of the operands x moves it, flushing of operands below `tiny` included: what
// flushing moves, and the rounding of what that makes of the result.
PLUMBLINE_HOST_DEVICE inline double rounding_error(Primitive primitive, const element::LocalError& error, double tiny,
                                                   const double (&x)[3], double t) {
  double moved = 0;
  if (tiny > 0) {
    double lost[3];
    for (int k = 0; k < 3; ++k) lost[k] = element::flushed(x[k], tiny);
    moved = element::visit(primitive, CarriedOf{x, lost, t});
  }
  if (error.none || moved == kInfinity) return moved;
  const double reached = moved == 0 ? t : std::copysign(std::fabs(t) + moved, t);
  const double e = error.of_argument ? error.of(x[0], reached) : error.of(reached);
  return tiny == 0 ? e : (e + moved) * (1 + 0x1p-20);
}

// The radius of its result t: (carried + e)(1 + 2^-40) is above the rounding of the sum.
PLUMBLINE_HOST_DEVICE inline double radius(const Chain::Step& step, const double (&x)[3], const double (&r)[3],
                                           double t) {
  const double carried = step.moved ? element::visit(step.primitive, CarriedOf{x, r, t}) : 0.0;
  double error = 0;
  if (step.tiny > 0 || !step.error.none) {
    double far[3];
    for (int k = 0; k < 3; ++k) far[k] = step.inflated ? std::copysign(std::fabs(x[k]) + r[k], x[k]) : x[k];
    error = rounding_error(step.primitive, step.error, step.tiny, far, std::copysign(std::fabs(t) + carried, t));
  }
  return step.moved ? (carried + error) * (1 + 0x1p-40) : error;
}

}  // namespace plumbline::primitive::chain
