// Enclosures of elementwise primitives. Each is exact interval mathematics of the stated rule; `up` covers the
// roundings of its own evaluation.
#include <cmath>

#include "kernels/primitive/enclosure.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

template <class F>
struct Up {
  F f;
  template <class... Values>
  PLUMBLINE_HOST_DEVICE double operator()(Values... values) const {
    return up(f(values...));
  }
};

// A fresh bound of out's shape, f over operands that broadcast to it.
template <class F, class... Arrays>
Bound bound_of(const Array& out, const F& f, const Arrays&... operands) {
  Bound bound{Array::uninitialized(out.shape())};
  loop::map(bound.values, Up<F>{f}, operands...);
  return bound;
}

// f at a displaced point may be off by some ULPs of its value and of the centre's: added to their distance. The ULPs of
// subnormals are kLeast.
PLUMBLINE_HOST_DEVICE inline double distance(double moved, double centre) {
  return std::fabs(moved - centre) + 0x1p-50 * (std::fabs(moved) + std::fabs(centre)) + 8 * kLeast;
}

constexpr double kPi = 3.1415926535897936;  // Rounded up.

// The larger; NaN if there is one.
PLUMBLINE_HOST_DEVICE inline double larger(double a, double b) { return scalar::Max::combine(a, b); }

PLUMBLINE_HOST_DEVICE inline double below(double x, double r) { return x - r - 0x1p-51 * (std::fabs(x) + r); }
PLUMBLINE_HOST_DEVICE inline double above(double x, double r) { return x + r + 0x1p-51 * (std::fabs(x) + r); }

}  // namespace

Bound unless_overflowed(Primitive primitive, const Attributes& attributes, Inputs centres, const Array& out,
                        Bound bound) {
  Array finite = Array::uninitialized({});  // 0 or NaN.
  loop::reduce<scalar::Sum>(
      finite, false, out.shape(), [] PLUMBLINE_HOST_DEVICE(double t) { return t - t; }, out);
  if (!bound || finite.item() == 0) return bound;
  // The same with 1 for every finite value: finite, unless an operand was infinite.
  std::vector<Array> plain;
  for (const Array& x : centres) {
    if (primitive == Primitive::kScatterAdd && !plain.empty()) {  // Its indices.
      plain.push_back(x);
      continue;
    }
    loop::map(
        plain.emplace_back(Array::uninitialized(x.shape())),
        [] PLUMBLINE_HOST_DEVICE(double v) { return v - v == 0 ? 1.0 : v; }, x);
  }
  const Array infinite = traits(primitive).evaluate(attributes, out.shape(), plain);
  loop::map(
      bound.values,
      [] PLUMBLINE_HOST_DEVICE(double r, double t, double p) {
        return r != 0 && t - t != 0 && p - p == 0 ? kInfinity : r;
      },
      bound.values, out, infinite);
  return bound;
}

template <class F>
Bound radius_monotone(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return bound_of(
      out,
      [] PLUMBLINE_HOST_DEVICE(double x, double r, double t) {
        if (r == 0) return 0.0;
        if (!(r < kInfinity)) return kInfinity;
        const double low = F::value(std::max(below(x, r), +F::kDomainLow)), high = F::value(above(x, r));
        return larger(distance(low, t), distance(high, t));
      },
      centres[0], radius_of(radii[0]), out);
}

template <class F>
Bound radius_step(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return bound_of(
      out,
      [] PLUMBLINE_HOST_DEVICE(double x, double r, double t) {
        if (r == 0) return 0.0;
        if (!(r < kInfinity)) return kInfinity;
        return larger(std::fabs(F::value(below(x, r)) - t), std::fabs(F::value(above(x, r)) - t));
      },
      centres[0], radius_of(radii[0]), out);
}

#define PLUMBLINE_RADIUS(rule, name) \
  template Bound rule<scalar::name>(const Attributes&, Inputs, std::span<const Bound>, const Array&);
