#include "kernels/primitive/noise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/patches.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/product_above.h"
#include "kernels/primitive/rounding.h"
#include "kernels/primitive/statistics.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

constexpr double kLong = 4096;  // Terms, above which a running sum may stagnate.

struct Square {
  PLUMBLINE_HOST_DEVICE double operator()(double x) const { return x * x; }
};

// One node's elements, row-major: result t, local error e.
struct Elements {
  Elements(const Array& out, const Bound& local)
      : t(out.materialize()), e(local.values.expand(out.shape()).materialize()) {}
  Array t, e;
};

// Sums of an element: |a| e, and the bias, squares and perhaps drift that f makes of it.
template <class F>
struct WithWhole {
  F f;

  template <class... Others>
  PLUMBLINE_HOST_DEVICE Totals<4> operator()(double a, double t, double e, Others... others) const {
    const auto noise = f(a, t, e, others...);
    Totals<4> sums{{whole_charge(a, e), noise.of[0], noise.of[1], 0}};
    if constexpr (decltype(noise)::kCount > 2) sums.of[3] = noise.of[2];
    return sums;
  }
};

// A functional's: the sum of f(a, t, e, others...) over the node's elements.
template <class F, class... Arrays>
Later<std::vector<Charge>> charges_of(const F& f, std::span<const Array> cotangents, const Elements& x,
                                      const Arrays&... others) {
  std::vector<Array> each;
  for (const Array& cotangent : cotangents) each.push_back(cotangent.materialize());
  return loop::totals(WithWhole<F>{f}, x.t.count(), each, x.t, x.e, others...)
      .then([](const std::vector<Totals<4>>& all) {
        std::vector<Charge> charges;
        for (const Totals<4>& sums : all) charges.push_back(charge_of(sums));
        return charges;
      });
}

}  // namespace

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

namespace {

struct SecondSignOf {
  template <class E>
  int operator()(E) const {
    return E::Error::kSecondSign;
  }
};

}  // namespace

ElementRounding rounding_of(Primitive primitive, const Attributes& attributes, const Arithmetic& arithmetic) {
  ElementRounding rounding{element::local_error(primitive, attributes, arithmetic),
                           element::flushed_below(primitive, arithmetic), events(arithmetic)};
  rounding.sign = element::visit(primitive, SecondSignOf{});
  if (rounding.sign != 0 && is_float(arithmetic.result))
    rounding.dropped_u = unit_roundoff(storage(arithmetic).u > 0 ? arithmetic.result : arithmetic.compute);
  return rounding;
}

Later<std::vector<Charge>> noise_of_rounding(const Arithmetic& arithmetic, const Array& out, const Bound& local,
                                             std::span<const Array> cotangents) {
  const Events one = events(arithmetic);
  return charges_of([one] PLUMBLINE_HOST_DEVICE(double a, double t, double e) { return one.charge(a, t, e); },
                    cotangents, {out, local});
}

Later<std::vector<Charge>> noise_default(const Attributes&, const Arithmetic& arithmetic, Inputs, const Array& out,
                                         const Bound& local, std::span<const Array> cotangents) {
  return noise_of_rounding(arithmetic, out, local, cotangents);
}

namespace {

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
  loop::reduce<scalar::Sum>(
      terms.magnitude, false, x.shape(), [f] PLUMBLINE_HOST_DEVICE(double v) { return std::fabs(f(v)); }, x);
  Array limit = Array::uninitialized(rows);
  loop::map(
      limit, [u] PLUMBLINE_HOST_DEVICE(double m, double t) { return u * 0.5 * (m + std::fabs(t)); }, terms.magnitude,
      sum);
  loop::reduce<scalar::Sum>(
      terms.lost, false, x.shape(), [f] PLUMBLINE_HOST_DEVICE(double v, double l) { return left_behind(f(v), l); }, x,
      limit);
  loop::map(
      terms.lost, [] PLUMBLINE_HOST_DEVICE(double l) { return std::fabs(l); }, terms.lost);
  // Equal terms: (sum x)^2 = n sum x^2 over those that are not 0; only rows of one sign can be such.
  Array one_sign = Array::uninitialized(rows);
  loop::map(
      one_sign, [] PLUMBLINE_HOST_DEVICE(double t, double m) { return std::fabs(t) >= m * (1 - 1e-9) ? 1.0 : 0.0; },
      sum, terms.magnitude);
  // A device is not waited for.
  if (one_sign.away() || loop::any([] PLUMBLINE_HOST_DEVICE(double one) { return one != 0; }, one_sign).item() != 0) {
    Array squares = Array::uninitialized(rows), nonzero = Array::uninitialized(rows);
    loop::reduce<scalar::Sum>(
        squares, false, x.shape(), [f] PLUMBLINE_HOST_DEVICE(double v) { return f(v) * f(v); }, x);
    loop::reduce<scalar::Sum>(
        nonzero, false, x.shape(), [f] PLUMBLINE_HOST_DEVICE(double v) { return f(v) != 0 ? 1.0 : 0.0; }, x);
    loop::map(
        terms.same,
        [] PLUMBLINE_HOST_DEVICE(double t, double q, double n) {
          return n > 2 && t * t >= n * q * (1 - 1e-9) ? 1.0 : 0.0;
        },
        sum, squares, nonzero);
  }
  return terms;
}

