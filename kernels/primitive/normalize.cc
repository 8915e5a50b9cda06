#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/statistics.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {

Statistics statistics(const Array& x, const std::vector<std::int64_t>& dims) {
  const Shape shape = reduced_shape(x.shape(), dims);
  Statistics result{Array::uninitialized(shape), Array::uninitialized(shape), 0};
  result.terms = result.mean.count() == 0 ? 0 : x.count() / result.mean.count();
  const auto n = static_cast<double>(result.terms);
  loop::reduce<scalar::Sum>(result.mean, false, x.shape(), loop::Copy{}, x);
  loop::map(
      result.mean, [n] PLUMBLINE_HOST_DEVICE(double total) { return total / n; }, result.mean);
  loop::reduce<scalar::Sum>(
      result.variance, false, x.shape(),
      [] PLUMBLINE_HOST_DEVICE(double value, double mean) { return (value - mean) * (value - mean); }, x, result.mean);
  loop::map(
      result.variance, [n] PLUMBLINE_HOST_DEVICE(double total) { return total / n; }, result.variance);
  return result;
}

namespace {

Array evaluate_variance_rsqrt(const Attributes& attributes, const Shape& shape, Inputs in) {
  Array out = statistics(in[0], attributes.dims).variance;
  const double eps = attributes.scalar;
  loop::map(
      out, [eps] PLUMBLINE_HOST_DEVICE(double v) { return 1.0 / std::sqrt(v + eps); }, out);
  return out.reshape(shape);
}

// r = (v + eps)^(-1/2): dr/dx_i = -r^3 (x_i - mean) / n.
void pull_back_variance_rsqrt(const Attributes& attributes, Inputs in, const Array& out, const Array& cotangent,
                              std::span<Array* const> into) {
  if (!into[0]) return;
  const Array& x = in[0];
  const Shape shape = reduced_shape(x.shape(), attributes.dims);
  const std::int64_t terms = count(shape) == 0 ? 0 : x.count() / count(shape);
  const auto n = static_cast<double>(terms);
  Array mean = Array::uninitialized(shape);
  loop::reduce<scalar::Sum>(mean, false, x.shape(), loop::Copy{}, x);
  loop::map(
      mean, [n] PLUMBLINE_HOST_DEVICE(double total) { return total / n; }, mean);
  Array factor = Array::uninitialized(shape);
  loop::map(
      factor, [n] PLUMBLINE_HOST_DEVICE(double g, double r) { return scalar::pull(g, -r * r * r / n); },
      cotangent.reshape(shape), out.reshape(shape));
  contribute(
      *into[0], x.shape(),
      [] PLUMBLINE_HOST_DEVICE(double f, double value, double m) { return scalar::pull(f, value - m); }, factor, x,
      mean);
}

Array evaluate_norm(const Attributes& attributes, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(reduced_shape(in[0].shape(), attributes.dims));
  loop::reduce<scalar::Sum>(
      out, false, in[0].shape(), [] PLUMBLINE_HOST_DEVICE(double x) { return x * x; }, in[0]);
  loop::map(
      out, [] PLUMBLINE_HOST_DEVICE(double total) { return std::sqrt(total); }, out);
  return out.reshape(shape);
}

// x / t; where t is 0 the zero subgradient.
void pull_back_norm(const Attributes& attributes, Inputs in, const Array& out, const Array& cotangent,
                    std::span<Array* const> into) {
  if (!into[0]) return;
  const Shape shape = reduced_shape(in[0].shape(), attributes.dims);
  contribute(
      *into[0], in[0].shape(),
      [] PLUMBLINE_HOST_DEVICE(double g, double x, double t) { return t == 0 ? 0.0 : scalar::pull(g, x / t); },
      cotangent.reshape(shape), in[0], out.reshape(shape));
}

constexpr PrimitiveTraits kRows[] = {
    {Primitive::kVarianceRsqrt, "variance_rsqrt", 1, false, evaluate_variance_rsqrt, pull_back_variance_rsqrt,
     error_variance_rsqrt, radius_variance_rsqrt, noise_variance_rsqrt},
    {Primitive::kNorm, "norm", 1, false, evaluate_norm, pull_back_norm, error_norm, radius_norm, noise_norm},
};

}  // namespace

std::span<const PrimitiveTraits> normalize_rows() { return kRows; }

}  // namespace plumbline::primitive