PLUMBLINE_RADIUS(radius_monotone, Exp)
PLUMBLINE_RADIUS(radius_monotone, Expm1)
PLUMBLINE_RADIUS(radius_monotone, Log)
PLUMBLINE_RADIUS(radius_monotone, Log1p)
PLUMBLINE_RADIUS(radius_monotone, Sqrt)
PLUMBLINE_RADIUS(radius_monotone, Rsqrt)
PLUMBLINE_RADIUS(radius_monotone, Tanh)
PLUMBLINE_RADIUS(radius_monotone, Erf)
PLUMBLINE_RADIUS(radius_monotone, Sigmoid)
PLUMBLINE_RADIUS(radius_step, Sign)
PLUMBLINE_RADIUS(radius_step, Floor)
PLUMBLINE_RADIUS(radius_step, Ceil)
PLUMBLINE_RADIUS(radius_step, Round)
PLUMBLINE_RADIUS(radius_step, Trunc)
#undef PLUMBLINE_RADIUS

Bound radius_lipschitz1(const Attributes&, Inputs, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return bound_of(
      out, [] PLUMBLINE_HOST_DEVICE(double r) { return r; }, radii[0].values);
}

namespace {

struct Open {
  PLUMBLINE_HOST_DEVICE double operator()(double x, double r) const {
    return r != 0 && !(std::fabs(x) > r) ? 1.0 : 0.0;
  }
};

}  // namespace

// Outcomes are 0 or 1; an operand whose truth is open opens the outcome. A finite ball holds finite values only.
Bound radius_decision(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  if (centres.size() == 1) return bound_of(out, Open{}, centres[0], radius_of(radii[0]));
  return bound_of(
      out,
      [] PLUMBLINE_HOST_DEVICE(double a, double ra, double b, double rb) {
        return std::max(Open{}(a, ra), Open{}(b, rb));
      },
      centres[0], radius_of(radii[0]), centres[1], radius_of(radii[1]));
}

// Open where the ball reaches beyond the largest number.
Bound radius_isfinite(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return bound_of(
      out,
      [] PLUMBLINE_HOST_DEVICE(double x, double r) { return r == 0 || above(std::fabs(x), r) < kInfinity ? 0.0 : 1.0; },
      centres[0], radii[0].values);
}

// |1/x' - 1/x| = |x' - x| / |x x'|; open when 0 is inside.
Bound radius_reciprocal(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  Bound bound = bound_of(
      out,
      [] PLUMBLINE_HOST_DEVICE(double x, double r) {
        const double nearest = std::fabs(x) - r;
        return r == 0 ? 0.0 : nearest > 0 ? over(over(r, std::fabs(x)), nearest) : kInfinity;
      },
      centres[0], radius_of(radii[0]));
  return unless_overflowed(Primitive::kReciprocal, attributes, centres, out, bound);
}

Bound radius_add(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  Bound bound = bound_of(
      out, [] PLUMBLINE_HOST_DEVICE(double ra, double rb) { return ra + rb; }, radius_of(radii[0]),
      radius_of(radii[1]));
  return unless_overflowed(Primitive::kAdd, attributes, centres, out, bound);
}

// |a|rb + |b|ra + ra rb
Bound radius_mul(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  Bound bound = bound_of(
      out,
      [] PLUMBLINE_HOST_DEVICE(double a, double ra, double b, double rb) {
        const double first = rb == 0 ? 0.0 : times(std::fabs(a), rb);
        const double second = ra == 0 ? 0.0 : times(std::fabs(b) + rb, ra);
        return first + second;
      },
      centres[0], radius_of(radii[0]), centres[1], radius_of(radii[1]));
  return unless_overflowed(Primitive::kMul, attributes, centres, out, bound);
}

// |a'/b' - t| <= (ra + |t| rb) / (|b| - rb), where t itself may have lost half of kLeast.
Bound radius_div(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  Bound bound = bound_of(
      out,
      [] PLUMBLINE_HOST_DEVICE(double t, double a, double ra, double b, double rb) {
        const double nearest = std::fabs(b) - rb;
        if (ra == 0 && rb == 0) return 0.0;
        const double quotient = a == 0 ? 0.0 : std::fabs(t) + kLeast;
        return nearest > 0 ? over(ra, nearest) + (rb == 0 ? 0.0 : times(quotient, over(rb, nearest))) : kInfinity;
      },
      out, centres[0], radius_of(radii[0]), centres[1], radius_of(radii[1]));
  return unless_overflowed(Primitive::kDiv, attributes, centres, out, bound);
}

