// What an elementwise primitive makes of the balls of its operands: one rule for each way in which a result can move.
//
// Each rule is exact interval mathematics of what its comment states; `up` covers the roundings of its own evaluation.
// x, r: an operand and its radius; t: the result.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/ball/scalar.h"
#include "kernels/primitive/enclosure.h"

namespace plumbline::primitive::element {

// f at a displaced point may be off by some ULPs of its value and of the centre's: added to their distance. The ULPs of
// subnormals are kLeast.
PLUMBLINE_HOST_DEVICE inline double distance(double moved, double centre) {
  return std::fabs(moved - centre) + 0x1p-50 * (std::fabs(moved) + std::fabs(centre)) + 8 * kLeast;
}

// The larger; NaN if there is one.
PLUMBLINE_HOST_DEVICE inline double larger(double a, double b) { return scalar::Max::combine(a, b); }

PLUMBLINE_HOST_DEVICE inline double below(double x, double r) { return x - r - 0x1p-51 * (std::fabs(x) + r); }
PLUMBLINE_HOST_DEVICE inline double above(double x, double r) { return x + r + 0x1p-51 * (std::fabs(x) + r); }

// Whether an operand of a decision may be either true or false.
PLUMBLINE_HOST_DEVICE inline bool open(double x, double r) { return r != 0 && !(std::fabs(x) > r); }

// The radius of arithmetic. Around a result that overflowed there is no finite ball: finite results would lie
// infinitely far from it. Around that of an infinite operand there is. (What moves its operands' values cannot
// overflow.)
PLUMBLINE_HOST_DEVICE inline double unless_overflowed(double radius, double t, double a, double b = 0) {
  const bool overflowed = (t - t != 0) & (a - a == 0) & (b - b == 0);
  return (overflowed & (radius != 0)) ? kInfinity : radius;
}

// Arithmetic also has `plain`, a formula of its own for operands that are neither infinite nor so near to 0 that
// something underflows: where its result is finite and no less than kPlainMin, and t is finite, none of the rule's
// special cases arises, and `up` covers what is lost. That is five roundings of 2^-53 at most, and what underflows: an
// operation loses 2^-1075, which is 2^-175 of kPlainMin. A quotient t that underflowed is missing in t rb / (|b| - rb),
// whose last factors are at most 2^53, since |b| - rb is no less than an ulp of b: 2^-1022, 2^-122 of kPlainMin. What
// is not so comes out smaller, infinite or NaN.
inline constexpr double kPlainMin = 0x1p-900;
PLUMBLINE_HOST_DEVICE inline bool is_plain(double radius, double t) {
  return (radius >= kPlainMin) & (radius < kInfinity) & (t - t == 0);
}

// kRadiiAlone: the rule reads nothing else.
struct Rule {
  static constexpr bool kRadiiAlone = false;
};

// |f(x) - f(centre)| of a monotone function, at the end points; its domain begins at F::kDomainLow, beyond which the
// ball does not count (what lies there is NaN, which the range lane sees).
template <class F>
struct Monotone : Rule {
  using Function = F;
  PLUMBLINE_HOST_DEVICE static double low(double x, double r) { return std::max(below(x, r), +F::kDomainLow); }
  // `at_low`, `at_high`: the function there and at above(x, r).
  PLUMBLINE_HOST_DEVICE static double between(double r, double at_low, double at_high, double t) {
    const double farthest = larger(distance(at_low, t), distance(at_high, t));
    return r == 0 ? 0.0 : r < kInfinity ? farthest : kInfinity;
  }
  PLUMBLINE_HOST_DEVICE static double radius(double x, double r, double t) {
    if (r == 0) return 0.0;
    if (!(r < kInfinity)) return kInfinity;
    return between(r, F::value(low(x, r)), F::value(above(x, r)), t);
  }
  PLUMBLINE_HOST_DEVICE static bool is_near(double, double, double) { return false; }  // See Gentle.
};

// The same of a function whose slope changes gently, |f''| <= kBend f': within r of x it is at most f'(x) e^(kBend r)
// (Gronwall), so that f moves by at most f'(x) (e^(kBend r) - 1) / kBend, and up to kBend r = 1 the convex (e^y - 1) /
// y lies below its chord 1 + (e - 2) y. No value of f elsewhere is needed. Of exp, tanh and sigmoid f'' is exp, -2 tanh
// tanh' and (1 - 2 sigmoid) sigmoid'.
template <class F, int kBend>
struct Gentle : Monotone<F> {
  PLUMBLINE_HOST_DEVICE static bool is_near(double x, double r, double t) {
    return (kBend * r <= 1) & (x - x == 0) & (t - t == 0);
  }
  // Where it is near. t may be some ULPs off, by which f'(x) is found, and from which f is told.
  PLUMBLINE_HOST_DEVICE static double near(double x, double r, double t) {
    const double chord = 0.7183;  // e - 2, rounded up.
    const double slope = F::derivative(x, t) + 0x1p-48 * std::fabs(t);
    const double moved = r * slope * (1 + chord * (kBend * r)) + 0x1p-49 * std::fabs(t) + 8 * kLeast;
    return r == 0 ? 0.0 : moved;
  }
  PLUMBLINE_HOST_DEVICE static double radius(double x, double r, double t) {
    return is_near(x, r, t) ? near(x, r, t) : Monotone<F>::radius(x, r, t);
  }
};

// The same of a step function, whose values are exact.
template <class F>
struct Step : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double x, double r, double t) {
    if (r == 0) return 0.0;
    if (!(r < kInfinity)) return kInfinity;
    return larger(std::fabs(F::value(below(x, r)) - t), std::fabs(F::value(above(x, r)) - t));
  }
};

