// Bessel functions (ATen: native/Math.h, by Chebyshev series). Those of the first kind are means over a circle near 0
// (Abramowitz and Stegun 9.1.18, 9.6.16, 9.6.18), whose sums over equal angles are exact to some exp(-n^2 / x), and
// the modified ones' asymptotic series far away (9.7.1). Modified ones of the second kind are integrals that fall off
// twice exponentially (9.6.24), whose sums over equal steps h are exact to exp(-pi^2 / h).
#include <cmath>
#include <limits>
#include <numbers>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

constexpr std::int64_t kAngles = 64;  // Half a circle is cut into so many.
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

// exp(x) K_order(x) for x > 0: the integral of exp(-x (cosh t - 1)) cosh(order t).
Expr scaled_second(Call& call, Expr x, int order) {
  constexpr std::int64_t kSteps = 128;
  constexpr double kStep = 0.2;
  if (x.count() > kElementsMax || x.count() == 0) call.unsupported("so many elements");
  Emitter& emitter = call.emitter();
  std::vector<Expr> nodes;
  {
    const ComputeIn exactly(emitter, Format::kFloat64);
    const Expr t = iota(emitter, {1, kSteps}, 0, kStep, Format::kFloat64);
    const Expr fall = unary(Primitive::kExpm1, -t);  // cosh t - 1 = (1 - exp(-t))^2 exp(t) / 2
    nodes = {square(fall) * exp(t) * 0.5, (exp(t) + exp(-t)) * 0.5};
  }
  const Expr place = iota(emitter, {1, kSteps}, 0, 1, Format::kInt64);
  const Expr weight = select(equal(place, 0), emitter.constant(kStep / 2), emitter.constant(kStep));
  const std::int64_t n = x.count();
  Expr terms = exp(-reshape(x, {n, 1}) * nodes[0]) * weight;
  if (order == 1) terms = terms * nodes[1];
  return reshape(sum(terms, {1}), x.shape());
}

template <int order, bool is_scaled>
void lower_second(Call& call) {
  constexpr double kLeast = 1e-6;  // Below it the integral goes farther than the sum does.
  const Expr x = call.tensor(call.has("x") ? "x" : "self");
  const Expr inside = x > kLeast, z = select(inside, x, number(x, 1));
  Expr value = scaled_second(call, z, order);
  if (!is_scaled) value = value * exp(-z);
  const Expr outside = select(equal(x, 0), number(x, std::numeric_limits<double>::infinity()),
                              number(x, std::numeric_limits<double>::quiet_NaN()));
  call.returns(select(inside, value, outside));
}

// J_order(x), the mean of cos(x sin a - order a).
template <int order>
void lower_first(Call& call) {
  constexpr double kFarthest = 60;  // Where sums over 2 kAngles angles are exact to 1e-16.
  const Expr x = call.tensor("self");
  if (x.count() > kElementsMax || x.count() == 0) call.unsupported("so many elements");
  // Around 5 the kernel's series are off by 7e-8, in fp64 too.
  if (call.emitter().compute() == Format::kFloat64) call.unsupported("fp64, of which the kernel gives half the digits");
  Emitter& emitter = call.emitter();
  const double step = std::numbers::pi / kAngles;
  const Expr angle = iota(emitter, {1, kAngles}, step / 2, step, Format::kFloat64);
  const Expr sine = [&] {
    const ComputeIn exactly(emitter, Format::kFloat64);
    return unary(Primitive::kSin, angle);
  }();
  const Expr phase = reshape(x, {x.count(), 1}) * sine;
  const Expr terms = unary(Primitive::kCos, order == 0 ? phase : phase - angle);
  const Expr value = reshape(sum(terms, {1}) / static_cast<double>(kAngles), x.shape());
  call.returns(select(abs(x) < kFarthest, value, number(x, std::numeric_limits<double>::quiet_NaN())));
}

// sin(x) / x
void lower_spherical(Call& call) {
  const Expr x = call.tensor("x"), zero = equal(x, 0), one = number(x, 1), z = select(zero, one, x);
  call.returns(select(zero, one, unary(Primitive::kSin, z) / z));
}

template <int order, bool is_scaled>
void lower_modified(Call& call) {
  const Expr x = call.tensor("self");
  // The series of 16-bit elements are added up in 16 bits, but for i0's.
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
      {"special_bessel_j0", {"default"}, lower_first<0>, kOut},
      {"special_bessel_j1", {"default"}, lower_first<1>, kOut},
      {"special_spherical_bessel_j0", {"default"}, lower_spherical, kOut},
      {"special_modified_bessel_k0", {"default"}, lower_second<0, false>, kOut},
      {"special_modified_bessel_k1", {"default"}, lower_second<1, false>, kOut},
      {"special_scaled_modified_bessel_k0", {"default"}, lower_second<0, true>, kOut},
      {"special_scaled_modified_bessel_k1", {"default"}, lower_second<1, true>, kOut},
      {"special_modified_bessel_i0", {"default"}, lower_modified<0, false>, kOut},
      {"special_modified_bessel_i1", {"default"}, lower_modified<1, false>, kOut},
  };
  return kRules;
}

}  // namespace plumbline