// Units that truncate have no zero-mean model.
bool zero_mean(const Profile& profile) { return profile.rounding != Rounding::kTowardZero; }

}  // namespace

bool zero_mean_sums(const Profile& profile) { return zero_mean(profile) && profile.sum.k == 1 && profile.sum.c <= 1; }

// One event, and what increments leave behind: of both operands the smaller.
template <int kSecondSign>
Later<std::vector<Charge>> noise_add(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in,
                                     const Array& out, const Bound& local, std::span<const Array> cotangents) {
  const Elements el(out, local);
  const ElementRounding rounding =
      rounding_of(kSecondSign > 0 ? Primitive::kAdd : Primitive::kSub, attributes, arithmetic);
  const Array x = in[0].expand(out.shape()).materialize(), y = in[1].expand(out.shape()).materialize();
  const Events one = rounding.events;
  const double u = rounding.dropped_u;
  const bool absorbs = rounding.error.absorbs;
  return charges_of(
      [one, u, absorbs] PLUMBLINE_HOST_DEVICE(double a, double t, double e, double first, double second) {
        const Totals<2> both = one.charge(a, t, e);
        return Totals<3>{{both.of[0], both.of[1], dropped(a, t, first, second, kSecondSign, u, absorbs)}};
      },
      cotangents, el, x, y);
}
template decltype(noise_default) noise_add<1>;
template decltype(noise_default) noise_add<-1>;

// n - 1 additions, each an event of half-width u |running sum|. What is in parts that are narrowed is charged whole.
Later<std::vector<Charge>> noise_sum(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in,
                                     const Array& out, const Bound& local, std::span<const Array> cotangents) {
  if (!zero_mean_sums(*arithmetic.profile) || narrows_parts(attributes, arithmetic))
    return noise_of_rounding(arithmetic, out, local, cotangents);
  const Array& x = in[0];
  const Shape rows = reduced_shape(x.shape(), attributes.dims);
  const double u = unit_roundoff(arithmetic.compute);
  const Elements el(out, local);
  const Terms terms = terms_of(x, rows, u, loop::Copy{}, el.t.reshape(rows));
  const auto additions =
      static_cast<double>(std::max<std::int64_t>(0, x.count() / std::max<std::int64_t>(1, out.count()) - 1));
  const Storage held = storage(arithmetic);
  return charges_of(
      [held, u, additions] PLUMBLINE_HOST_DEVICE(double a, double t, double e, double magnitude, double lost,
                                                 double same) {
        const double stored = held.u * std::fabs(t) + held.eta;
        if (e <= stored * kNoiseInflate) return charge(a, square(stored), 0);  // The sum itself is exact.
        const double largest = 0.5 * (magnitude + std::fabs(t));
        const double squares = additions * square(u * largest) + square(stored);
        return charge(a, squares * kNoiseInflate, same != 0 ? e : std::min(e, lost));
      },
      cotangents, el, terms.magnitude, terms.lost, terms.same);
}