// |f(x') - f(x)| <= |x' - x|
struct Lipschitz : Rule {
  static constexpr bool kRadiiAlone = true;
  PLUMBLINE_HOST_DEVICE static double radius(double, double r, double) { return r; }
};

// Outcomes are 0 or 1; an operand whose truth is open opens the outcome. A finite ball holds finite values only.
struct Decision : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double x, double r, double) { return open(x, r) ? 1.0 : 0.0; }
  PLUMBLINE_HOST_DEVICE static double radius(double a, double ra, double b, double rb, double) {
    return open(a, ra) || open(b, rb) ? 1.0 : 0.0;
  }
};

// Open where the ball reaches beyond the largest number.
struct Finite : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double x, double r, double) {
    return r == 0 || above(std::fabs(x), r) < kInfinity ? 0.0 : 1.0;
  }
};

// |1/x' - 1/x| = |x' - x| / |x x'|; open when 0 is inside.
struct Inverse : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double x, double r, double t) {
    const double nearest = std::fabs(x) - r;
    return r == 0 ? 0.0 : nearest > 0 ? unless_overflowed(over(over(r, std::fabs(x)), nearest), t, x) : kInfinity;
  }
};

// |(a' +- b') - (a +- b)| <= ra + rb
struct Sum : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double a, double ra, double b, double rb, double t) {
    return unless_overflowed(ra + rb, t, a, b);
  }
  PLUMBLINE_HOST_DEVICE static double plain(double, double ra, double, double rb, double) { return ra + rb; }
};

// |a|rb + |b|ra + ra rb
struct Product : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double a, double ra, double b, double rb, double t) {
    const double first = rb == 0 ? 0.0 : times(std::fabs(a), rb);
    const double second = ra == 0 ? 0.0 : times(std::fabs(b) + rb, ra);
    return unless_overflowed(first + second, t, a, b);
  }
  PLUMBLINE_HOST_DEVICE static double plain(double a, double ra, double b, double rb, double) {
    return std::fabs(a) * rb + (std::fabs(b) + rb) * ra;
  }
};

// |a'/b' - t| <= (ra + |t| rb) / (|b| - rb), where t itself may have lost half of kLeast.
struct Quotient : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double a, double ra, double b, double rb, double t) {
    const double nearest = std::fabs(b) - rb;
    if (ra == 0 && rb == 0) return 0.0;
    const double quotient = a == 0 ? 0.0 : std::fabs(t) + kLeast;
    const double moved = over(ra, nearest) + (rb == 0 ? 0.0 : times(quotient, over(rb, nearest)));
    return nearest > 0 ? unless_overflowed(moved, t, a, b) : kInfinity;
  }
  PLUMBLINE_HOST_DEVICE static double plain(double, double ra, double b, double rb, double t) {
    const double moved = ra + std::fabs(t) * rb, usable = moved >= kPlainMin ? 1.0 : 0.0;
    return usable * (moved / (std::fabs(b) - rb));
  }
};

