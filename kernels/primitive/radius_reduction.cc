// Enclosures of reductions, products, rows and movement.
#include <cmath>

#include "kernels/cpu/gemm.h"
#include "kernels/primitive/enclosure.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/rows.h"
#include "kernels/primitive/statistics.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

Bound inflated(Array values) {
  Array result = Array::uninitialized(values.shape());
  cpu::map(result, up, values);
  return {result};
}

// The primitive itself, applied to the radii: for those that are sums of their inputs with coefficients 0 and 1, or
// take one of them.
Bound radius_by(Primitive primitive, const Attributes& attributes, std::vector<Array> inputs, const Array& out) {
  return inflated(traits(primitive).evaluate(attributes, out.shape(), inputs));
}

bool has_radius(const Bound& radius) {
  if (!radius) return false;
  const Array r = radius.values.materialize();
  return std::any_of(r.data(), r.data() + r.count(), [](double x) { return x != 0; });
}

Array magnitude(const Array& x) {
  Array result = Array::uninitialized(x.shape());
  cpu::map(
      result, [](double v) { return std::fabs(v); }, x);
  return result;
}

}  // namespace

Bound radius_sum(const Attributes& attributes, Inputs, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return radius_by(Primitive::kSum, attributes, {radii[0].values}, out);
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
  cpu::map(
      lower, [](double v, double r) { return v - up(r) - 0x1p-52 * std::fabs(v); }, x, radii[0].values);
  const Shape kept = reduced_shape(x.shape(), attributes.dims);
  Array best = Array::uninitialized(kept);
  cpu::reduce<cpu::Max>(best, false, x.shape(), cpu::Copy{}, lower);
  Array reaching = Array::uninitialized(kept);
  cpu::reduce<cpu::Sum>(
      reaching, false, x.shape(),
      [](double v, double r, double b) { return v + up(r) + 0x1p-52 * std::fabs(v) < b ? 0.0 : 1.0; }, x,
      radii[0].values, best);
  const double all = static_cast<double>(out.count() == 0 ? 0 : x.count() / out.count());
  cpu::map(
      reaching, [all](double n) { return n <= 1 ? 0.0 : all; }, reaching);
  return {reaching.reshape(out.shape())};
}

Bound radius_cumsum(const Attributes& attributes, Inputs, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  return radius_by(Primitive::kCumsum, attributes, {radii[0].values}, out);
}

// The norm is 1-Lipschitz in the norm. Each radius is raised where its square would be lost.
Bound radius_norm(const Attributes& attributes, Inputs, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  Array raised = Array::uninitialized(radii[0].values.shape());
  cpu::map(
      raised, [](double r) { return r == 0 ? 0.0 : std::max(r, 1e-150); }, radii[0].values);
  return radius_by(Primitive::kNorm, attributes, {raised}, out);
}

// sigma = |x - mean| / sqrt(n) is 1-Lipschitz in |x| / sqrt(n) (centring is a projection), and (sigma^2 + eps)^(-1/2)
// falls with sigma.
Bound radius_variance_rsqrt(const Attributes& attributes, Inputs centres, std::span<const Bound> radii,
                            const Array& out) {
  if (all_exact(radii)) return {};
  const Statistics stats = statistics(centres[0], attributes.dims);
  const Array reach = radius_norm(attributes, centres, radii, stats.variance).values;
  const double eps = attributes.scalar;
  const auto n = static_cast<double>(stats.terms);
  Array bound = Array::uninitialized(stats.variance.shape());
  cpu::map(
      bound,
      [eps, n](double v, double norm, double t) {
        if (norm == 0) return 0.0;
        const double rho = up(norm / std::sqrt(n));
        const double sigma = std::sqrt(v);
        const double low = std::max(0.0, sigma * (1 - 0x1p-40) - rho);
        const double high = sigma * (1 + 0x1p-40) + rho;
        const double most = 1 / std::sqrt(low * low + eps), least = 1 / std::sqrt(high * high + eps);
        const double distance = std::max(most - t, t - least) + 0x1p-48 * t;
        return distance == distance ? distance : kInfinity;
      },
      stats.variance, reach, out.reshape(stats.variance.shape()));
  return {bound.reshape(out.shape())};
}

// |A|Rb + Ra(|B| + Rb)
Bound radius_matmul(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  Array bound = Array::uninitialized(out.shape());
  bool accumulate = false;
  if (radii[1]) {
    cpu::matmul(magnitude(centres[0]), radii[1].values, bound, false);
    accumulate = true;
  }
  if (radii[0]) {
    Array farthest = magnitude(centres[1]);
    if (radii[1]) cpu::map_add(farthest, cpu::Copy{}, radii[1].values);
    cpu::matmul(radii[0].values, farthest, bound, accumulate);
  }
  // k roundings of 2^-53 in each sum.
  const double k = static_cast<double>(centres[0].shape().back());
  cpu::map(
      bound, [k](double b) { return up(b * (1 + k * 0x1p-51)); }, bound);
  return {bound};
}

// p_i' lies between p_i e^-ri / (p_i e^-ri + sum_{j != i} p_j e^rj) and the same with signs exchanged.
Bound radius_softmax(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  const Array p = out.materialize();
  const Array radius = radii[0].values.materialize();
  Array bound = Array::uninitialized(out.shape());
  const Rows rows = rows_of(centres[0]);
  const std::int64_t n = rows.length;
  for_each_row(rows, [&](std::int64_t row) {
    const double* const pr = p.data() + row * n;
    const double* const rr = radius.data() + row * n;
    double low_sum = 0, high_sum = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      if (pr[j] == 0) continue;
      low_sum += pr[j] * std::exp(-rr[j]);
      high_sum += pr[j] * std::exp(rr[j]);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const double raised = pr[i] * std::exp(rr[i]), lowered = pr[i] * std::exp(-rr[i]);
      const double high = raised / (raised + std::max(0.0, low_sum - lowered));
      const double low = lowered / (lowered + std::max(0.0, high_sum - raised));
      const double distance = std::max(high - pr[i], pr[i] - low) + 0x1p-44;
      bound.data()[row * n + i] = distance <= 1 ? distance : 1.0;  // Probabilities: never further apart.
    }
  });
  return {bound};
}

// The row's log of the sum moves by at most its largest radius.
Bound radius_log_softmax(const Attributes&, Inputs, std::span<const Bound> radii, const Array& out) {
  if (all_exact(radii)) return {};
  const Array radius = radii[0].values.materialize();
  Array bound = Array::uninitialized(out.shape());
  const Rows rows = rows_of(radius);
  const std::int64_t n = rows.length;
  for_each_row(rows, [&](std::int64_t row) {
    const double* const rr = radius.data() + row * n;
    const double largest = row_max(rr, n);
    for (std::int64_t i = 0; i < n; ++i) bound.data()[row * n + i] = up(rr[i] + largest);
  });
  return {bound};
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
  return radius_by(Primitive::kScatterAdd, attributes, {radii[0].values, centres[1]}, out);
}

}  // namespace plumbline::primitive
