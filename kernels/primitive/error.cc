#include <algorithm>
#include <cmath>

#include "kernels/primitive/element.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/support.h"

namespace plumbline {
namespace {

constexpr double kInflate = primitive::element::LocalError::kInflate;

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

namespace {

using element::LocalError;

LocalError linear(const Arithmetic& arithmetic, const Linear& error) {
  LocalError result;
  if (!is_float(arithmetic.compute) || !is_float(arithmetic.result)) return result;
  const double relative = error.relative_u * roundoff(arithmetic);
  const double absolute = error.absolute + (error.eta ? underflow(arithmetic) : 0.0);
  const Storage rounding = storage(arithmetic);
  // (e + u_o(|t| + e) + eta_o), e = relative |t| + absolute, as one slope and one offset.
  result.slope = (relative + rounding.u * (1 + relative)) * kInflate;
  result.offset = (absolute + rounding.u * absolute + rounding.eta) * kInflate;
  result.none = result.slope == 0 && result.offset == 0;
  return result;
}

void hold(const Arithmetic& arithmetic, LocalError* error) {
  const Storage rounding = storage(arithmetic);
  error->none = false;
  error->of_argument = true;
  error->u = rounding.u;
  error->storage = rounding.eta;
}

Bound applied(const LocalError& error, Inputs in, const Array& out) {
  if (error.none) return {};
  Bound bound{Array::uninitialized(out.shape())};
  if (error.of_argument) {
    loop::map(
        bound.values, [error] PLUMBLINE_HOST_DEVICE(double a, double t) { return error.of(a, t); }, in[0], out);
  } else {
    const double slope = error.slope, offset = error.offset;
    loop::map(
        bound.values, [slope, offset] PLUMBLINE_HOST_DEVICE(double t) { return slope * std::fabs(t) + offset; }, out);
  }
  return bound;
}

template <class E>
Bound error_element(const Attributes& attributes, const Arithmetic& arithmetic, Inputs in, const Array& out) {
  return applied(E::Error::of(attributes, arithmetic), in, out);
}

struct ErrorOf {
  template <class E>
  auto operator()(E) const {
    return &error_element<E>;
  }
};

}  // namespace

decltype(PrimitiveTraits::local_error) element_error(Primitive primitive) {
  return element::visit(primitive, ErrorOf{});
}

Bound linear_error(const Arithmetic& arithmetic, const Array& out, const Linear& error) {
  return applied(linear(arithmetic, error), {}, out);
}

// (N + 1/2) 2u |t|, N the documented ULPs: an ULP is at most 2u|t|. 0 ULP means correctly rounded: u|t|. Near underflow
// an ULP is 2 eta. Beyond the largest argument that the profile speaks of, the result is anywhere in its range. What an
// exponential loses with |x| it loses where e^-|x| is a number at all: masked scores are -infinity.
LocalError element::of_function(Function function, const Arithmetic& arithmetic) {
  LocalError result;
  if (!is_float(arithmetic.compute) || !is_float(arithmetic.result)) return result;
  const FunctionError& stated = arithmetic.profile->functions[static_cast<int>(function)];
  const FunctionBound error = function_bound(function, arithmetic);
  const double eta = underflow(arithmetic) / unit_roundoff(arithmetic.compute);
  if (error.slope == 0 && stated.argument_max == kInfinity) {
    const double relative_u = error.relative / roundoff(arithmetic);
    return linear(arithmetic, {relative_u, error.absolute + error.relative * eta, false});
  }
  hold(arithmetic, &result);
  result.relative = error.relative;
  result.per_argument = error.slope;
  result.reach = -std::log(half_smallest_subnormal(arithmetic.compute));
  result.eta = eta;
  result.absolute = error.absolute;
  result.limit = stated.argument_max;
  result.width = stated.high - stated.low;
  return result;
}

LocalError element::Bitwise::of(const Attributes&, const Arithmetic& arithmetic) {
  return linear(arithmetic, {0, 0, false});
}

LocalError element::BitwiseUnlessFlushed::of(const Attributes&, const Arithmetic& arithmetic) {
  return linear(arithmetic, {0, sum_underflow(arithmetic), false});
}

LocalError element::RoundedSum::of(const Attributes& attributes, const Arithmetic& arithmetic) {
  LocalError sum = linear(arithmetic, {1, sum_underflow(arithmetic), false});
  if (attributes.scalar == 0 || sum.none || arithmetic.profile->rounding != Rounding::kNearest) return sum;
  LocalError result;
  hold(arithmetic, &result);
  result.relative = roundoff(arithmetic);
  result.absolute = sum_underflow(arithmetic);
  result.absorbs = true;
  // What its operands' format holds, narrower ones need not.
  const int precision = traits(arithmetic.result).precision;
  const Format input = arithmetic.input == Format::kUnknown ? arithmetic.compute : arithmetic.input;
  if (result.u > 0 && traits(input).precision > precision) result.splits = std::ldexp(1.0, 53 - precision) + 1;
  return result;
}

LocalError element::Multiplication::of(const Attributes& attributes, const Arithmetic& arithmetic) {
  if (attributes.scalar == 0) return linear(arithmetic, {1, 0, true});
  if (!arithmetic.profile->narrow_numbers) return linear(arithmetic, {0, 0, false});
  Arithmetic held = arithmetic;
  if (attributes.narrow != Format::kUnknown) held.result = attributes.narrow;
  return linear(held, {1, 0, true});
}

LocalError element::Division::of(const Attributes& attributes, const Arithmetic& arithmetic) {
  return of_function(attributes.scalar != 0 ? Function::kDivideByNumber : Function::kDivide, arithmetic);
}

LocalError element::Exponential::of(const Attributes& attributes, const Arithmetic& arithmetic) {
  return of_function(attributes.scalar != 0 ? Function::kFusedExp : Function::kExp, arithmetic);
}

namespace {

struct LocalErrorOf {
  const Attributes& attributes;
  const Arithmetic& arithmetic;

  template <class E>
  LocalError operator()(E) const {
    return E::Error::of(attributes, arithmetic);
  }
};

}  // namespace

LocalError element::local_error(Primitive primitive, const Attributes& attributes, const Arithmetic& arithmetic) {
  return visit(primitive, LocalErrorOf{attributes, arithmetic});
}

double element::flushed_below(Primitive primitive, const Arithmetic& arithmetic) {
  const bool flushes = arithmetic.profile->flush_subnormals && is_float(arithmetic.compute) && !moves(primitive);
  return flushes ? smallest_normal(arithmetic.compute) : 0.0;
}

// Vector libraries and compilers keep 4 ULPs in their fastest variants that they call accurate (SVML "la", SLEEF u35),
// 2 in divisions and roots by an estimate and a Newton step, and may flush the last normal binade of fp32.
constexpr double kOwnKernelUlp = 4, kOwnKernelRoundedUlp = 2;

// Absolute parts, stated for fp32, are scaled to fp64, which has no fast variants; its functions keep 1 ULP at best. A
// correct rounding that is not to nearest is off by a whole ULP.
FunctionBound function_bound(Function function, const Arithmetic& arithmetic) {
  FunctionError error = arithmetic.profile->functions[static_cast<int>(function)];
  const bool rounded = function == Function::kDivide || function == Function::kSqrt;
  if (arithmetic.own_kernel) {
    error.ulp = std::max(error.ulp, rounded ? kOwnKernelRoundedUlp : kOwnKernelUlp);
    error.absolute = std::max(error.absolute, 0x1p-126);
  }
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

}  // namespace primitive
}  // namespace plumbline
