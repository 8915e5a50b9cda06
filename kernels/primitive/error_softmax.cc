// Local errors of softmax and log_softmax.
#include <algorithm>
#include <cmath>

#include "kernels/primitive/error_model.h"
#include "kernels/primitive/rows.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

// Constants of one call.
struct Model {
  double u, exp, exp_slope, exp_absolute, log, log_absolute, tiny, sum, terms, rescaled;
};

Model model_of(const Arithmetic& arithmetic, std::int64_t n) {
  const double u = roundoff(arithmetic);
  const FunctionBound exp = function_bound(Function::kExp, arithmetic);
  const FunctionBound log = function_bound(Function::kLog, arithmetic);
  const auto terms = static_cast<double>(n);
  return {.u = u,
          .exp = exp.relative,
          .exp_slope = exp.slope,
          .exp_absolute = exp.absolute + sum_underflow(arithmetic),
          .log = log.relative,
          .log_absolute = log.absolute,
          .tiny = smallest_normal(arithmetic.compute),
          .sum = accumulation_error(arithmetic.profile->sum, n - 1, arithmetic),
          .terms = terms,
          .rescaled = std::ceil(terms / 64) - 1};
}

// Relative error of exp(x_i - max) for d = max - x_i: the difference is off by u d, and exp(u d) - 1 <= u d (1 + u d)
// while u d <= 1; then the function's own, of an argument of magnitude d.
PLUMBLINE_HOST_DEVICE inline double exponential_error(double u, double exp, double slope, double d) {
  const double a = u * d * (1 + u * d), own = exp + slope * d;
  return a + own + a * own;
}

// Relative error of S = sum exp(x_j - max) >= 1: W = sum p_j rel_j, terms with p_j = 0 are 0, plus the absolute error
// of each exponential and the summation. An online softmax rescales its running sum, and what it divides, by one
// exponential for every block of keys but the first (64 and more at a time): exp + 2u each between the two.
PLUMBLINE_HOST_DEVICE inline double sum_error(const Model& m, double weighted) {
  const double w = weighted + m.terms * m.exp_absolute + m.rescaled * (m.exp + 2 * m.u);
  return w + m.sum * (1 + w);
}

// p_j rel_j of an element `apart` below its row's maximum. One at -infinity has p_j = 0.
PLUMBLINE_HOST_DEVICE inline double weighted_error(double u, double exp, double slope, double p, double apart) {
  const double term = p * exponential_error(u, exp, slope, apart);
  return p == 0 ? 0.0 : term;
}

// p (1 + rel_i)(1 + u)^2 / (1 - S) - p, S = the relative error of the sum, a division or a product with the
// reciprocal; plus the smallest normal for results that underflow.
struct SoftmaxRow {
  Model m;
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t r, double* out, const double* x, const double* p) const {
    const double *const xr = x + r * n, *const pr = p + r * n;
    double* const to = out + r * n;
    const double u = m.u, exp = m.exp, slope = m.exp_slope;
    const double max = team.max(n, xr);
    const double s =
        sum_error(m, team.sum(n, [=](std::int64_t j) { return weighted_error(u, exp, slope, pr[j], max - xr[j]); }));
    const double factor = s < 1 ? (2.001 * u + s) / (1 - s) : (s == s ? kInfinity : s);
    const double floor = 2 * m.exp_absolute + m.tiny;
    team.each(n, [=](std::int64_t i) {
      const double rel = exponential_error(u, exp, slope, max - xr[i]);
      const double relative = pr[i] * (rel + factor + rel * factor);
      to[i] = (pr[i] == 0 ? 0.0 : relative) + floor;
    });
  }
};

// t = (x - m) - log S, or x - (m + log S), where m + log S = x - t. A relative error s of S moves its logarithm by at
// most s / (1 - s); the logarithm itself; the differences: u |t| and the larger of u d and u |x - t|.
struct LogSoftmaxRow {
  Model m;
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t r, double* out, const double* x, const double* t) const {
    const double *const xr = x + r * n, *const tr = t + r * n;
    double* const to = out + r * n;
    const double u = m.u, exp = m.exp, slope = m.exp_slope;
    const double max = team.max(n, xr);
    // t is greatest where x is, and there it is -log S.
    const double log_sum = -team.max(n, tr);
    const double s =
        sum_error(m, team.sum_exp(
                         n, [=](std::int64_t j) { return tr[j]; },
                         [=](std::int64_t j, double p) { return weighted_error(u, exp, slope, p, max - xr[j]); }));
    const double shift = s < 1 ? s / (1 - s) : (s == s ? kInfinity : s);
    const double common = shift + m.log * (std::fabs(log_sum) + shift) + m.log_absolute + 2 * m.tiny;
    team.each(n, [=](std::int64_t i) {
      to[i] = common + 1.001 * u * (std::fabs(tr[i]) + std::max(max - xr[i], std::fabs(xr[i] - tr[i])));
    });
  }
};

template <class Row>
Bound error_of_rows(const Arithmetic& arithmetic, Inputs in, const Array& out) {
  if (!is_float(arithmetic.compute) || !is_float(arithmetic.result)) return {};
  const Array x = in[0].materialize(), t = out.materialize();
  Array bound = Array::uninitialized(out.shape());
  const Rows rows = rows_of(x);
  loop::for_each_row(rows.count, rows.length, bound, Row{model_of(arithmetic, rows.length), rows.length}, x, t);
  return with_storage_rounding(arithmetic, out, {bound});
}

}  // namespace

Bound error_softmax(const Attributes&, const Arithmetic& arithmetic, Inputs in, const Array& out) {
  return error_of_rows<SoftmaxRow>(arithmetic, in, out);
}

Bound error_log_softmax(const Attributes&, const Arithmetic& arithmetic, Inputs in, const Array& out) {
  return error_of_rows<LogSoftmaxRow>(arithmetic, in, out);
}

}  // namespace plumbline::primitive
