// Enclosures of reductions, products, rows and movement.
#include <cmath>

#include "kernels/cpu/gemm.h"
#include "kernels/primitive/enclosure.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/product_above.h"
#include "kernels/primitive/rows.h"
#include "kernels/primitive/statistics.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

// Around a result that overflowed there is no finite ball (element.h, unless_overflowed).
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

// Up to n roundings of 2^-53 in each of these sums.
Bound inflated(const Array& values, std::int64_t n) {
  Array result = Array::uninitialized(values.shape());
  const double sums = 1 + static_cast<double>(n) * 0x1p-52;
  loop::map(
      result, [sums] PLUMBLINE_HOST_DEVICE(double v) { return up(v * sums); }, values);
  return {result};
}

// The primitive itself, applied to the radii: for those that are sums of at most n of their inputs with coefficients 0
// and 1, or take one of them.
Bound radius_by(Primitive primitive, const Attributes& attributes, std::vector<Array> inputs, const Array& out,
                std::int64_t n = 1) {
  return inflated(traits(primitive).evaluate(attributes, out.shape(), inputs), n);
}

std::int64_t terms_of(const Array& x, const Array& out) { return out.count() == 0 ? 0 : x.count() / out.count(); }

// Each radius is raised where its square would be lost.
Bound norm_of_radii(const Attributes& attributes, const Bound& radius, const Array& out) {
  Array raised = Array::uninitialized(radius.values.shape());
  loop::map(
      raised, [] PLUMBLINE_HOST_DEVICE(double r) { return r == 0 ? 0.0 : std::max(r, 1e-150); }, radius.values);
  return radius_by(Primitive::kNorm, attributes, {raised}, out, terms_of(raised, out));
}

bool has_radius(const Bound& radius) {
  if (!radius) return false;
  return loop::any([] PLUMBLINE_HOST_DEVICE(double x) { return x != 0; }, radius.values.materialize()).item() != 0;
}

Array magnitude(const Array& x) {
  Array result = Array::uninitialized(x.shape());
  loop::map(
      result, [] PLUMBLINE_HOST_DEVICE(double v) { return std::fabs(v); }, x);
  return result;
}

}  // namespace

Bound radius_sum(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return unless_overflowed(Primitive::kSum, attributes, centres, out,
                           radius_by(Primitive::kSum, attributes, {radii[0].values}, out, terms_of(centres[0], out)));
}

// |max x' - max x| <= max r
Bound radius_extreme(const Attributes& attributes, Inputs, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return radius_by(Primitive::kAmax, attributes, {radii[0].values}, out);
}

// Decided when the winner's lower end is above the upper ends of all others: at most one element then reaches the
// largest lower end.
Bound radius_argmax(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  const Array& x = centres[0];
  Array lower = Array::uninitialized(x.shape());
  loop::map(
      lower, [] PLUMBLINE_HOST_DEVICE(double v, double r) { return v - up(r) - 0x1p-52 * std::fabs(v); }, x,
      radii[0].values);
  const Shape kept = reduced_shape(x.shape(), attributes.dims);
  Array best = Array::uninitialized(kept);
  loop::reduce<scalar::Max>(best, false, x.shape(), loop::Copy{}, lower);
  Array reaching = Array::uninitialized(kept);
  loop::reduce<scalar::Sum>(
      reaching, false, x.shape(),
      [] PLUMBLINE_HOST_DEVICE(double v, double r, double b) {
        return v + up(r) + 0x1p-52 * std::fabs(v) < b ? 0.0 : 1.0;
      },
      x, radii[0].values, best);
  const double all = static_cast<double>(out.count() == 0 ? 0 : x.count() / out.count());
  loop::map(
      reaching, [all] PLUMBLINE_HOST_DEVICE(double n) { return n <= 1 ? 0.0 : all; }, reaching);
  return {reaching.reshape(out.shape())};
}

// A place is decided where all before it lie above its element, radii included, and all after it below: by running
// extremes of the ends in sorted order.
Bound radius_argsort(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  const Array x = centres[0].materialize(), r = radii[0].values.expand(x.shape()).materialize();
  const auto dim = static_cast<std::size_t>(attributes.dims[0]);
  const std::int64_t length = x.shape()[dim], kept = out.shape()[dim], step = row_major_strides(x.shape())[dim];
  const std::int64_t lines = length == 0 ? 0 : x.count() / length;
  Attributes whole = attributes;
  whole.size = length;
  const Array order = traits(Primitive::kArgsort).evaluate(whole, x.shape(), centres);
  Array undecided = Array::zeros(out.shape());
  std::vector<double> lowest_before(static_cast<std::size_t>(length) + 1);
  for (std::int64_t line = 0; line < lines; ++line) {
    const std::int64_t base = line / step * step * length + line % step;
    const auto at = [&](std::int64_t i) {
      return base + static_cast<std::int64_t>(order.data()[base + i * step]) * step;
    };
    // A radius that is not known reaches everywhere.
    const auto end = [&](std::int64_t i, double side) {
      const double v = x.data()[at(i)], radius = up(r.data()[at(i)]);
      if (!(radius < HUGE_VAL)) return side * HUGE_VAL;
      return std::isfinite(v) ? v + side * (radius + 0x1p-52 * std::fabs(v)) : v;
    };
    lowest_before[0] = HUGE_VAL;
    for (std::int64_t i = 0; i < length; ++i)
      lowest_before[static_cast<std::size_t>(i) + 1] =
          std::fmin(lowest_before[static_cast<std::size_t>(i)], end(i, -1));
    double highest_after = -HUGE_VAL;
    for (std::int64_t i = length; i-- > 0;) {
      const double low = end(i, -1), high = end(i, 1), before = lowest_before[static_cast<std::size_t>(i)];
      const bool decided = (i == 0 || before > high) && (i == length - 1 || highest_after < low);
      if (!decided && i < kept)
        undecided.data()[line / step * step * kept + line % step + i * step] = static_cast<double>(length);
      highest_after = std::fmax(highest_after, high);
    }
  }
  return {undecided};
}