// For a > 0, b log a is bilinear: extremes lie at the corners of the box. For one fixed exponent the power is monotone
// on either side of 0, where a negative one is unbounded.
Bound radius_pow(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  const auto corner = [] PLUMBLINE_HOST_DEVICE(double a, double ra, double b, double rb) {
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
  };
  return bound_of(out, corner, centres[0], radius_of(radii[0]), centres[1], radius_of(radii[1]));
}

// Seen from a point outside of it, a box spans the angle between two of its corners. Where it meets the negative x axis
// the angle is anywhere in [-pi, pi].
Bound radius_atan2(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return bound_of(
      out,
      [] PLUMBLINE_HOST_DEVICE(double t, double y, double ry, double x, double rx) {
        if (ry == 0 && rx == 0) return 0.0;
        if (!(ry < kInfinity && rx < kInfinity)) return kInfinity;
        const double bottom = ry == 0 ? y : below(y, ry), top = ry == 0 ? y : above(y, ry);
        const double left = rx == 0 ? x : below(x, rx), right = rx == 0 ? x : above(x, rx);
        if (bottom <= 0 && top >= 0 && left <= 0) return std::fabs(t) + kPi;
        const auto reach = [t](double b, double a) { return distance(std::atan2(b, a), t); };
        return larger(larger(reach(bottom, left), reach(bottom, right)), larger(reach(top, left), reach(top, right)));
      },
      out, centres[0], radius_of(radii[0]), centres[1], radius_of(radii[1]));
}

// |max(a', b') - max(a, b)| <= max(ra, rb)
Bound radius_max(const Attributes&, Inputs, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return bound_of(
      out, [] PLUMBLINE_HOST_DEVICE(double ra, double rb) { return larger(ra, rb); }, radius_of(radii[0]),
      radius_of(radii[1]));
}

// While a/b keeps one whole part q over the box, the value a - q b moves by at most ra + |q| rb. Otherwise it stays
// within |b| of 0; where b may be 0 it is open.
Bound radius_fmod(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return bound_of(
      out,
      [] PLUMBLINE_HOST_DEVICE(double a, double ra, double b, double rb) {
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
      },
      centres[0], radius_of(radii[0]), centres[1], radius_of(radii[1]));
}

// Undecided when the balls touch. An infinity that is exact touches no finite ball.
Bound radius_compare(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return bound_of(
      out,
      [] PLUMBLINE_HOST_DEVICE(double a, double ra, double b, double rb) {
        const double reach = ra + rb;
        if (reach == 0 || (reach < kInfinity && ((std::isinf(a) && ra == 0) || (std::isinf(b) && rb == 0)))) return 0.0;
        return std::fabs(a - b) > up(reach) + 0x1p-50 * (std::fabs(a) + std::fabs(b)) ? 0.0 : 1.0;
      },
      centres[0], radius_of(radii[0]), centres[1], radius_of(radii[1]));
}

// The side taken; both sides where the condition is open.
Bound radius_select(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  Array side = Array::uninitialized(centres[0].shape());  // 1: first, 0: second, 2: open.
  loop::map(
      side,
      [] PLUMBLINE_HOST_DEVICE(double c, double r) { return r != 0 && !(std::fabs(c) > r) ? 2.0
                                                            : c != 0                      ? 1.0
                                                                                          : 0.0; },
      centres[0], radius_of(radii[0]));
  return bound_of(
      out,
      [] PLUMBLINE_HOST_DEVICE(double which, double a, double ra, double b, double rb) {
        if (which == 1) return ra;
        if (which == 0) return rb;
        return std::fabs(a - b) + larger(ra, rb);
      },
      side, centres[1], radius_of(radii[1]), centres[2], radius_of(radii[2]));
}

}  // namespace plumbline::primitive
