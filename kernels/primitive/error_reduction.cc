// Local errors of sums, products and statistics. Any order of summation, any tree, FMA or not.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/gemm.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/product_above.h"
#include "kernels/primitive/statistics.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

struct Square {
  PLUMBLINE_HOST_DEVICE double operator()(double x) const { return x * x; }
};

struct Absolute {
  PLUMBLINE_HOST_DEVICE double operator()(double x) const { return std::fabs(x); }
};

// Scans and scattered sums are added in any order: a tree that a profile declares does not apply to them.
Accumulation of_any_order(Accumulation kind) {
  kind.tree = false;
  return kind;
}

bool exact(const Arithmetic& arithmetic) { return !is_float(arithmetic.compute) || !is_float(arithmetic.result); }

// Sums of whole numbers (counts) are exact while sum|x| <= 1/u; of others none is said to be. One element, where x
// lies.
Array exact_sums_below(const Array& x, const Arithmetic& arithmetic) {
  Array below = loop::any([] PLUMBLINE_HOST_DEVICE(double v) { return v != std::trunc(v); }, x.materialize());
  const double whole = 1 / unit_roundoff(arithmetic.compute);
  loop::map(
      below, [whole] PLUMBLINE_HOST_DEVICE(double broken) { return broken != 0 ? 0.0 : whole; }, below);
  return below;
}

}  // namespace

// n - 1 additions, each rounded to nearest: at most (n-1) u sum|x| in any order, with no higher-order term (Jeannerod
// and Rump, 2013). Sums of subnormals are exact, unless they are flushed. A running mean, whose error its lowering
// counts in additions, is not exact even of whole numbers. Where each term is in r parts that are rounded to a narrower
// format, of unit roundoff w, these add (1 + w)^r - 1, and what is lost below its smallest number; a part may overflow
// where sum|x| does.
Bound error_sum(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in, const Array& out) {
  if (exact(arithmetic)) return {};
  const Array& x = in[0];
  const std::int64_t terms = out.count() == 0 ? 0 : std::max(attributes.size, x.count() / out.count());
  double factor = accumulation_error(arithmetic.profile->sum, terms - 1, arithmetic);
  double lost = static_cast<double>(terms) * sum_underflow(arithmetic);
  double most = kInfinity;
  const bool narrows = narrows_parts(attributes, arithmetic);
  if (narrows) {
    const double parts = std::pow(1 + unit_roundoff(attributes.narrow), attributes.scalar2);
    factor = (factor + 1) * parts * (1 + 0x1p-20) - 1;  // Above the rounding of the power.
    most = largest_finite(attributes.narrow) / parts;
    lost =
        parts * (lost + static_cast<double>(terms) * attributes.scalar2 * half_smallest_subnormal(attributes.narrow));
  }
  if (factor == 0 && lost == 0) return with_storage_rounding(arithmetic, out, {});
  Array sum = Array::uninitialized(reduced_shape(x.shape(), attributes.dims));
  loop::reduce<scalar::Sum>(sum, false, x.shape(), Absolute{}, x);
  const bool inexact = attributes.scalar != 0 || narrows;
  const Array exact_below = inexact ? Array::scalar(-1) : exact_sums_below(x, arithmetic);
  loop::map(
      sum,
      [factor, lost, most] PLUMBLINE_HOST_DEVICE(double s, double below) {
        return s <= below ? 0 : s > most ? kInfinity : factor * s + lost;
      },
      sum, exact_below);
  return with_storage_rounding(arithmetic, out, {sum.reshape(out.shape())});
}

// Element i (from 1) is a sum of i terms: (i-1) u times the prefix sum of |x|, whatever the shape of the scan.
Bound error_cumsum(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in, const Array& out) {
  if (exact(arithmetic) || out.shape().empty()) return with_storage_rounding(arithmetic, out, {});
  Array absolute = Array::uninitialized(out.shape());
  loop::map(absolute, Absolute{}, in[0]);
  Array prefix = traits(Primitive::kCumsum).evaluate(attributes, out.shape(), {&absolute, 1});
  const auto d = static_cast<std::size_t>(attributes.dims[0]);
  Array factor = Array::uninitialized({out.shape()[d]});
  const Accumulation untold = of_any_order(arithmetic.profile->sum);
  double* const factors = factor.data();
  for (std::int64_t i = 0; i < factor.count(); ++i) factors[i] = accumulation_error(untold, i, arithmetic);
  Shape column(out.shape().size(), 1);
  column[d] = factor.count();
  const double lost = static_cast<double>(factor.count()) * sum_underflow(arithmetic);
  loop::map(
      prefix, [lost] PLUMBLINE_HOST_DEVICE(double s, double f, double below) { return s <= below ? 0 : s * f + lost; },
      prefix, factor.reshape(column), exact_sums_below(in[0], arithmetic));
  return with_storage_rounding(arithmetic, out, {prefix});
}

