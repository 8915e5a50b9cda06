#include "kernels/primitive/error_model.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

// A leaf's content is the trace's; there is nothing to compute.
Array evaluate_leaf(const Attributes&, const Shape&, Inputs) { return {}; }

Array evaluate_constant(const Attributes& attributes, const Shape& shape, Inputs) {
  return Array::full(shape, attributes.scalar);
}

Array evaluate_iota(const Attributes& attributes, const Shape& shape, Inputs) {
  Array out = Array::uninitialized(shape);
  const double start = attributes.scalar, step = attributes.scalar2;
  loop::fill(out,
             [start, step] PLUMBLINE_HOST_DEVICE(std::int64_t i) { return start + static_cast<double>(i) * step; });
  return out;
}

void pull_back_none(const Attributes&, Inputs, const Array&, const Array&, std::span<Array* const>) {}

Bound radius_zero(const Attributes&, Inputs, std::span<const Bound>, const Array&) { return {}; }

// Rounded to nearest, a scalar is off by what it is off, in the compute format or in the result's, or by what the
// kernel's own may be off (scalar2): one event, shared by all elements. In other roundings: either neighbour.
Bound error_constant(const Attributes& attributes, const Arithmetic& arithmetic, Inputs, const Array& out) {
  const double c = attributes.scalar;
  const double computed = round_to(arithmetic.compute, c), held = round_to(arithmetic.result, computed);
  const double own = attributes.size == 0 || arithmetic.profile->narrow_numbers ? attributes.scalar2 : 0.0;
  if (c != c || (computed == c && held == c && own == 0)) return {};
  if (arithmetic.profile->rounding == Rounding::kNearest && !arithmetic.profile->flush_subnormals) {
    const double off = std::max({std::fabs(computed - c), std::fabs(held - c), own});
    return {Array::full(out.shape(), std::fabs(c) < kInfinity ? off * (1 + 0x1p-20) : 0.0)};
  }
  if (computed == c && own == 0) return with_storage_rounding(arithmetic, out, {});
  Bound error = linear_error(arithmetic, out, {1, 0, true});
  loop::map(
      error.values, [own] PLUMBLINE_HOST_DEVICE(double e) { return (e + own) * (1 + 0x1p-20); }, error.values);
  return error;
}

// A range start + i step of exactly held integers is exact. Otherwise, in units of u, for the worse of start + i step
// and (in the second half, where what is left to the end is at most i step) end - (n-1-i) step, the step formed in the
// format from its rounded ends: the end points 4|start| + 3|i step|, the step's own roundings and the product 3|i
// step|, the sum |t|.
Bound error_iota(const Attributes& attributes, const Arithmetic& arithmetic, Inputs, const Array& out) {
  const auto held = [&](double x) {
    return round_to(arithmetic.compute, x) == x && round_to(arithmetic.result, x) == x;
  };
  const double last =
      attributes.scalar + static_cast<double>(std::max<std::int64_t>(0, out.count() - 1)) * attributes.scalar2;
  const double limit = 1.0 / std::max(unit_roundoff(arithmetic.compute), unit_roundoff(arithmetic.result));
  const auto integral = [&](double x) { return x == std::trunc(x) && std::fabs(x) <= limit; };
  if (!is_float(arithmetic.compute) ||
      (integral(attributes.scalar) && integral(attributes.scalar2) && integral(last) && held(last))) {
    return {};
  }
  const double u = roundoff(arithmetic), eta = underflow(arithmetic);
  const double start = std::fabs(attributes.scalar), step = attributes.scalar2;
  Bound error{Array::uninitialized(out.shape())};
  loop::fill(error.values, [u, eta, start, step] PLUMBLINE_HOST_DEVICE(std::int64_t i) {
    const double increment = std::fabs(static_cast<double>(i) * step);
    return u * (4.3 * start + 7.3 * increment) + 3 * eta;
  });
  return with_storage_rounding(arithmetic, out, std::move(error));
}

using enum Primitive;

constexpr PrimitiveTraits kRows[] = {
    {kLeaf, "leaf", 0, true, evaluate_leaf, pull_back_none, error_none, radius_zero},
    {kConstant, "constant", 0, false, evaluate_constant, pull_back_none, error_constant, radius_zero},
    {kIota, "iota", 0, false, evaluate_iota, pull_back_none, error_iota, radius_zero},
};

}  // namespace

std::span<const PrimitiveTraits> source_rows() { return kRows; }

}  // namespace plumbline::primitive