// For a > 0, b log a is bilinear: extremes lie at the corners of the box. For one fixed exponent the power is monotone
// on either side of 0, where a negative one is unbounded.
struct Power : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double a, double ra, double b, double rb, double) {
    if (ra == 0 && rb == 0) return 0.0;
    const double t = std::pow(a, b);
    double low = below(a, ra);
    const double high = above(a, ra);
    double most = 0;
    const auto visit = [&](double x, double y) { most = larger(most, distance(std::pow(x, y), t)); };
    if (low > 0) {
      const double least_power = rb == 0 ? b : below(b, rb), most_power = rb == 0 ? b : above(b, rb);
      visit(low, least_power);
      visit(high, least_power);
      visit(low, most_power);
      visit(high, most_power);
      return most;
    }
    const bool integral = b == std::trunc(b);
    if (rb != 0 || (!integral && a < 0) || (b < 0 && !(high < 0))) return kInfinity;
    if (!integral) low = 0;  // Its domain ends there.
    visit(low, b);
    visit(high, b);
    if (high >= 0 && b != 0) visit(0, b);
    return most;
  }
};

// Seen from a point outside of it, a box spans the angle between two of its corners. Where it meets the negative x axis
// the angle is anywhere in [-pi, pi].
struct Angle : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double y, double ry, double x, double rx, double t) {
    constexpr double kPi = 3.1415926535897936;  // Rounded up.
    if (ry == 0 && rx == 0) return 0.0;
    if (!(ry < kInfinity && rx < kInfinity)) return kInfinity;
    const double bottom = ry == 0 ? y : below(y, ry), top = ry == 0 ? y : above(y, ry);
    const double left = rx == 0 ? x : below(x, rx), right = rx == 0 ? x : above(x, rx);
    if (bottom <= 0 && top >= 0 && left <= 0) return std::fabs(t) + kPi;
    const auto reach = [t](double b, double a) { return distance(std::atan2(b, a), t); };
    return larger(larger(reach(bottom, left), reach(bottom, right)), larger(reach(top, left), reach(top, right)));
  }
};

// |max(a', b') - max(a, b)| <= max(ra, rb)
struct Extreme : Rule {
  static constexpr bool kRadiiAlone = true;
  PLUMBLINE_HOST_DEVICE static double radius(double, double ra, double, double rb, double) { return larger(ra, rb); }
};

// While a/b keeps one whole part q over the box, the value a - q b moves by at most ra + |q| rb. Otherwise it stays
// within |b| of 0; where b may be 0 it is open.
struct Remainder : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double a, double ra, double b, double rb, double) {
    if (ra == 0 && rb == 0) return 0.0;
    const double nearest = below(std::fabs(b), rb);
    if (!(nearest > 0 && ra < kInfinity)) return kInfinity;
    const double farthest = above(std::fabs(b), rb), low = below(a, ra), high = above(a, ra);
    const double q = std::trunc(low / nearest);
    if (std::fabs(q) < 0x1p52 && q == std::trunc(low / farthest) && q == std::trunc(high / nearest) &&
        q == std::trunc(high / farthest)) {
      return ra + (rb == 0 ? 0.0 : times(std::fabs(q), rb));
    }
    return 2 * (std::fabs(b) + rb);
  }
};

// Undecided when the balls touch. An infinity that is exact touches no finite ball.
struct Comparison : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double a, double ra, double b, double rb, double) {
    const double reach = ra + rb;
    if (reach == 0 || (reach < kInfinity && ((std::isinf(a) && ra == 0) || (std::isinf(b) && rb == 0)))) return 0.0;
    return std::fabs(a - b) > up(reach) + 0x1p-50 * (std::fabs(a) + std::fabs(b)) ? 0.0 : 1.0;
  }
};

// The side taken; both sides where the condition is open.
struct Choice : Rule {
  PLUMBLINE_HOST_DEVICE static double radius(double c, double rc, double a, double ra, double b, double rb, double) {
    if (open(c, rc)) return std::fabs(a - b) + larger(ra, rb);
    return c != 0 ? ra : rb;
  }
};

}  // namespace plumbline::primitive::element