// A row into which `count` rows are added holds a sum of that many terms, in any order: (count-1) u sum|x|.
Bound error_scatter_add(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in, const Array& out) {
  if (exact(arithmetic)) return {};
  const auto scatter = [&](const Shape& shape, Inputs inputs) {
    return traits(Primitive::kScatterAdd).evaluate(attributes, shape, inputs);
  };
  Array absolute = Array::uninitialized(in[0].shape());
  loop::map(absolute, Absolute{}, in[0]);
  const std::vector<Array> sums_in = {absolute, in[1]};
  Array sums = scatter(out.shape(), sums_in);
  const std::vector<Array> ones_in = {Array::full({in[1].count(), 1}, 1.0), in[1]};
  Array factor = scatter({out.shape()[0], 1}, ones_in);
  const Accumulation untold = of_any_order(arithmetic.profile->sum);
  double* const factors = factor.data();
  for (std::int64_t r = 0; r < factor.count(); ++r) {
    const auto terms = static_cast<std::int64_t>(factors[r]);
    factors[r] = accumulation_error(untold, terms - 1, arithmetic);
  }
  if (out.shape().size() < 2) factor = factor.reshape({out.shape()[0]});
  const double lost = static_cast<double>(in[1].count()) * sum_underflow(arithmetic);
  loop::map(
      sums, [lost] PLUMBLINE_HOST_DEVICE(double s, double f, double below) { return s <= below ? 0 : s * f + lost; },
      sums, factor, exact_sums_below(in[0], arithmetic));
  return with_storage_rounding(arithmetic, out, {sums});
}

namespace {

constexpr std::int64_t kBlock = 64;  // Blocks of the contracted dimension: the bound costs 1/64 of the product itself.

constexpr std::int64_t kExactFrom = 256;

// L2 norms of |x| + floor, x [..., rows, k], over blocks of its last dimension: [..., rows, ceil(k / kBlock)]. Walks
// through x as it lies in memory.
Array block_norms(const Array& x, double floor) {
  const std::size_t last = x.shape().size() - 1;
  const std::int64_t rows = x.shape()[last - 1], k = x.shape()[last], whole = k / kBlock, rest = k % kBlock;
  const std::int64_t step = x.strides()[last], row_step = x.strides()[last - 1];
  const bool by_columns = row_step < step;
  const std::int64_t all = whole + (rest > 0 ? 1 : 0);
  Shape norms_shape = x.shape();
  norms_shape[last - 1] = by_columns ? all : rows;
  norms_shape[last] = by_columns ? rows : all;
  Array norms = Array::uninitialized(norms_shape);
  const auto ordered = [by_columns](std::int64_t row, std::int64_t block, std::int64_t element) {
    return by_columns ? Shape{block, element, row} : Shape{row, block, element};
  };
  const auto view = [last](const Array& of, std::int64_t offset, const Shape& sizes, const Shape& strides) {
    View result{of.shape(), of.strides(), offset};
    result.sizes.resize(last - 1);
    result.sizes.insert(result.sizes.end(), sizes.begin(), sizes.end());
    result.strides.resize(last - 1);
    result.strides.insert(result.strides.end(), strides.begin(), strides.end());
    return result;
  };
  const auto part = [&](std::int64_t first, std::int64_t blocks, std::int64_t length) {
    if (blocks == 0) return;
    const View from =
        view(x, first * kBlock * step, ordered(rows, blocks, length), ordered(row_step, kBlock * step, step));
    const View to = view(norms, by_columns ? first * rows : first, ordered(rows, blocks, 1),
                         by_columns ? ordered(1, rows, 0) : ordered(all, 1, 0));
    Array window = norms.restride(to);
    loop::reduce<scalar::Sum>(window, false, from.sizes, Square{}, x.restride(from));
  };
  part(0, whole, kBlock);
  part(whole, rest > 0 ? 1 : 0, rest);
  // Squares below 2^-1022 are lost: what they can hide is below 1e-150. The norm of a block of floors: sqrt(kBlock).
  const double least = 1e-150 + std::sqrt(kBlock) * floor;
  loop::map(
      norms, [least] PLUMBLINE_HOST_DEVICE(double s) { return std::sqrt(s) + least; }, norms);
  return by_columns ? loop::transpose_last_two(norms) : norms;
}

}  // namespace

