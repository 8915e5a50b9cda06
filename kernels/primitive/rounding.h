// What the rounding of one element adds to a functional with a cotangent a there, in the statistical model (noise.h).
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/primitive/element.h"
#include "kernels/strided.h"

namespace plumbline::primitive {

inline constexpr double kNoiseInflate = 1 + 0x1p-19;  // Above that of the local errors.

PLUMBLINE_HOST_DEVICE inline double square(double x) { return x * x; }

// Bias and squares of an element whose events have half-widths with this sum of squares and whose bias is b. A
// cotangent of exactly 0 adds nothing, even where a bound is infinite; and what is not rounded at all adds nothing,
// even where the slope behind it is infinite, as that of the root of an exact zero is.
PLUMBLINE_HOST_DEVICE inline Totals<2> charge(double a, double squares, double b) {
  const double bias = std::fabs(a) * b, of_squares = a * a * squares;
  return {{a == 0 || b == 0 ? 0.0 : bias, a == 0 || squares == 0 ? 0.0 : of_squares}};
}

// The same, whole: |a| e.
PLUMBLINE_HOST_DEVICE inline double whole_charge(double a, double e) {
  const double product = std::fabs(a) * e;
  return a == 0 || e == 0 ? 0.0 : product;
}

// Makes a charge of sums over a node's elements (whole, bias, squares, drift). Each is raised above the rounding of
// 2^12 additions in a lane and 2^16 chunks.
inline Charge charge_of(const Totals<4>& sums) {
  return {sums.of[0] * (1 + 0x1p-20), {sums.of[1], sums.of[2], sums.of[3]}};
}

// Half-widths of the events of one rounding: of the result in the compute format, and of holding it in its own. A
// stochastic rounding goes to either neighbour with mean zero: an interval as wide as that of the nearest. What a
// directed one adds is bias.
struct Events {
  double u = 0, eta = 0;            // c = u |t| + eta
  double held_u = 0, held_eta = 0;  // The same.
  double reach = 1;                 // Largest error of an event in half-widths.

  // Charges a result t that lies within e of the exact one.
  PLUMBLINE_HOST_DEVICE Totals<2> charge(double a, double t, double e) const {
    const double magnitude = std::fabs(t);
    const double c = u * magnitude + eta, c_held = held_u * magnitude * (1 + u) + held_eta;
    const double width = reach * (c + c_held) * kNoiseInflate;
    return primitive::charge(a, std::min(square(e), square(c) + square(c_held)) * kNoiseInflate,
                             e <= width ? 0.0 : e - width);
  }
};
Events events(const Arithmetic& arithmetic);

// What an increment leaves behind when it is added to a running sum. One below half an ulp of the sum is lost whole;
// one of a few ulps is rounded to a multiple of an ulp whatever the sum is, with a mean error that only its own
// distribution decides. Beyond kStagnant u |sum|, four ulps, the errors of a smooth distribution have lost their mean.
// What is left has the increment's sign: increments of both signs cancel here as they do in the execution.
inline constexpr double kStagnant = 8;
PLUMBLINE_HOST_DEVICE inline bool stagnates(double magnitude, double half_ulp) {
  return magnitude <= kStagnant * half_ulp;
}
PLUMBLINE_HOST_DEVICE inline double left_behind(double increment, double half_ulp) {
  const double magnitude = std::fabs(increment);
  return stagnates(magnitude, half_ulp) ? std::copysign(std::min(magnitude, half_ulp), increment) : 0.0;
}

// What an addition t = x + sign y drops, of both operands the smaller; times its cotangent. `u`: of the result.
// `absorbs`: y may stand for infinity.
PLUMBLINE_HOST_DEVICE inline double dropped(double a, double t, double x, double y, double sign, double u,
                                            bool absorbs = false) {
  const double second = sign * y, increment = std::fabs(x) < std::fabs(second) ? x : second;
  const bool nothing = absorbs & absorbed(x, t);
  const double left = nothing ? 0.0 : left_behind(increment, u * std::fabs(t)), lost = a * left;
  return ((a == 0) | (left == 0)) ? 0.0 : lost;
}

// Whether it can drop anything.
PLUMBLINE_HOST_DEVICE inline bool may_drop(double t, double x, double y, double u) {
  const double smaller = std::min(std::fabs(x), std::fabs(y));
  return stagnates(smaller, u * std::fabs(t)) & (smaller > 0);
}

// How an elementwise result is rounded.
struct ElementRounding {
  element::LocalError error;
  double tiny = 0;  // Operands below it are flushed to zero; 0: none are.
  Events events{};
  double sign = 0, dropped_u = 0;  // What additions drop is drift; dropped_u is 0 where none drop anything.

  bool none() const { return error.none && tiny == 0; }
  // Whether its errors are slope |t| + offset, of finite numbers.
  bool linear() const {
    return !error.none && tiny == 0 && !error.of_argument && error.slope < kInfinity && error.offset < kInfinity;
  }
};

// What a functional's charges are made of where errors are linear in |t|: sums over elements with cotangents g and
// results t. One pass over g and t gives them for every rounding of these.
struct Moments {
  double g = 0, gt = 0;              // sum |g|, sum |g t|
  double gg = 0, ggt = 0, ggtt = 0;  // sum g^2, sum g^2 |t|, sum (g t)^2
  // Otherwise some element is infinite or not a number, which counts only where its cotangent is not 0, or overflows.
  bool finite() const { return g - g == 0 && gt - gt == 0 && gg - gg == 0 && ggtt - ggtt == 0; }
  // Adds them, if all stay finite. False: nothing was added.
  bool add(const Moments& more) {
    const Moments sum{g + more.g, gt + more.gt, gg + more.gg, ggt + more.ggt, ggtt + more.ggtt};
    if (!sum.finite()) return false;
    *this = sum;
    return true;
  }
};

// The charge of the elements with these moments. With e = s |t| + o, c = u |t| + eta and c' of the holding, an element
// has |g| e whole, g^2 min(e^2, c^2 + c'^2) of squares and |g| max(0, e - width) of bias, width being reach (c + c').
// Each is a polynomial in |t|: of the two under the minimum one is taken for all, and a difference of which one
// coefficient is negative is taken without that.
inline Charge charge_of(const ElementRounding& rounding, const Moments& m) {
  const Events& events = rounding.events;
  const double s = rounding.error.slope, o = rounding.error.offset;
  const double held_u = events.held_u * (1 + events.u);
  const double tt = square(events.u) + square(held_u), t = 2 * (events.u * events.eta + held_u * events.held_eta);
  const double one = square(events.eta) + square(events.held_eta);
  constexpr double kAlike = 1 + 0x1p-16;  // Errors are inflated beside events.
  const bool of_error = square(s) <= tt * kAlike && 2 * s * o <= t * kAlike && square(o) <= one * kAlike;
  Charge charge;
  charge.whole = s * m.gt + o * m.g;
  charge.noise.squares = kNoiseInflate * (of_error ? square(s) * m.ggtt + 2 * s * o * m.ggt + square(o) * m.gg
                                                   : tt * m.ggtt + t * m.ggt + one * m.gg);
  const double width = events.reach * kNoiseInflate;
  charge.noise.bias = std::max(0.0, s - width * (events.u + held_u)) * m.gt +
                      std::max(0.0, o - width * (events.eta + events.held_eta)) * m.g;
  return charge;
}

ElementRounding rounding_of(Primitive primitive, const Attributes& attributes, const Arithmetic& arithmetic);

}  // namespace plumbline::primitive