// Row r takes count_r - 1 additions, whose errors are together within e_r: e_r^2 / (count_r - 1) in squares. Long rows
// may stagnate, and are charged whole.
Later<std::vector<Charge>> noise_scatter_add(const Attributes&, const Arithmetic& arithmetic, Inputs in,
                                             const Array& out, const Bound& local, std::span<const Array> cotangents) {
  const Elements el(out, local);
  const std::int64_t rows = out.shape().empty() ? 1 : out.shape()[0];
  if (rows == 0 || out.count() == 0) return std::vector<Charge>(cotangents.size());
  // Ones, scattered like the rows: what row r takes.
  const std::vector<Array> ones = {Array::full({in[1].count(), 1}, 1.0), in[1]};
  const Array taken = traits(Primitive::kScatterAdd).evaluate({}, {rows, 1}, ones);
  const std::int64_t length = out.count() / rows;
  const Array additions = taken.expand({rows, length}).materialize();
  const Storage held = storage(arithmetic);
  return charges_of(
      [held] PLUMBLINE_HOST_DEVICE(double a, double t, double e, double terms) {
        const double n = terms - 1;
        if (n > kLong) return charge(a, 0, e);
        const double stored = held.u * std::fabs(t) + held.eta;
        return charge(a, (square(std::max(0.0, e - stored)) / std::max(1.0, n) + square(stored)) * kNoiseInflate, 0);
      },
      cotangents, el, additions);
}

namespace {

constexpr int kSamples = 64;

// One row for each sampled element of a product, whose terms lie at a + steps, b + steps; its sum takes c besides.
struct Swallowed {
  std::int64_t a[kSamples], b[kSamples], c[kSamples];
  std::int64_t step_a, step_b, k;
  double u;

  // All terms side by side, from where they lie far apart in memory; what is left is to read them from there.
  Array gather(const Array& all_a, const Array& all_b, const Array& alpha) {
    Array terms = Array::uninitialized({kSamples, k});
    double* const to_all = terms.data();
    cpu::parallel_for(kSamples, 2, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t s = begin; s < end; ++s) {
        const double *const pa = all_a.data() + a[s], *const pb = all_b.data() + b[s], factor = *alpha.data();
        double* const to = to_all + s * k;
        for (std::int64_t l = 0; l < k; ++l) to[l] = factor * pa[l * step_a] * pb[l * step_b];
      }
    });
    for (int s = 0; s < kSamples; ++s) {
      a[s] = s * k;
      b[s] = 0;
    }
    step_a = 1;
    step_b = 0;
    return terms;
  }

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t s, double* out, const double* all_a, const double* all_b,
                                const double* all_c, const double* alpha) const {
    const double *const pa = all_a + a[s], *const pb = all_b + b[s];
    const double besides = all_c[c[s]], factor = *alpha;
    const auto term = [=, this](std::int64_t l) { return factor * pa[l * step_a] * pb[l * step_b]; };
    const double magnitude = team.sum(k, [=](std::int64_t l) { return std::fabs(term(l)); });
    const double total = team.sum(k, term);
    const double squares = team.sum(k, [=](std::int64_t l) { return term(l) * term(l); });
    const double nonzero = team.sum(k, [=](std::int64_t l) { return term(l) != 0 ? 1.0 : 0.0; });
    const double whole = magnitude + std::fabs(besides);
    const double limit = u * 0.5 * (whole + std::fabs(total + besides));
    const double lost =
        team.sum(k, [=](std::int64_t l) { return left_behind(term(l), limit); }) + left_behind(besides, limit);
    const bool equal = nonzero > 2 && total * total >= nonzero * squares * (1 - 1e-9);
    if (team.first()) out[s] = !(whole > 0) ? 0.0 : equal ? 1.0 : std::fabs(lost) / whole;
  }
};