// n products and n - 1 additions, or n FMAs: n u |A||B| in any order (Jeannerod and Rump), n eta for products that
// underflow; matrix units as product_error says. |A||B| is bounded by Cauchy-Schwarz in blocks along k: sum over blocks
// of |A_i,block| |B_block,j|, 1.6 times too much on Gaussian data. Where the result is held narrower and k is large,
// the accumulation stands beside one rounding of the result, not k: then |A||B| is worth a product of its own. So it is
// where it was asked for.
//
// c + alpha AB: c is a term more, |c| beside |A||B|, whether the sum begins with it or ends with it (a BLAS adds to
// c in place, block after block of k). A kernel may scale any part of the sum by alpha: a rounding more for each term.
Bound error_matmul(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in, const Array& out) {
  if (exact(arithmetic)) return {};
  const std::int64_t k = in[0].shape().back();
  const bool begun = in.size() > 2;
  if (k == 0 && !begun) return {};
  const ProductError product = product_error(arithmetic, product_terms(attributes, in));
  const double factor = product.factor, eta = product.absolute, floor = product.floor;
  Array bound = Array::uninitialized(out.shape());
  const bool worthwhile =
      arithmetic.magnitudes == Magnitudes::kAsWorthwhile && storage(arithmetic).u > 0 && k >= kExactFrom;
  if (of_patches(in[1], out.shape()) || arithmetic.magnitudes == Magnitudes::kThemselves || worthwhile) {
    product_above(in[0], in[1], floor, bound);
  } else {
    const Array b = block_norms(loop::transpose_last_two(in[1]), floor);
    loop::matmul(block_norms(in[0], floor), loop::transpose_last_two(b), bound, false);
  }
  if (begun) {
    loop::map(
        bound,
        [factor, eta, floor] PLUMBLINE_HOST_DEVICE(double s, double c, double alpha) {
          const double scale = std::fabs(alpha);
          return factor * (scale * s + std::fabs(c) + floor) + eta * (1 + scale);
        },
        bound, in[2], alpha_of(in));
  } else {
    loop::map(
        bound, [factor, eta] PLUMBLINE_HOST_DEVICE(double s) { return factor * s + eta; }, bound);
  }
  return with_storage_rounding(arithmetic, out, {bound});
}

// error_matmul's bounds are F s + e with one s, and no less of the one with a larger floor; flushing adds to them. So
// F s + e <= max(F / F', e / e') (F' s + e').
std::optional<double> share_of_product_error(const Attributes& attributes, const Arithmetic& one,
                                             const Arithmetic& other, Inputs in) {
  if (exact(one) || exact(other) || storage(one).u > 0 || storage(other).u > 0) return std::nullopt;
  const std::int64_t n = product_terms(attributes, in);
  const ProductError part = product_error(one, n), whole = product_error(other, n);
  const auto usable = [](double x) { return x > 0 && std::isfinite(x); };
  if (!usable(whole.factor) || !usable(whole.absolute) || part.floor > whole.floor) return std::nullopt;
  if (one.profile->flush_subnormals) return std::nullopt;  // It adds what is no multiple either.
  const double share = std::max(part.factor / whole.factor, part.absolute / whole.absolute);
  if (!std::isfinite(share)) return std::nullopt;
  return share * (1 + 0x1p-40);  // Above the roundings of both.
}

// Squares and their sum: relative x = n u (products that underflow: n eta). sqrt(1 +- x) differs from 1 by at most
// x / (1 + sqrt(1-x)); the root adds what the profile says. Underflow moves t by at most min(sqrt(n eta), n eta / t).
Bound error_norm(const Attributes&, const Arithmetic& arithmetic, Inputs in, const Array& out) {
  if (exact(arithmetic)) return {};
  const std::int64_t terms = out.count() == 0 ? 0 : in[0].count() / out.count();
  const double x = accumulation_error(arithmetic.profile->sum, terms - 1, arithmetic) + roundoff(arithmetic);
  const double shift = x < 1 ? x / (1 + std::sqrt(1 - x)) : std::sqrt(1 + x);
  const FunctionBound sqrt = function_bound(Function::kSqrt, arithmetic);
  const double root = sqrt.relative, absolute = sqrt.absolute;
  const double relative = shift + root + shift * root;
  const double lost = static_cast<double>(terms) * (underflow(arithmetic) + sum_underflow(arithmetic));
  Array bound = Array::uninitialized(out.shape());
  loop::map(
      bound,
      [relative, lost, absolute] PLUMBLINE_HOST_DEVICE(double t) {
        const double underflow = t > 0 ? std::min(std::sqrt(lost), lost / t) : std::sqrt(lost);
        return relative * t + underflow + absolute;
      },
      out);
  return with_storage_rounding(arithmetic, out, {bound});
}

