#include "kernels/primitive/noise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/primitive/error_model.h"
#include "kernels/primitive/statistics.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

constexpr double kInflate = 1 + 0x1p-19;  // Above that of the local errors.

// Sum over [0, n) of term(i); chunks are added in order, whatever the number of threads.
template <class Term>
Noise sum_over(std::int64_t n, const Term& term) {
  constexpr std::int64_t kChunk = 1 << 15;
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
  std::vector<Noise> parts(static_cast<std::size_t>(chunks));
  cpu::parallel_for(chunks, 2, [&](std::int64_t first, std::int64_t last) {
    const Term of = term;  // Local: its operands stay in registers.
    for (std::int64_t c = first; c < last; ++c) {
      double bias = 0, squares = 0;
      const std::int64_t begin = c * kChunk, end = std::min(n, begin + kChunk);
#pragma omp simd reduction(+ : bias, squares)
      for (std::int64_t i = begin; i < end; ++i) {
        const Noise one = of(i);
        bias += one.bias;
        squares += one.squares;
      }
      parts[static_cast<std::size_t>(c)] = {bias, squares};
    }
  });
  Noise total;
  for (const Noise& part : parts) {
    total.bias += part.bias;
    total.squares += part.squares;
  }
  return total;
}

// One node's elements: cotangent a, result t, local error e, as row-major arrays.
struct Elements {
  Array a, t, e;
  std::int64_t count() const { return a.count(); }
};

Elements elements(const Array& out, const Bound& local, const Array& cotangent) {
  return {cotangent.materialize(), out.materialize(), local.values.expand(out.shape()).materialize()};
}

// Of an element whose events have half-widths with this sum of squares and whose bias is b. A cotangent of exactly 0
// adds nothing, even where a bound is infinite.
inline Noise charge(double a, double squares, double b) {
  const double bias = std::fabs(a) * b, square = a * a * squares;
  return {a == 0 ? 0.0 : bias, a == 0 ? 0.0 : square};
}

inline double square(double x) { return x * x; }

// Half-widths of the events of one rounding: of the result in the compute format, and of holding it in its own. A
// stochastic rounding goes to either neighbour with mean zero: an interval as wide as that of the nearest. What a
// directed one adds is bias.
struct Events {
  double u = 0, eta = 0;            // c = u |t| + eta
  double held_u = 0, held_eta = 0;  // The same.
  double reach = 1;                 // Largest error of an event in half-widths.
};

Events events(const Arithmetic& arithmetic) {
  Events result;
  if (is_float(arithmetic.compute)) {
    result.u = unit_roundoff(arithmetic.compute);
    result.eta = half_smallest_subnormal(arithmetic.compute);
  }
  if (storage(arithmetic).u > 0) {
    result.held_u = unit_roundoff(arithmetic.result);
    result.held_eta = half_smallest_subnormal(arithmetic.result);
  }
  result.reach = arithmetic.profile->rounding == Rounding::kStochastic ? 2 : 1;
  return result;
}

}  // namespace

Noise noise_of_rounding(const Arithmetic& arithmetic, const Array& out, const Bound& local, const Array& cotangent) {
  const Elements x = elements(out, local, cotangent);
  const Events one = events(arithmetic);
  const double *a = x.a.data(), *t = x.t.data(), *e = x.e.data();
  return sum_over(x.count(), [=](std::int64_t i) {
    const double magnitude = std::fabs(t[i]);
    const double c = one.u * magnitude + one.eta, c_held = one.held_u * magnitude * (1 + one.u) + one.held_eta;
    const double width = one.reach * (c + c_held) * kInflate;
    return charge(a[i], std::min(square(e[i]), square(c) + square(c_held)) * kInflate,
                  e[i] <= width ? 0.0 : e[i] - width);
  });
}

Noise noise_default(const Attributes&, const Arithmetic& arithmetic, Inputs, const Array& out, const Bound& local,
                    const Array& a) {
  return noise_of_rounding(arithmetic, out, local, a);
}