// The share of sum|terms| that running sums may swallow, from outputs drawn at random: its mean and three standard
// errors. All of it where the terms are equal.
Later<double> swallowed_share(Inputs in, const Array& out, double u) {
  const Array &a = in[0], &b = in[1];
  const std::int64_t m = a.shape()[a.shape().size() - 2], k = a.shape().back(), n = out.shape().back();
  const Shape& shape = out.shape();
  if (out.count() == 0 || k < 3) return 0.0;
  Shape lead(shape.begin(), shape.end() - 2);
  const auto widen = [&](const Array& x) {
    Shape full = lead;
    full.push_back(x.shape()[x.shape().size() - 2]);
    full.push_back(x.shape().back());
    return x.expand(full);
  };
  Array of_samples = Array::uninitialized({kSamples});
  std::vector<std::int64_t> drawn(kSamples);
  std::uint64_t state = 0x9e3779b97f4a7c15ULL;
  for (std::int64_t& at : drawn) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    at = static_cast<std::int64_t>((state >> 11) % static_cast<std::uint64_t>(out.count()));
  }
  const bool patches = of_patches(b, shape);  // Of these, the columns that are drawn are b, one for each row.
  const Array wide_b = loop::placed(of_samples, patches ? cpu::columns_of_patches(b, shape, k, drawn) : widen(b));
  const Array wide_a = loop::placed(of_samples, widen(a));
  const Array c = loop::placed(of_samples, in.size() > 2 ? in[2] : Array::scalar(0).expand(shape));
  const std::size_t r = lead.size();
  Swallowed row{{}, {}, {}, wide_a.strides()[r + 1], patches ? 1 : wide_b.strides()[r], k, u};
  for (int s = 0; s < kSamples; ++s) {
    const std::int64_t at = drawn[static_cast<std::size_t>(s)];
    row.a[s] = at / n % m * wide_a.strides()[r];
    row.b[s] = patches ? s * k : at % n * wide_b.strides()[r + 1];
    row.c[s] = at / n % m * c.strides()[r] + at % n * c.strides()[r + 1];
    std::int64_t rest = at / n / m;
    for (std::size_t d = r; d-- > 0;) {
      row.a[s] += rest % lead[d] * wide_a.strides()[d];
      if (!patches) row.b[s] += rest % lead[d] * wide_b.strides()[d];
      row.c[s] += rest % lead[d] * c.strides()[d];
      rest /= lead[d];
    }
  }
  if (current_device() == nullptr) {
    const Array terms = row.gather(wide_a, wide_b, alpha_of(in)), one = Array::scalar(1);
    loop::for_each_row(kSamples, k, of_samples, row, terms, one, c, one);
  } else {
    loop::for_each_row(kSamples, k, of_samples, row, wide_a, wide_b, c, alpha_of(in));
  }
  return later(of_samples, [](const double* share) {
    double shares = 0, shares_squared = 0;
    for (int s = 0; s < kSamples; ++s) {
      shares += share[s];
      shares_squared += share[s] * share[s];
    }
    const double mean = shares / kSamples;
    const double variance = std::max(0.0, shares_squared / kSamples - mean * mean);
    return mean + 3 * std::sqrt(variance / kSamples);
  });
}

}  // namespace

// k products and k - 1 additions, or k FMAs. With P = (|A||B| + |AB|)/2 above every running sum, the additions are
// events with squares (k-1) (u P)^2; the products' are u^2 sum x^2 <= u^2 P |A||B| <= 2 (u P)^2. |A||B| is read off the
// local error, factor |A||B| from above. What running sums swallow is estimated on sampled elements of the result.
//
// c + alpha AB: c is a term more of all of these. Partial sums p that a kernel scales by alpha are events within u|p|,
// together no larger than the products'.
Later<std::vector<Charge>> noise_matmul(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in,
                                        const Array& out, const Bound& local, std::span<const Array> cotangents) {
  const bool begun = in.size() > 2;
  const std::int64_t terms = in[0].shape().back();
  const ProductError product = product_error(arithmetic, product_terms(attributes, in));
  if (!zero_mean(*arithmetic.profile) || !product.rounds_each || !(product.factor > 0))
    return noise_of_rounding(arithmetic, out, local, cotangents);
  const double roundings = static_cast<double>(terms) + (begun ? 4 : 1);
  const double u = unit_roundoff(arithmetic.compute);
  const Elements el(out, local);
  const Storage held = storage(arithmetic);
  const double factor = product.factor;
  // min(accumulated, share magnitude) is accumulated, which is factor magnitude, times min(1, share / factor): a share
  // that is still on its way is taken for all at first.
  const Later<double> swallowed = swallowed_share(in, out, u);
  const double share = swallowed.known() ? swallowed.get() : factor;
  const auto charges = charges_of(
      [held, factor, share, roundings, u] PLUMBLINE_HOST_DEVICE(double a, double t, double e) {
        const double stored = held.u * std::fabs(t) + held.eta;
        const double accumulated = std::max(0.0, e - stored), magnitude = accumulated / factor;
        const double largest = 0.5 * (magnitude + std::min(std::fabs(t), magnitude));
        return charge(a, (roundings * square(u * largest) + square(stored)) * kNoiseInflate,
                      std::min(accumulated, share * magnitude));
      },
      cotangents, el);
  if (swallowed.known()) return charges;
  return charges.then([swallowed, factor](std::vector<Charge> all) {
    const double part = std::min(1.0, swallowed.get() / factor) * (1 + 0x1p-40);
    for (Charge& charge : all)
      if (std::isfinite(charge.noise.bias)) charge.noise.bias *= part;
    return all;
  });
}

