// Statistical noise of softmax and log_softmax. An error e_j (relative) of the exponential of element j moves both its
// own numerator and the row's sum S, so that most of it cancels in a functional that only sees differences between the
// elements of a row; and what S itself suffers is one event, shared by the row.
#include <cmath>

#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/rounding.h"
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

// What the row's sum suffers beside the exponentials, relative to it: additions, an online softmax's rescaling of each
// block of keys, terms that the running sum swallows.
PLUMBLINE_HOST_DEVICE inline Noise of_sum(const Model& m, double swallowed) {
  return {m.blocks * m.exp_bias + m.terms * m.exp_absolute + swallowed,
          (m.terms - 1) * square(m.u) + m.blocks * square(3 * m.u)};
}

// An exponential below u, which a running sum of size S swallows.
PLUMBLINE_HOST_DEVICE inline double swallowed(double u, double p) { return p <= u ? p : 0.0; }

// Each row's charges: out [rows, 3], whole, bias and squares.
struct SoftmaxRow {
  Model m;
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t r, double* out, const double* all_x, const double* all_p,
                                const double* all_a, const double* all_e) const {
    const double *const x = all_x + r * n, *const p = all_p + r * n, *const a = all_a + r * n, *const e = all_e + r * n;
    const Model model = m;
    const double max = team.max(n, x);
    const double mean = team.sum(n, [=](std::int64_t j) { return a[j] * p[j]; });
    const Noise sum = of_sum(m, team.sum(n, [=](std::int64_t j) { return swallowed(model.u, p[j]); }));
    // The exponential of a rounded difference; the division (or a product with the reciprocal); the storage.
    const double squares = team.sum(n, [=](std::int64_t j) {
      const double k = p[j] * std::fabs(a[j] - mean), apart = p[j] == 0 ? 0.0 : max - x[j];
      return square(k) * (square(model.u) + square(model.u * apart)) + square(a[j]) * 2 * square(model.u * p[j]) +
             square(a[j]) * square(model.stored_u * p[j] + model.stored_eta);
    });
    const double bias = team.sum(n, [=](std::int64_t j) {
      const double centred = std::fabs(a[j] - mean), apart = p[j] == 0 ? 0.0 : max - x[j];
      return p[j] * centred * (model.exp_bias + model.exp_slope * apart) + centred * model.exp_absolute +
             (p[j] <= 4 * model.tiny ? std::fabs(a[j]) * model.tiny : 0.0);
    });
    const double whole = team.sum(n, [=](std::int64_t j) { return whole_charge(a[j], e[j]); });
    if (!team.first()) return;
    out[3 * r] = whole;
    out[3 * r + 1] = std::fabs(mean) * sum.bias + bias;
    out[3 * r + 2] = square(mean) * sum.squares + squares;
  }
};

struct LogSoftmaxRow {
  Model m;
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t r, double* out, const double* all_x, const double* all_t,
                                const double* all_a, const double* all_e) const {
    const double *const x = all_x + r * n, *const t = all_t + r * n, *const a = all_a + r * n, *const e = all_e + r * n;
    const Model model = m;
    const double max = team.max(n, x);
    const double log_sum = -team.max(n, t);
    const double total = team.sum(n, [=](std::int64_t j) { return a[j]; });
    const auto exponent = [=](std::int64_t j) { return t[j]; };
    const Noise sum =
        of_sum(m, team.sum_exp(n, exponent, [=](std::int64_t, double p) { return swallowed(model.u, p); }));
    // log S: the sum's relative error, the logarithm's own; m + log S in kernels that form it.
    const double shared_squares = sum.squares + square(model.u * log_sum) + square(model.u * max) +
                                  team.sum_exp(n, exponent, [=](std::int64_t j, double p) {
                                    const double apart = p == 0 ? 0.0 : max - x[j];
                                    return square(p) * (square(model.u) + square(model.u * apart));
                                  });
    const double shared_bias = sum.bias + model.log_bias * std::fabs(log_sum) + model.log_absolute +
                               team.sum_exp(n, exponent, [=](std::int64_t j, double p) {
                                 return p * (model.exp_bias + model.exp_slope * (p == 0 ? 0.0 : max - x[j]));
                               });
    const double squares = team.sum(n, [=](std::int64_t j) {
      const double one =
          square(model.u * (max - x[j])) + square(model.u * t[j]) + square(model.stored_u * t[j] + model.stored_eta);
      return a[j] == 0 ? 0.0 : square(a[j]) * one;
    });
    const double whole = team.sum(n, [=](std::int64_t j) { return whole_charge(a[j], e[j]); });
    if (!team.first()) return;
    out[3 * r] = whole;
    out[3 * r + 1] = total == 0 ? 0.0 : std::fabs(total) * shared_bias;
    out[3 * r + 2] = squares + (total == 0 ? 0.0 : square(total) * shared_squares);
  }
};

template <class Row>
Later<std::vector<Charge>> over_rows(const Arithmetic& arithmetic, Inputs in, const Array& out, const Bound& local,
                                     std::span<const Array> cotangents) {
  const Array x = in[0].expand(out.shape()).materialize(), t = out.materialize();
  const Array e = local.values.expand(out.shape()).materialize();
  const Rows rows = rows_of(x);
  const auto functionals = static_cast<std::int64_t>(cotangents.size());
  Array parts = Array::uninitialized({functionals, rows.count, 3}), sums = Array::uninitialized({functionals, 1, 3});
  for (std::int64_t k = 0; k < functionals; ++k) {
    Array part = parts.restride({{rows.count, 3}, {3, 1}, k * rows.count * 3});
    loop::for_each_row(rows.count, rows.length, part, Row{model_of(arithmetic, rows.length), rows.length}, x, t,
                       cotangents[static_cast<std::size_t>(k)].materialize(), e);
  }
  loop::reduce<scalar::Sum>(sums, false, parts.shape(), loop::Copy{}, parts);
  return later(sums, [functionals](const double* of) {
    std::vector<Charge> charges;
    for (std::int64_t k = 0; k < functionals; ++k, of += 3)
      charges.push_back(charge_of({{of[0], of[1], of[2] * kNoiseInflate, 0}}));
    return charges;
  });
}

}  // namespace

Later<std::vector<Charge>> noise_softmax(const Attributes&, const Arithmetic& arithmetic, Inputs in, const Array& out,
                                         const Bound& local, std::span<const Array> cotangents) {
  if (!zero_mean_sums(*arithmetic.profile)) return noise_of_rounding(arithmetic, out, local, cotangents);
  return over_rows<SoftmaxRow>(arithmetic, in, out, local, cotangents);
}

Later<std::vector<Charge>> noise_log_softmax(const Attributes&, const Arithmetic& arithmetic, Inputs in,
                                             const Array& out, const Bound& local, std::span<const Array> cotangents) {
  if (!zero_mean_sums(*arithmetic.profile)) return noise_of_rounding(arithmetic, out, local, cotangents);
  return over_rows<LogSoftmaxRow>(arithmetic, in, out, local, cotangents);
}

}  // namespace plumbline::primitive