Bound radius_cumsum(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  const std::int64_t n = out.shape().empty() ? 1 : out.shape()[static_cast<std::size_t>(attributes.dims[0])];
  return unless_overflowed(Primitive::kCumsum, attributes, centres, out,
                           radius_by(Primitive::kCumsum, attributes, {radii[0].values}, out, n));
}

// The norm is 1-Lipschitz in the norm.
Bound radius_norm(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return unless_overflowed(Primitive::kNorm, attributes, centres, out, norm_of_radii(attributes, radii[0], out));
}

// sigma = |x - mean| / sqrt(n) is 1-Lipschitz in |x| / sqrt(n) (centring is a projection), and (sigma^2 + eps)^(-1/2)
// falls with sigma. Our own sigma is off by less than the mean's error (n u rms(x)), n u of itself, and 2^-500 where
// squares underflow.
Bound radius_variance_rsqrt(const Attributes& attributes, Inputs centres, std::span<const Bound> radii,
                            const Array& out) {
  if (all_exact(radii)) return {};
  const Statistics stats = statistics(centres[0], attributes.dims);
  const Array reach = norm_of_radii(attributes, radii[0], stats.variance).values;
  const double eps = attributes.scalar;
  const auto n = static_cast<double>(stats.terms);
  Array bound = Array::uninitialized(stats.variance.shape());
  loop::map(
      bound,
      [eps, n] PLUMBLINE_HOST_DEVICE(double v, double mean, double norm) {
        if (norm == 0) return 0.0;
        const double rho = up(norm / std::sqrt(n)), sigma = std::sqrt(v);
        const double own = (n + 8) * 0x1p-52 * (sigma + std::sqrt(mean * mean + v)) + 0x1p-500;
        if (!(rho + sigma < kInfinity)) return kInfinity;
        const auto at = [eps](double s) { return s > 0 ? 1 / std::sqrt(s * s + eps) : 1 / std::sqrt(eps); };
        const double most = at(sigma - own - rho), least = at(sigma + own + rho);
        const double distance = std::max(most - at(sigma + own), at(sigma - own) - least) + 0x1p-48 * most;
        return distance == distance ? distance : kInfinity;
      },
      stats.variance, stats.mean, reach);
  return {bound.reshape(out.shape())};
}

// |A|rB + rA(|B| + rB) =: r, and of alpha P + c with P = AB: |alpha| r + ralpha (|P| + r) + rc.
Bound radius_matmul(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  const auto product = [&](const Array& a, const Array& b) {
    Array result = Array::uninitialized(out.shape());
    product_above(a, b, 0, result);
    return result;
  };
  const Array none = Array::scalar(0);
  Array of_first = none, of_second = none;
  if (radii[1]) of_second = product(centres[0], radii[1].values);
  if (radii[0]) {
    Array farthest = magnitude(centres[1]);
    if (radii[1]) loop::map_add(farthest, loop::Copy{}, radii[1].values);
    of_first = product(radii[0].values, farthest);
  }
  const double k = static_cast<double>(centres[0].shape().back());
  Array bound = Array::uninitialized(out.shape());
  loop::map(
      bound, [k] PLUMBLINE_HOST_DEVICE(double p, double q) { return up(p + q + 4 * k * kLeast); }, of_first, of_second);
  if (centres.size() > 2) {
    const Bound alpha = radii.size() > 3 ? radii[3] : Bound{};
    Array magnitudes = none;
    if (alpha) {
      magnitudes = product(centres[0], centres[1]);
      loop::map(
          magnitudes,
          [k] PLUMBLINE_HOST_DEVICE(double most, double p) { return std::fabs(p) + 2 * k * (0x1p-52 * most + kLeast); },
          magnitudes, traits(Primitive::kMatmul).evaluate({}, out.shape(), centres.first(2)));
    }
    loop::map(
        bound,
        [] PLUMBLINE_HOST_DEVICE(double r, double p, double factor, double factor_radius, double c) {
          const double scaled = r == 0 ? 0.0 : times(std::fabs(factor), r);
          const double moved = factor_radius == 0 ? 0.0 : times(factor_radius, p + r);
          return up(scaled + moved + c);
        },
        bound, magnitudes, alpha_of(centres), radius_of(alpha), radius_of(radii[2]));
  }
  return unless_overflowed(Primitive::kMatmul, attributes, centres, out, {bound});
}