// t = sqrt(sum x^2): the sum's events in squares, halved by the root, whose own event is u t. No running sum exceeds
// the whole.
Later<std::vector<Charge>> noise_norm(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in,
                                      const Array& out, const Bound& local, std::span<const Array> cotangents) {
  if (!zero_mean_sums(*arithmetic.profile)) return noise_of_rounding(arithmetic, out, local, cotangents);
  const Array& x = in[0];
  const Shape rows = reduced_shape(x.shape(), attributes.dims);
  const double u = unit_roundoff(arithmetic.compute);
  const Elements el(out, local);
  Array sum = Array::uninitialized(rows);
  loop::map(
      sum, [] PLUMBLINE_HOST_DEVICE(double t) { return t * t; }, el.t.reshape(rows));
  const Terms terms = terms_of(x, rows, u, Square{}, sum);
  const std::int64_t terms_each = x.count() / std::max<std::int64_t>(1, out.count());
  const auto n = static_cast<double>(terms_each);
  const Storage held = storage(arithmetic);
  return charges_of(
      [held, n, u] PLUMBLINE_HOST_DEVICE(double a, double t, double e, double lost, double same) {
        const double squares = (0.25 * (n + 1) + 1) * square(u * t) + square(held.u * t + held.eta);
        const double swallowed = t > 0 ? 0.5 * lost / t : 0;
        return charge(a, squares * kNoiseInflate, same != 0 ? e : std::min(e, swallowed));
      },
      cotangents, el, terms.lost, terms.same);
}

// r = (v + eps)^(-1/2). The local error is A n + B: A n of the n-term sums for mean and variance, B of the root and the
// reciprocal (function_units). The sums' events add in squares: A n / sqrt(n) covers them, since their half-widths are
// within A each; the root's and the addition of eps are 3 u r. Bias: the root's error beyond half an ulp, and squares
// (x - mean)^2 that the running sum swallows. An error too large to be linear is bias altogether.
Later<std::vector<Charge>> noise_variance_rsqrt(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in,
                                                const Array& out, const Bound& local,
                                                std::span<const Array> cotangents) {
  if (!zero_mean_sums(*arithmetic.profile)) return noise_of_rounding(arithmetic, out, local, cotangents);
  const Array& x = in[0];
  const Statistics stats = statistics(x, attributes.dims);
  const Shape& rows = stats.mean.shape();
  const double u = unit_roundoff(arithmetic.compute);
  const auto n = static_cast<double>(stats.terms);
  Array limit = Array::uninitialized(rows), lost = Array::uninitialized(rows);
  loop::map(
      limit, [u, n] PLUMBLINE_HOST_DEVICE(double v) { return u * n * v; }, stats.variance);
  loop::reduce<scalar::Sum>(
      lost, false, x.shape(),
      [] PLUMBLINE_HOST_DEVICE(double value, double mean, double l) {
        return left_behind((value - mean) * (value - mean), l);
      },
      x, stats.mean, limit);
  const Elements el(out, local);
  const Storage held = storage(arithmetic);
  const double root = function_bound(Function::kRsqrt, arithmetic).relative;
  return charges_of(
      [held, root, u, n] PLUMBLINE_HOST_DEVICE(double a, double r, double e, double swallowed) {
        const double stored = held.u * r + held.eta;
        const double of_sums = std::max(0.0, e - stored - r * root);
        if (!(of_sums <= r / 4)) return charge(a, 0, e);
        const double bias = r * (root - u) + 0.5 * r * r * r * swallowed / n;
        const double squares = square(of_sums) / n + square(3 * u * r) + square(stored);
        return charge(a, squares * kNoiseInflate, std::min(e, bias));
      },
      cotangents, el, lost);
}

}  // namespace plumbline::primitive
