#include <algorithm>
#include <cmath>

#include "kernels/primitive/error_model.h"
#include "kernels/primitive/support.h"

namespace plumbline {
namespace {

// Covers the roundings of the bound's own evaluation and, below fp64, of our replay's t, which are smaller than the
// bound by 2^-29. Where t is infinite the bound is 0 throughout: infinite in fp64, it is infinite on the device too.
constexpr double kInflate = 1 + 0x1p-20;

// Stochastic and directed roundings go to either neighbour: twice as far as the nearest can be.
double rounding_factor(const Profile& profile) { return profile.rounding == Rounding::kNearest ? 1 : 2; }

}  // namespace

primitive::Storage primitive::storage(const Arithmetic& arithmetic) {
  if (!is_float(arithmetic.result) || arithmetic.result == arithmetic.compute) return {};
  const FormatTraits& narrow = traits(arithmetic.result);
  const FormatTraits& wide = traits(arithmetic.compute);
  if (is_float(arithmetic.compute) && narrow.precision >= wide.precision && narrow.exponent_min <= wide.exponent_min) {
    return {};
  }
  const bool flush = arithmetic.profile->flush_subnormals;
  const double factor = rounding_factor(*arithmetic.profile);
  return {factor * unit_roundoff(arithmetic.result),
          flush ? smallest_normal(arithmetic.result) : factor * half_smallest_subnormal(arithmetic.result)};
}

Bound with_storage_rounding(const Arithmetic& arithmetic, const Array& out, Bound compute_error) {
  const primitive::Storage rounding = primitive::storage(arithmetic);
  const double u = rounding.u, eta = rounding.eta;
  if (u == 0) {
    if (compute_error) {
      loop::map(
          compute_error.values, [] PLUMBLINE_HOST_DEVICE(double e) { return e * kInflate; }, compute_error.values);
    }
    return compute_error;
  }
  Bound bound{Array::uninitialized(out.shape())};
  if (compute_error) {
    loop::map(
        bound.values,
        [u, eta] PLUMBLINE_HOST_DEVICE(double t, double e) {
          return std::fabs(t) == primitive::kInfinity ? 0.0 : (e + (u * (std::fabs(t) + e) + eta)) * kInflate;
        },
        out, compute_error.values);
  } else {
    loop::map(
        bound.values, [u, eta] PLUMBLINE_HOST_DEVICE(double t) { return (u * std::fabs(t) + eta) * kInflate; }, out);
  }
  return bound;
}

namespace primitive {

double sum_underflow(const Arithmetic& arithmetic) {
  return arithmetic.profile->flush_subnormals ? smallest_normal(arithmetic.compute) : 0.0;
}

double underflow(const Arithmetic& arithmetic) {
  return std::max(sum_underflow(arithmetic),
                  rounding_factor(*arithmetic.profile) * half_smallest_subnormal(arithmetic.compute));
}

double roundoff(const Arithmetic& arithmetic) {
  return rounding_factor(*arithmetic.profile) * unit_roundoff(arithmetic.compute);
}

Bound linear_error(const Arithmetic& arithmetic, const Array& out, const Linear& error) {
  if (!is_float(arithmetic.compute) || !is_float(arithmetic.result)) return {};
  const double relative = error.relative_u * roundoff(arithmetic);
  const double absolute = error.absolute + (error.eta ? underflow(arithmetic) : 0.0);
  const Storage rounding = storage(arithmetic);
  // (e + u_o(|t| + e) + eta_o), e = relative |t| + absolute, as one slope and one offset.
  const double slope = (relative + rounding.u * (1 + relative)) * kInflate;
  const double offset = (absolute + rounding.u * absolute + rounding.eta) * kInflate;
  if (slope == 0 && offset == 0) return {};
  Bound bound{Array::uninitialized(out.shape())};
  loop::map(
      bound.values, [slope, offset] PLUMBLINE_HOST_DEVICE(double t) { return slope * std::fabs(t) + offset; }, out);
  return bound;
}

// (N + 1/2) 2u |t|, N the documented ULPs: an ULP is at most 2u|t|. 0 ULP means correctly rounded: u|t|. Near underflow
// an ULP is 2 eta. Beyond the largest argument that the profile speaks of, the result is anywhere in its range. What an
// exponential loses with |x| it loses where e^-|x| is a number at all: masked scores are -infinity.
Bound function_error(Function function, const Arithmetic& arithmetic, const Array& x, const Array& out) {
  if (!is_float(arithmetic.compute) || !is_float(arithmetic.result)) return {};
  const FunctionError& stated = arithmetic.profile->functions[static_cast<int>(function)];
  const FunctionBound error = function_bound(function, arithmetic);
  const double eta = underflow(arithmetic) / unit_roundoff(arithmetic.compute);
  if (error.slope == 0 && stated.argument_max == kInfinity) {
    const double relative_u = error.relative / roundoff(arithmetic);
    return linear_error(arithmetic, out, {relative_u, error.absolute + error.relative * eta, false});
  }
  Bound bound{Array::uninitialized(out.shape())};
  const double width = stated.high - stated.low, limit = stated.argument_max;
  const double reach = -std::log(half_smallest_subnormal(arithmetic.compute));
  loop::map(
      bound.values,
      [=] PLUMBLINE_HOST_DEVICE(double a, double t) {
        const double magnitude = std::fabs(a), relative = error.relative + error.slope * std::min(magnitude, reach);
        return magnitude <= limit ? relative * (std::fabs(t) + eta) + error.absolute : width;
      },
      x, out);
  return with_storage_rounding(arithmetic, out, std::move(bound));
}

// Absolute parts, stated for fp32, are scaled to fp64, which has no fast variants; its functions keep 1 ULP at best. A
// correct rounding that is not to nearest is off by a whole ULP.
FunctionBound function_bound(Function function, const Arithmetic& arithmetic) {
  FunctionError error = arithmetic.profile->functions[static_cast<int>(function)];
  const bool rounded = function == Function::kDivide || function == Function::kSqrt;
  if (arithmetic.compute == Format::kFloat64) {
    if (!rounded) error.ulp = std::max(error.ulp, 1.0);
    error.absolute *= 0x1p-29;
    error.slope = 0;
  }
  const double u = unit_roundoff(arithmetic.compute);
  return {(2 * error.ulp + rounding_factor(*arithmetic.profile)) * u, 2 * error.slope * u, error.absolute};
}

Bound error_none(const Attributes&, const Arithmetic& arithmetic, Inputs, const Array& out) {
  if (!is_float(arithmetic.result)) return {};
  return linear_error(arithmetic, out, {0, 0, false});
}

// Half a step of the grid to nearest, a step by any other rounding; the grid's numbers are then held by the format.
Bound error_quantize(const Attributes& attributes, const Arithmetic& arithmetic, Inputs, const Array& out) {
  if (arithmetic.replayed) return {};
  return with_storage_rounding(arithmetic, out, {Array::full(out.shape(), attributes.scalar).materialize()});
}

Bound error_exp(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in, const Array& out) {
  return function_error(attributes.scalar != 0 ? Function::kFusedExp : Function::kExp, arithmetic, in[0], out);
}

// Round to nearest: u|t|; a subnormal sum is exact.
Bound error_add(const Attributes&, const Arithmetic& arithmetic, Inputs, const Array& out) {
  return linear_error(arithmetic, out, {1, sum_underflow(arithmetic), false});
}

// Exact, but for a result that is flushed.
Bound error_fmod(const Attributes&, const Arithmetic& arithmetic, Inputs, const Array& out) {
  return linear_error(arithmetic, out, {0, sum_underflow(arithmetic), false});
}

Bound error_mul(const Attributes&, const Arithmetic& arithmetic, Inputs, const Array& out) {
  return linear_error(arithmetic, out, {1, 0, true});
}

}  // namespace primitive
}  // namespace plumbline