namespace {

// What an increment leaves behind when it is added to a running sum. One below half an ulp of the sum is lost whole;
// one of a few ulps is rounded to a multiple of an ulp whatever the sum is, with a mean error that only its own
// distribution decides. Beyond kStagnant u |sum|, four ulps, the errors of a smooth distribution have lost their mean.
// What is left has the increment's sign: increments of both signs cancel here as they do in the execution.
constexpr double kStagnant = 8;
inline double left_behind(double increment, double half_ulp) {
  const double magnitude = std::fabs(increment);
  return magnitude <= kStagnant * half_ulp ? std::copysign(std::min(magnitude, half_ulp), increment) : 0.0;
}

// Terms of rows to be summed: per row (reduced dimensions of size 1).
struct Terms {
  Array magnitude;  // sum |f(x)|
  Array lost;       // |sum| of what the terms leave behind at the largest running sum
  Array same;       // 1 where all terms that are not 0 are equal: their roundings are then one event each binade
};

// The running sums of a row, in any order and tree, lie between minus the sum of its negative and the sum of its
// positive terms: none exceeds (sum|x| + |sum x|) / 2.
template <class F>
Terms terms_of(const Array& x, const Shape& rows, double u, const F& f, const Array& sum) {
  Terms terms{Array::uninitialized(rows), Array::uninitialized(rows), Array::zeros(rows)};
  cpu::reduce<cpu::Sum>(
      terms.magnitude, false, x.shape(), [f](double v) { return std::fabs(f(v)); }, x);
  Array limit = Array::uninitialized(rows);
  cpu::map(
      limit, [u](double m, double t) { return u * 0.5 * (m + std::fabs(t)); }, terms.magnitude, sum);
  cpu::reduce<cpu::Sum>(
      terms.lost, false, x.shape(), [f](double v, double l) { return left_behind(f(v), l); }, x, limit);
  cpu::map(
      terms.lost, [](double l) { return std::fabs(l); }, terms.lost);
  // Equal terms: (sum x)^2 = n sum x^2 over those that are not 0; only rows of one sign can be such.
  bool one_sign = false;
  for (std::int64_t r = 0; r < sum.count(); ++r)
    one_sign = one_sign || std::fabs(sum.data()[r]) >= terms.magnitude.data()[r] * (1 - 1e-9);
  if (one_sign) {
    Array squares = Array::uninitialized(rows), nonzero = Array::uninitialized(rows);
    cpu::reduce<cpu::Sum>(
        squares, false, x.shape(), [f](double v) { return f(v) * f(v); }, x);
    cpu::reduce<cpu::Sum>(
        nonzero, false, x.shape(), [f](double v) { return f(v) != 0 ? 1.0 : 0.0; }, x);
    cpu::map(
        terms.same, [](double t, double q, double n) { return n > 2 && t * t >= n * q * (1 - 1e-9) ? 1.0 : 0.0; }, sum,
        squares, nonzero);
  }
  return terms;
}

// Units that truncate have no zero-mean model.
bool zero_mean(const Profile& profile) { return profile.rounding != Rounding::kTowardZero; }

}  // namespace

bool zero_mean_sums(const Profile& profile) { return zero_mean(profile) && profile.sum.k == 1 && profile.sum.c <= 1; }

// One event, and what increments leave behind: of both operands the smaller.
template <int kSecondSign>
Noise noise_add(const Attributes&, const Arithmetic& arithmetic, Inputs in, const Array& out, const Bound& local,
                const Array& cotangent) {
  Noise noise = noise_of_rounding(arithmetic, out, local, cotangent);
  if (!is_float(arithmetic.result)) return noise;
  const double u = unit_roundoff(storage(arithmetic).u > 0 ? arithmetic.result : arithmetic.compute);
  const Array a = cotangent.materialize(), t = out.materialize();
  const Array x = in[0].expand(out.shape()).materialize(), y = in[1].expand(out.shape()).materialize();
  const double *ap = a.data(), *tp = t.data(), *xp = x.data(), *yp = y.data();
  const Noise left = sum_over(a.count(), [=](std::int64_t i) {
    const double second = kSecondSign * yp[i], increment = std::fabs(xp[i]) < std::fabs(second) ? xp[i] : second;
    const double lost = ap[i] * left_behind(increment, u * std::fabs(tp[i]));
    return Noise{ap[i] == 0 ? 0.0 : lost, 0};  // Signed.
  });
  noise.bias += std::fabs(left.bias);
  return noise;
}
template Noise noise_add<1>(const Attributes&, const Arithmetic&, Inputs, const Array&, const Bound&, const Array&);
template Noise noise_add<-1>(const Attributes&, const Arithmetic&, Inputs, const Array&, const Bound&, const Array&);

