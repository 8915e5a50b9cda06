// Statistical noise of softmax and log_softmax. An error e_j (relative) of the exponential of element j moves both its
// own numerator and the row's sum S, so that most of it cancels in a functional that only sees differences between the
// elements of a row; and what S itself suffers is one event, shared by the row.
#include <cmath>
#include <vector>

#include "kernels/cpu/vector_math.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/rows.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

struct Model {
  double u, exp_bias, exp_slope, exp_absolute, log_bias, log_absolute, tiny, terms, blocks, stored_u, stored_eta;
};

// Functions: (2N + 1) u in all, of which u is the event of rounding the result.
Model model_of(const Arithmetic& arithmetic, std::int64_t n) {
  const double u = unit_roundoff(arithmetic.compute);
  const FunctionBound exp = function_bound(Function::kExp, arithmetic),
                      log = function_bound(Function::kLog, arithmetic);
  const bool held = storage(arithmetic).u > 0;
  return {.u = u,
          .exp_bias = exp.relative - u,
          .exp_slope = exp.slope,
          .exp_absolute = exp.absolute + sum_underflow(arithmetic),
          .log_bias = log.relative - u,
          .log_absolute = log.absolute,
          .tiny = smallest_normal(arithmetic.compute),
          .terms = static_cast<double>(n),
          .blocks = std::ceil(static_cast<double>(n) / 64),
          .stored_u = held ? unit_roundoff(arithmetic.result) : 0,
          .stored_eta = held ? half_smallest_subnormal(arithmetic.result) : 0};
}

inline double square(double x) { return x * x; }

// What the row's sum suffers beside the exponentials, relative to it: additions, an online softmax's rescaling of each
// block of keys, terms that the running sum swallows.
Noise of_sum(const Model& m, double swallowed) {
  return {m.blocks * m.exp_bias + m.terms * m.exp_absolute + swallowed,
          (m.terms - 1) * square(m.u) + m.blocks * square(3 * m.u)};
}

// sum over j of p_j below u: exponentials that a running sum of size S swallows.
double swallowed(const Model& m, const double* p, std::int64_t n) {
  const double u = m.u;
  return row_fold(n, [=](std::int64_t j) { return p[j] <= u ? p[j] : 0.0; });
}

Noise row_softmax(const Model& m, const double* x, const double* p, const double* a, std::int64_t n) {
  const double max = row_max(x, n);
  const double mean = row_fold(n, [=](std::int64_t j) { return a[j] * p[j]; });
  const Noise sum = of_sum(m, swallowed(m, p, n));
  Noise noise{std::fabs(mean) * sum.bias, square(mean) * sum.squares};
  for (std::int64_t j = 0; j < n; ++j) {
    const double centred = std::fabs(a[j] - mean), k = p[j] * centred;
    const double apart = p[j] == 0 ? 0.0 : max - x[j];
    // The exponential of a rounded difference; the division (or a product with the reciprocal); the storage.
    noise.squares += square(k) * (square(m.u) + square(m.u * apart)) + square(a[j]) * 2 * square(m.u * p[j]) +
                     square(a[j]) * square(m.stored_u * p[j] + m.stored_eta);
    noise.bias += k * (m.exp_bias + m.exp_slope * apart) + centred * m.exp_absolute +
                  (p[j] <= 4 * m.tiny ? std::fabs(a[j]) * m.tiny : 0.0);
  }
  return noise;
}

Noise row_log_softmax(const Model& m, const double* x, const double* t, const double* p, const double* a,
                      std::int64_t n) {
  const double max = row_max(x, n), log_sum = -row_max(t, n);
  const double total = row_fold(n, [=](std::int64_t j) { return a[j]; });
  const Noise sum = of_sum(m, swallowed(m, p, n));
  // log S: the sum's relative error, the logarithm's own; m + log S in kernels that form it.
  Noise shared{sum.bias + m.log_bias * std::fabs(log_sum) + m.log_absolute,
               sum.squares + square(m.u * log_sum) + square(m.u * max)};
  Noise noise;
  for (std::int64_t j = 0; j < n; ++j) {
    const double apart = p[j] == 0 ? 0.0 : max - x[j];
    shared.squares += square(p[j]) * (square(m.u) + square(m.u * apart));
    shared.bias += p[j] * (m.exp_bias + m.exp_slope * apart);
    if (a[j] == 0) continue;
    noise.squares +=
        square(a[j]) * (square(m.u * (max - x[j])) + square(m.u * t[j]) + square(m.stored_u * t[j] + m.stored_eta));
  }
  if (total == 0) return noise;
  noise.bias += std::fabs(total) * shared.bias;
  noise.squares += square(total) * shared.squares;
  return noise;
}

// Sums noise_of(row index) over rows, in order.
template <class NoiseOf>
Noise over_rows(const Rows& rows, const NoiseOf& noise_of) {
  std::vector<Noise> parts(static_cast<std::size_t>(rows.count));
  for_each_row(rows, [&](std::int64_t r) { parts[static_cast<std::size_t>(r)] = noise_of(r); });
  Noise total;
  for (const Noise& part : parts) {
    total.bias += part.bias;
    total.squares += part.squares;
  }
  total.squares *= 1 + 0x1p-19;
  return total;
}

}  // namespace

Noise noise_softmax(const Attributes&, const Arithmetic& arithmetic, Inputs in, const Array& out, const Bound& local,
                    const Array& cotangent) {
  if (!zero_mean_sums(*arithmetic.profile)) return noise_of_rounding(arithmetic, out, local, cotangent);
  const Array x = in[0].expand(out.shape()).materialize(), p = out.materialize(), a = cotangent.materialize();
  const Rows rows = rows_of(x);
  const Model model = model_of(arithmetic, rows.length);
  const std::int64_t n = rows.length;
  return over_rows(rows, [&](std::int64_t r) {
    return row_softmax(model, x.data() + r * n, p.data() + r * n, a.data() + r * n, n);
  });
}

Noise noise_log_softmax(const Attributes&, const Arithmetic& arithmetic, Inputs in, const Array& out,
                        const Bound& local, const Array& cotangent) {
  if (!zero_mean_sums(*arithmetic.profile)) return noise_of_rounding(arithmetic, out, local, cotangent);
  const Array x = in[0].expand(out.shape()).materialize(), t = out.materialize(), a = cotangent.materialize();
  const Rows rows = rows_of(x);
  const Model model = model_of(arithmetic, rows.length);
  const std::int64_t n = rows.length;
  return over_rows(rows, [&](std::int64_t r) {
    std::vector<double> p(static_cast<std::size_t>(n));
    cpu::vector_exp(t.data() + r * n, p.data(), n);
    return row_log_softmax(model, x.data() + r * n, t.data() + r * n, p.data(), a.data() + r * n, n);
  });
}

}  // namespace plumbline::primitive