namespace {

// p_i' lies between l_i / (l_i + sum_{j != i} h_j) and h_i / (h_i + sum_{j != i} l_j), where h_j and l_j are the
// exponentials of the ends of ball j, scaled by a common factor that keeps them from overflowing.
struct SoftmaxRow {
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t row, double* out, const double* x, const double* p,
                                const double* radius) const {
    const double *const xr = x + row * n, *const pr = p + row * n, *const rr = radius + row * n;
    double* const to = out + row * n;
    const double centre = team.max(n, xr);
    const double largest = team.max(n, rr);
    team.each(n, [=](std::int64_t i) { to[i] = xr[i] - centre + rr[i]; });
    const double shift = team.max(n, to);
    const auto low_end = [=](std::int64_t i) { return xr[i] - centre - rr[i] - shift; };
    const double low_sum = team.sum_exp(n, low_end, [](std::int64_t, double e) { return e; });
    team.each_exp(
        n, [=](std::int64_t i) { return xr[i] - centre + rr[i] - shift; },
        [=](std::int64_t i, double e) { to[i] = e; });
    const double high_sum = team.sum(n, [=](std::int64_t i) { return to[i]; });
    // `sums` bounds the roundings of the sums and of what is left of them, `least` those of exponents, which matter
    // down to -745 and begin at 2 radii below.
    const double length = static_cast<double>(n), sums = (length + 4) * 0x1p-52, least = 4 * length * kLeast;
    const double exponents = (length + 1000 + largest) * 0x1p-50;
    team.each_exp(n, low_end, [=](std::int64_t i, double e) {
      const double raised = to[i] + least, lowered = std::max(0.0, e - least);
      const double low_rest = std::max(0.0, low_sum - lowered - sums * low_sum - 2 * least);
      const double high_rest = std::max(0.0, high_sum - to[i]) + sums * high_sum;
      const double high = raised / (raised + low_rest), low = lowered / (lowered + high_rest);
      const double distance = std::max(high - pr[i], pr[i] - low) + exponents * std::max(high, pr[i]) + least;
      // Probabilities: never further apart. A row that holds NaN, or may, has none.
      to[i] = largest < kInfinity && pr[i] == pr[i] ? (distance <= 1 ? distance : 1.0) : kInfinity;
    });
  }
};

// The row's log of the sum moves by at most its largest radius.
struct LogSoftmaxRow {
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t row, double* out, const double* radius) const {
    const double* const rr = radius + row * n;
    double* const to = out + row * n;
    const double largest = team.max(n, rr);
    team.each(n, [=](std::int64_t i) { to[i] = up(rr[i] + largest); });
  }
};

}  // namespace

Bound radius_softmax(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  const Array x = centres[0].materialize(), p = out.materialize();
  const Array radius = radii[0].values.expand(x.shape()).materialize();
  Bound bound{Array::uninitialized(out.shape())};
  const Rows rows = rows_of(x);
  loop::for_each_row(rows.count, rows.length, bound.values, SoftmaxRow{rows.length}, x, p, radius);
  return bound;
}

Bound radius_log_softmax(const Attributes&, Inputs, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  const Array radius = radii[0].values.expand(out.shape()).materialize();
  Bound bound{Array::uninitialized(out.shape())};
  const Rows rows = rows_of(radius);
  loop::for_each_row(rows.count, rows.length, bound.values, LogSoftmaxRow{rows.length}, radius);
  return bound;
}

Bound radius_window(const Attributes& attributes, Inputs, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return {traits(Primitive::kWindow).evaluate(attributes, out.shape(), {&radii[0].values, 1})};
}

Bound radius_assemble(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  std::vector<Array> parts;
  for (std::size_t i = 0; i < centres.size(); ++i) {
    parts.push_back(radii[i] ? radii[i].values : Array::scalar(0).expand(centres[i].shape()));
  }
  return {traits(Primitive::kAssemble).evaluate(attributes, out.shape(), parts)};
}

Bound radius_gather_rows(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (has_radius(radii[1])) return {Array::full(out.shape(), kInfinity)};
  if (!radii[0]) return {};
  return radius_by(Primitive::kGatherRows, attributes, {radii[0].values, centres[1]}, out);
}

Bound radius_scatter_add(const Attributes& attributes, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (has_radius(radii[1])) return {Array::full(out.shape(), kInfinity)};
  if (!radii[0]) return {};
  return unless_overflowed(
      Primitive::kScatterAdd, attributes, centres, out,
      radius_by(Primitive::kScatterAdd, attributes, {radii[0].values, centres[1]}, out, centres[1].count()));
}

}  // namespace plumbline::primitive