// n - 1 additions, each an event of half-width u |running sum|.
Noise noise_sum(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in, const Array& out,
                const Bound& local, const Array& cotangent) {
  if (!zero_mean_sums(*arithmetic.profile)) return noise_of_rounding(arithmetic, out, local, cotangent);
  const Array& x = in[0];
  const Shape rows = reduced_shape(x.shape(), attributes.dims);
  const double u = unit_roundoff(arithmetic.compute);
  const Elements el = elements(out, local, cotangent);
  const Terms terms = terms_of(
      x, rows, u, [](double v) { return v; }, el.t.reshape(rows));
  const auto additions =
      static_cast<double>(std::max<std::int64_t>(0, x.count() / std::max<std::int64_t>(1, out.count()) - 1));
  const Storage held = storage(arithmetic);
  const double *a = el.a.data(), *t = el.t.data(), *e = el.e.data();
  const double *magnitude = terms.magnitude.data(), *lost = terms.lost.data(), *same = terms.same.data();
  return sum_over(el.count(), [=](std::int64_t i) {
    const double stored = held.u * std::fabs(t[i]) + held.eta;
    if (e[i] <= stored * kInflate) return charge(a[i], square(stored), 0);  // The sum itself is exact.
    const double largest = 0.5 * (magnitude[i] + std::fabs(t[i]));
    const double squares = additions * square(u * largest) + square(stored);
    return charge(a[i], squares * kInflate, same[i] != 0 ? e[i] : std::min(e[i], lost[i]));
  });
}

// Row r takes count_r - 1 additions, whose errors are together within e_r: e_r^2 / (count_r - 1) in squares. Long rows
// may stagnate, and are charged whole.
Noise noise_scatter_add(const Attributes&, const Arithmetic& arithmetic, Inputs in, const Array& out,
                        const Bound& local, const Array& cotangent) {
  constexpr double kLong = 4096;
  const Elements el = elements(out, local, cotangent);
  const std::int64_t rows = out.shape().empty() ? 1 : out.shape()[0];
  if (rows == 0 || el.count() == 0) return {};
  std::vector<double> additions(static_cast<std::size_t>(rows), -1.0);
  const Array index = in[1].materialize();
  for (std::int64_t i = 0; i < index.count(); ++i) {
    const auto r = static_cast<std::int64_t>(index.data()[i]);
    if (r >= 0 && r < rows) additions[static_cast<std::size_t>(r)] += 1;
  }
  const std::int64_t length = el.count() / rows;
  const Storage held = storage(arithmetic);
  const double *a = el.a.data(), *t = el.t.data(), *e = el.e.data(), *count = additions.data();
  return sum_over(el.count(), [=](std::int64_t i) {
    const double n = count[i / length];
    if (n > kLong) return charge(a[i], 0, e[i]);
    const double stored = held.u * std::fabs(t[i]) + held.eta;
    return charge(a[i], (square(std::max(0.0, e[i] - stored)) / std::max(1.0, n) + square(stored)) * kInflate, 0);
  });
}