// r = (v + eps)^(-1/2), sigma = sqrt v. The variance comes from one of these, each with any order and shape:
//
// Two passes: the mean is off by dmu = (n+1) u mean|x|, the sum of squares about it by (n+4) u v and dmu^2.
//
// Merges of counts, means and sums of squares (a, b): d = M_b - M_a, M = M_a + d n_b/n_s, Q = Q_a + Q_b + w d^2,
// w = n_a n_b/n_s, the smaller into the larger. Welford's recurrence merges single elements, Chan's tree chunks.
// Exactly, sum w d^2 = n v. A mean is off by e: n_s e_s <= n_a e_a + n_b e_b + u n_s |M_s| + 3u n_b |d|, so Q by at
// most sum 2 w |d| (e_a + e_b) + w (e_a + e_b)^2 <= n (2 sigma beta + beta^2), n beta^2 = sum w (e_a + e_b)^2 (Cauchy
// and Schwarz), and beta is bounded by the three parts of e, by induction over any tree of n elements:
//   |mean| of |M_s|: n_s e_s <= u|mean| n_s(n_s+1)/2, and (a+b)^3 = a^3 + b^3 + 3ab(a+b) gives sum w (e_a+e_b)^2 <=
//     (u|mean|)^2 n (n+5)^2 / 12: beta <= u|mean|(n+5)/sqrt 12. Attained by Welford on elements that drift.
//   |M_s - mean| <= sigma sqrt(n/n_s): n_s e_s <= u sigma sqrt n n_s^(3/2), w(sqrt a + sqrt b)^2 <= 2ab: u sigma n.
//   3u n_b |d|: sum w d^2 = n v and sum n_b <= n/2 log2 n: u sigma sqrt(18 n log2 n).
// The sums of squares themselves add (n+8) u v.
//
// One pass, E[x^2] - E[x]^2, where it is declared: the difference of (n+2) u mean x^2 and of 2|mu| dmu + dmu^2 +
// u(|mu| + dmu)^2, rounded; it may be negative.
//
// Otherwise a computed variance is not negative, so v + eps lies in [eps + max(0, v - e_v), v + eps + e_v]. The lower
// end, y (v+eps) below, moves r by sqrt(1/(1-y)) - 1 = y / (s (1 + s)), s = sqrt(1-y); the upper one by
// 1 - sqrt(1/(1+y)): less for the same y, but more where 0 cuts the lower end off. Adding eps costs u/2, the root and
// the reciprocal (or a library's rsqrt) what the profile says.
Bound error_variance_rsqrt(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in, const Array& out) {
  if (exact(arithmetic)) return {};
  const Array& x = in[0];
  const Statistics stats = statistics(x, attributes.dims);
  Array magnitude = Array::uninitialized(stats.mean.shape());
  loop::reduce<scalar::Sum>(magnitude, false, x.shape(), Absolute{}, x);
  const double u = roundoff(arithmetic);
  const double eta = underflow(arithmetic);
  const double lost = sum_underflow(arithmetic);
  const auto n = static_cast<double>(stats.terms);
  const double summing = accumulation_error(of_any_order(arithmetic.profile->sum), stats.terms, arithmetic);
  const bool one_pass = arithmetic.profile->variance == Variance::kOnePass;
  const bool merged = arithmetic.profile->variance != Variance::kTwoPass;
  const double of_mean = summing * (n + 5) / (n * std::sqrt(12.0));
  const double of_spread = summing + summing / n * std::sqrt(18 * n * std::log2(std::max(2.0, n)));
  const FunctionBound rsqrt = function_bound(Function::kRsqrt, arithmetic);
  const double root = rsqrt.relative + 2 * u, absolute = rsqrt.absolute;
  const double eps = attributes.scalar;
  Array bound = Array::uninitialized(stats.mean.shape());
  loop::map(
      bound,
      [=] PLUMBLINE_HOST_DEVICE(double v, double mean, double total, double r) {
        const double dmu = (summing + u) * total / n + n * lost, mu = std::fabs(mean);
        const double beta = merged ? of_mean * mu + of_spread * std::sqrt(v) + n * lost : 0.0;
        const double centre = std::max(dmu * dmu, (2 * std::sqrt(v) + beta) * beta);
        const double e_v = one_pass ? (summing + 2 * u) * (v + mu * mu) + (2 * mu + dmu) * dmu +
                                          u * (mu + dmu) * (mu + dmu) + 2 * u * v + 4 * (eta + lost)
                                    : (summing + 8 * u) * v + centre + 4 * (eta + lost);
        const double y = (one_pass ? e_v : std::min(v, e_v)) / (v + eps) + u;
        if (!(y < 1)) return y == y ? kInfinity : y;
        const double s = std::sqrt(1 - y), upwards = 1 - 1 / std::sqrt(1 + e_v / (v + eps) + u);
        const double shift = std::max(y / (s * (1 + s)), upwards);
        return r * (shift + root + shift * root) + absolute;
      },
      stats.variance, stats.mean, magnitude, out.reshape(stats.mean.shape()));
  return with_storage_rounding(arithmetic, out, {bound.reshape(out.shape())});
}

}  // namespace plumbline::primitive
