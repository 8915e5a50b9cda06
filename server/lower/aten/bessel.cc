// Modified Bessel functions of the first kind (ATen: native/Math.h, by Chebyshev series). Near 0 they are means over a
// circle (Abramowitz and Stegun 9.6.16, 9.6.18), whose sums over equal angles are exact to exp(-n^2 / x); far away
// their asymptotic series (9.7.1).
#include <cmath>
#include <limits>
#include <numbers>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

constexpr std::int64_t kAngles = 64;  // Of half a circle.
constexpr double kFar = 100;          // exp(-128^2 / 200) is below 1e-35.
constexpr std::int64_t kElementsMax = 1 << 16;

Expr number(Expr x, double value) { return x.emitter->constant(value); }

// exp(-t) I_order(t) for t >= 0, over t where the order is 1: the mean of exp(t (cos a - 1)), times 2 sin^2(a) / 2.
Expr scaled_mean(Expr t, int order) {
  Emitter& emitter = *t.emitter;
  const std::int64_t n = t.count();
  const Expr angle =
      iota(emitter, {1, kAngles}, std::numbers::pi / (2 * kAngles), std::numbers::pi / kAngles, Format::kFloat64);
  const Expr half_sine = [&] {
    const ComputeIn exactly(emitter, Format::kFloat64);
    return unary(Primitive::kSin, angle * 0.5);
  }();
  const Expr weight = [&] {
    const ComputeIn exactly(emitter, Format::kFloat64);
    return order == 0 ? expand(emitter.constant(1), {1, kAngles}) : square(unary(Primitive::kSin, angle));
  }();
  const Expr terms = exp(-2.0 * reshape(t, {n, 1}) * square(half_sine)) * weight;
  return reshape(sum(terms, {1}) / static_cast<double>(kAngles), t.shape());
}

// The same far away, over t, too.
Expr scaled_asymptotic(Expr t, int order) {
  constexpr int kTerms = 14;
  const double mu = 4.0 * order * order;
  Expr sum = number(t, 1), term = number(t, 1);
  for (int k = 1; k < kTerms; ++k) {
    const double odd = 2.0 * k - 1;
    term = term * (-(mu - odd * odd) / (8.0 * k)) / t;
    sum = sum + term;
  }
  const Expr value = sum / sqrt(t * (2 * std::numbers::pi));
  return order == 0 ? value : value / t;
}

// exp(-|x|) I_order(x)
Expr scaled(Call& call, Expr x, int order) {
  if (x.count() > kElementsMax || x.count() == 0) call.unsupported("so many elements");
  const Expr t = abs(x), far = t > kFar;
  const Expr near = scaled_mean(select(far, number(x, 1), t), order);
  const Expr value = select(far, scaled_asymptotic(select(far, t, number(x, kFar)), order), near);
  return order == 0 ? value : value * x;
}

template <int order, bool is_scaled>
void lower_modified(Call& call) {
  const Expr x = call.tensor("self");
  // Of 16-bit elements the series are added up in 16 bits, but for i0.
  if (call.base() != "i0" && compute_format(x.format()) != x.format()) call.unsupported("16-bit elements");
  const Expr made = scaled(call, x, order);
  call.returns(is_scaled ? made : exp(abs(x)) * made);
}

}  // namespace

std::span<const Rule> bessel_rules() {
  static const Rule kRules[] = {
      {"i0", {"default"}, lower_modified<0, false>, kInPlace | kOut},
      {"special_i0e", {"default"}, lower_modified<0, true>, kOut},
      {"special_i1", {"default"}, lower_modified<1, false>, kOut},
      {"special_i1e", {"default"}, lower_modified<1, true>, kOut},
      {"special_modified_bessel_i0", {"default"}, lower_modified<0, false>, kOut},
      {"special_modified_bessel_i1", {"default"}, lower_modified<1, false>, kOut},
  };
  return kRules;
}

}  // namespace plumbline