namespace {

// The share of sum|terms| that running sums may swallow, from outputs drawn at random: its mean and three standard
// errors. All of it where the terms are equal.
double swallowed_share(const Array& a, const Array& b, const Array& out, double u) {
  constexpr int kSamples = 64;
  const std::int64_t m = a.shape()[a.shape().size() - 2], k = a.shape().back(), n = b.shape().back();
  const Shape& shape = out.shape();
  if (out.count() == 0 || k < 3) return 0;
  Shape lead(shape.begin(), shape.end() - 2);
  const auto widen = [&](const Array& x) {
    Shape full = lead;
    full.push_back(x.shape()[x.shape().size() - 2]);
    full.push_back(x.shape().back());
    return x.expand(full);
  };
  const Array wide_a = widen(a), wide_b = widen(b);
  double shares = 0, shares_squared = 0;
  std::uint64_t state = 0x9e3779b97f4a7c15ULL;
  for (int s = 0; s < kSamples; ++s) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    auto at = static_cast<std::int64_t>((state >> 11) % static_cast<std::uint64_t>(out.count()));
    const std::int64_t j = at % n, i = at / n % m;
    std::int64_t rest = at / n / m, offset_a = 0, offset_b = 0;
    for (std::size_t d = lead.size(); d-- > 0;) {
      offset_a += rest % lead[d] * wide_a.strides()[d];
      offset_b += rest % lead[d] * wide_b.strides()[d];
      rest /= lead[d];
    }
    const std::size_t r = lead.size();
    const double* pa = wide_a.data() + offset_a + i * wide_a.strides()[r];
    const double* pb = wide_b.data() + offset_b + j * wide_b.strides()[r + 1];
    const std::int64_t step_a = wide_a.strides()[r + 1], step_b = wide_b.strides()[r];
    double magnitude = 0, total = 0, squares = 0, nonzero = 0, lost = 0;
    for (std::int64_t l = 0; l < k; ++l) {
      const double term = pa[l * step_a] * pb[l * step_b];
      magnitude += std::fabs(term);
      total += term;
      squares += term * term;
      nonzero += term != 0 ? 1 : 0;
    }
    const double limit = u * 0.5 * (magnitude + std::fabs(total));
    for (std::int64_t l = 0; l < k; ++l) {
      lost += left_behind(pa[l * step_a] * pb[l * step_b], limit);
    }
    if (!(magnitude > 0)) continue;
    const bool equal = nonzero > 2 && total * total >= nonzero * squares * (1 - 1e-9);
    const double share = equal ? 1 : std::fabs(lost) / magnitude;
    shares += share;
    shares_squared += share * share;
  }
  const double mean = shares / kSamples;
  const double variance = std::max(0.0, shares_squared / kSamples - mean * mean);
  return mean + 3 * std::sqrt(variance / kSamples);
}

}  // namespace

// k products and k - 1 additions, or k FMAs. With P = (|A||B| + |AB|)/2 above every running sum, the additions are
// events with squares (k-1) (u P)^2; the products' are u^2 sum x^2 <= u^2 P |A||B| <= 2 (u P)^2. |A||B| is read off the
// local error, factor |A||B| from above. What running sums swallow is estimated on sampled elements of the result.
Noise noise_matmul(const Attributes&, const Arithmetic& arithmetic, Inputs in, const Array& out, const Bound& local,
                   const Array& cotangent) {
  const std::int64_t terms = in[0].shape().back();
  const ProductError product = product_error(arithmetic, terms);
  if (!zero_mean(*arithmetic.profile) || !product.rounds_each || !(product.factor > 0))
    return noise_of_rounding(arithmetic, out, local, cotangent);
  const auto k = static_cast<double>(terms);
  const double u = unit_roundoff(arithmetic.compute);
  const Elements el = elements(out, local, cotangent);
  const Storage held = storage(arithmetic);
  const double share = swallowed_share(in[0], in[1], out, u);
  const double *a = el.a.data(), *t = el.t.data(), *e = el.e.data();
  return sum_over(el.count(), [=](std::int64_t i) {
    const double stored = held.u * std::fabs(t[i]) + held.eta;
    const double accumulated = std::max(0.0, e[i] - stored), magnitude = accumulated / product.factor;
    const double largest = 0.5 * (magnitude + std::min(std::fabs(t[i]), magnitude));
    return charge(a[i], ((k + 1) * square(u * largest) + square(stored)) * kInflate,
                  std::min(accumulated, share * magnitude));
  });
}

// t = sqrt(sum x^2): the sum's events in squares, halved by the root, whose own event is u t. No running sum exceeds
// the whole.
Noise noise_norm(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in, const Array& out,
                 const Bound& local, const Array& cotangent) {
  if (!zero_mean_sums(*arithmetic.profile)) return noise_of_rounding(arithmetic, out, local, cotangent);
  const Array& x = in[0];
  const Shape rows = reduced_shape(x.shape(), attributes.dims);
  const double u = unit_roundoff(arithmetic.compute);
  const Elements el = elements(out, local, cotangent);
  Array sum = Array::uninitialized(rows);
  cpu::map(
      sum, [](double t) { return t * t; }, el.t.reshape(rows));
  const Terms terms = terms_of(
      x, rows, u, [](double v) { return v * v; }, sum);
  const std::int64_t terms_each = x.count() / std::max<std::int64_t>(1, out.count());
  const auto n = static_cast<double>(terms_each);
  const Storage held = storage(arithmetic);
  const double *a = el.a.data(), *t = el.t.data(), *e = el.e.data();
  const double *lost = terms.lost.data(), *same = terms.same.data();
  return sum_over(el.count(), [=](std::int64_t i) {
    const double squares = (0.25 * (n + 1) + 1) * square(u * t[i]) + square(held.u * t[i] + held.eta);
    const double swallowed = t[i] > 0 ? 0.5 * lost[i] / t[i] : 0;
    return charge(a[i], squares * kInflate, same[i] != 0 ? e[i] : std::min(e[i], swallowed));
  });
}

// r = (v + eps)^(-1/2). The local error is A n + B: A n of the n-term sums for mean and variance, B of the root and the
// reciprocal (function_units). The sums' events add in squares: A n / sqrt(n) covers them, since their half-widths are
// within A each; the root's and the addition of eps are 3 u r. Bias: the root's error beyond half an ulp, and squares
// (x - mean)^2 that the running sum swallows. An error too large to be linear is bias altogether.
Noise noise_variance_rsqrt(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in, const Array& out,
                           const Bound& local, const Array& cotangent) {
  if (!zero_mean_sums(*arithmetic.profile)) return noise_of_rounding(arithmetic, out, local, cotangent);
  const Array& x = in[0];
  const Statistics stats = statistics(x, attributes.dims);
  const Shape& rows = stats.mean.shape();
  const double u = unit_roundoff(arithmetic.compute);
  const auto n = static_cast<double>(stats.terms);
  Array limit = Array::uninitialized(rows), lost = Array::uninitialized(rows);
  cpu::map(
      limit, [u, n](double v) { return u * n * v; }, stats.variance);
  cpu::reduce<cpu::Sum>(
      lost, false, x.shape(),
      [](double value, double mean, double l) { return left_behind((value - mean) * (value - mean), l); }, x,
      stats.mean, limit);
  const Elements el = elements(out, local, cotangent);
  const Storage held = storage(arithmetic);
  const double root = function_bound(Function::kRsqrt, arithmetic).relative;
  const double *a = el.a.data(), *r = el.t.data(), *e = el.e.data(), *swallowed = lost.data();
  return sum_over(el.count(), [=](std::int64_t i) {
    const double stored = held.u * r[i] + held.eta;
    const double of_sums = std::max(0.0, e[i] - stored - r[i] * root);
    if (!(of_sums <= r[i] / 4)) return charge(a[i], 0, e[i]);
    const double bias = r[i] * (root - u) + 0.5 * r[i] * r[i] * r[i] * swallowed[i] / n;
    const double squares = square(of_sums) / n + square(3 * u * r[i]) + square(stored);
    return charge(a[i], squares * kInflate, std::min(e[i], bias));
  });
}

}  // namespace plumbline::primitive
