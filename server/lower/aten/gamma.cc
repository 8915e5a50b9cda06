// The gamma function's kin, and the error function's (ATen: native/Math.h). What is written here is exact
// to fp64's last places, and rounds in more places than kernels do, so that what is allowed covers them.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Bernoulli's numbers B_2, B_4, ...
constexpr std::array<double, 10> kBernoulli = {1.0 / 6,       -1.0 / 30, 1.0 / 42,      -1.0 / 30,     5.0 / 66,
                                               -691.0 / 2730, 7.0 / 6,   -3617.0 / 510, 43867.0 / 798, -174611.0 / 330};
// Steps that bring an argument above 1/2 to where the asymptotic series (Abramowitz and Stegun 6.1.41, 6.3.18) are
// exact to 1e-17; arguments above kFar are there already.
constexpr int kSteps = 10;
constexpr double kFar = 16;

Expr number(Expr x, double value) { return x.emitter->constant(value); }

// c[0] + c[1] x + c[2] x^2 + ...
Expr polynomial(Expr x, const std::vector<double>& c) {
  Expr sum = number(x, c.back());
  for (std::size_t i = c.size() - 1; i-- > 0;) sum = sum * x + c[i];
  return sum;
}

// z, or z + kSteps where it is near.
Expr far(Expr near, Expr z) { return select(near, z + double{kSteps}, z); }

// log Gamma(z) for z >= 1/2.
Expr log_gamma_above(Expr z) {
  const Expr near = z < kFar, w = far(near, z), inverse = 1.0 / w;
  std::vector<double> series;
  for (std::size_t k = 0; k < kBernoulli.size(); ++k) {
    const auto order = static_cast<double>(2 * (k + 1));
    series.push_back(kBernoulli[k] / (order * (order - 1)));
  }
  Expr steps = log(z);
  for (int i = 1; i < kSteps; ++i) steps = steps + log(z + double{static_cast<double>(i)});
  const Expr stirling = (w - 0.5) * (log(w) - 1.0) + (0.5 * std::log(2 * std::numbers::pi) - 0.5) +
                        inverse * polynomial(square(inverse), series);
  return select(near, stirling - steps, stirling);
}

// x with the nearest integer taken away: sines of multiples of pi are those of this, but for the sign. (No rounding of
// x to a grid, which programs may share or not.)
Expr from_integer(Expr x) {
  const Expr rest = binary(Primitive::kFmod, x, number(x, 1));
  return select(rest > 0.5, rest - 1.0, select(rest < -0.5, rest + 1.0, rest));
}

// log |Gamma(x)|: below 1/2 by log(pi / |sin(pi x)|) - log Gamma(1 - x).
Expr log_gamma(Expr x) {
  const Expr below = x < 0.5, inside = select(below, 1.0 - x, x);
  const Expr above = log_gamma_above(select(equal(inside, kInfinity), number(x, 1), inside));
  const Expr rest = from_integer(x), pole = logical_and(below, equal(rest, 0));
  const Expr sine = abs(unary(Primitive::kSin, select(pole, number(x, 0.5), rest) * std::numbers::pi));
  const Expr value = select(below, std::log(std::numbers::pi) - log(sine) - above, above);
  const Expr unbounded = logical_or(pole, equal(abs(x), kInfinity));
  return select(unbounded, number(x, kInfinity), value);
}

void lower_log_gamma(Call& call) { call.returns(log_gamma(call.tensor("self"))); }

// log Gamma_p(x) = p (p - 1) / 4 log pi + sum_{j < p} log Gamma(x - j / 2)
void lower_multivariate(Call& call) {
  const Expr x = call.tensor("self");
  const std::int64_t p = call.integer("p", 1);
  Expr sum = log_gamma(x);
  for (std::int64_t j = 1; j < p; ++j) sum = sum + log_gamma(x - static_cast<double>(j) / 2);
  call.returns(sum + static_cast<double>(p * (p - 1)) / 4 * std::log(std::numbers::pi));
}

// The derivative of log Gamma for z >= 1/2.
Expr digamma_above(Expr z) {
  const Expr near = z < kFar, w = far(near, z), inverse = 1.0 / w, squared = square(inverse);
  std::vector<double> series;
  for (std::size_t k = 0; k < kBernoulli.size(); ++k)
    series.push_back(kBernoulli[k] / static_cast<double>(2 * (k + 1)));
  Expr steps = 1.0 / z;
  for (int i = 1; i < kSteps; ++i) steps = steps + 1.0 / (z + double{static_cast<double>(i)});
  const Expr asymptotic = log(w) - 0.5 * inverse - squared * polynomial(squared, series);
  return select(near, asymptotic - steps, asymptotic);
}

// Below 1/2 by digamma(1 - x) - pi / tan(pi x).
Expr digamma(Expr x) {
  const Expr below = x < 0.5, above = digamma_above(select(below, 1.0 - x, x));
  const Expr rest = from_integer(x), pole = logical_and(below, equal(rest, 0));
  const Expr angle = select(pole, number(x, 0.5), rest) * std::numbers::pi;
  const Expr slope = std::numbers::pi * unary(Primitive::kCos, angle) / unary(Primitive::kSin, angle);
  const Expr value = select(below, above - slope, above);
  return select(pole, select(equal(x, 0), number(x, -kInfinity), number(x, kNaN)), value);
}

void lower_digamma(Call& call) { call.returns(digamma(call.tensor("self"))); }

// The second derivative of log Gamma, as the kernel has it: exact to 1e-9 alone.
Expr trigamma(Expr x) {
  const Expr below = x < 0.5;
  Expr z = select(below, 1.0 - x, x), sum = number(x, 0);
  for (int i = 0; i < 6; ++i) {
    sum = sum + 1.0 / square(z);
    z = z + 1.0;
  }
  const Expr inverse = 1.0 / square(z);
  const Expr series = inverse * (1.0 / 6 - inverse * (1.0 / 30 - inverse * (1.0 / 42)));
  sum = sum + (1.0 + 0.5 / z + series) / z;
  const Expr sine = unary(Primitive::kSin, select(below, x, number(x, 0.5)) * std::numbers::pi);
  return select(below, std::numbers::pi * std::numbers::pi / square(sine) - sum, sum);
}

// (-1)^(n + 1) n! zeta(n + 1, x), Hurwitz' zeta function by Euler's and Maclaurin's formula (Abramowitz and Stegun
// 23.2.9): terms one by one up to x + kTerms, which is far enough from 0 where x is above kLowest.
void lower_polygamma(Call& call) {
  constexpr int kTerms = 24;
  constexpr double kLowest = -12;
  const Expr x = call.tensor("self");
  const std::int64_t n = call.integer("n", 0);
  if (n == 0) {
    call.returns(digamma(x));
    return;
  }
  if (n == 1) {
    call.returns(trigamma(x));
    return;
  }
  if (n < 0 || n > 8) call.unsupported("an order above 8");
  const auto s = static_cast<double>(n + 1);
  const auto power = [&](Expr base) {
    Expr made = base;
    for (std::int64_t i = 0; i < n; ++i) made = made * base;
    return made;
  };
  const Expr pole = logical_and(x < 0.5, equal(from_integer(x), 0));
  const Expr z = select(pole, number(x, 1), x);
  Expr sum = power(1.0 / z);
  for (int k = 1; k < kTerms; ++k) sum = sum + power(1.0 / (z + double{static_cast<double>(k)}));
  const Expr w = z + double{kTerms}, inverse = 1.0 / w, last = power(inverse), squared = square(inverse);
  // B_2j / (2j)! s (s + 1) ... (s + 2j - 2) w^(1 - s - 2j)
  std::vector<double> series;
  double factor = s / 2;
  for (std::size_t j = 0; j < kBernoulli.size(); ++j) {
    series.push_back(kBernoulli[j] * factor);
    const auto order = static_cast<double>(2 * (j + 1));
    factor *= (s + order - 1) * (s + order) / ((order + 1) * (order + 2));
  }
  const Expr zeta = sum + last * (w / (s - 1) + 0.5 + inverse * polynomial(squared, series));
  const double scale = (n % 2 == 1 ? 1 : -1) * std::tgamma(s);
  // Both factors are held in the elements' own format.
  const ComputeIn own(call.emitter(), call.result_format());
  const Expr product = number(x, scale) * cast(zeta, call.result_format());
  const Expr value = select(x < kLowest, number(x, kNaN), product);  // NaN: not known.
  call.returns(select(pole, number(x, scale * kInfinity), value));
}

// Hurwitz' zeta function, the sum of (q + k)^-s, for s > 1 and q > 0: as in polygamma.
void lower_zeta(Call& call) {
  constexpr int kTerms = 12;
  const Expr s = call.operand("self"), q = call.operand("other");
  Emitter& emitter = call.emitter();
  const Expr inside = logical_and(s > 1.0, q > 0.0), one = emitter.constant(1);
  const Expr order = select(inside, s, emitter.constant(2)), z = select(inside, q, one);
  const auto power = [&](Expr base) { return binary(Primitive::kPow, base, -order); };
  Expr sum = power(z);
  for (int k = 1; k < kTerms; ++k) sum = sum + power(z + static_cast<double>(k));
  const Expr w = z + double{kTerms}, squared = square(1.0 / w), last = power(w);
  Expr series = emitter.constant(0), factor = 0.5 * order, powers = 1.0 / w;
  for (std::size_t j = 0; j < kBernoulli.size(); ++j) {
    series = series + kBernoulli[j] * factor * powers;
    const auto n = static_cast<double>(2 * (j + 1));
    factor = factor * (order + (n - 1)) * (order + n) / ((n + 1) * (n + 2));
    powers = powers * squared;
  }
  const Expr value = sum + last * (w / (order - 1.0) + 0.5 + series);
  // Elsewhere there are poles, and sums that are not worked out here.
  const Expr outside = select(equal(s, 1), emitter.constant(kInfinity), emitter.constant(kNaN));
  call.returns(expand(select(inside, value, outside), call.result_shape()));
}

// exp(x^2) erfc(x): near 0 as it is written; farther, a sum over equal steps of an integral, with what its pole adds
// (Matta and Reichel, "Uniform computation of the error function and other related functions", 1971).
Expr scaled_erfc(Expr x) {
  constexpr double kStep = 0.5, kNear = 1;
  constexpr int kTerms = 13;
  const Expr t = abs(x), near = t < kNear;
  const Expr small = select(near, t, number(x, 0)), large = select(near, number(x, 2), t), squared = square(large);
  Expr sum = 1.0 / squared;
  for (int n = 1; n < kTerms; ++n) {
    const double node = (n * kStep) * (n * kStep);
    sum = sum + 2 * std::exp(-node) / (squared + node);
  }
  const Expr pole = large < std::numbers::pi / kStep, inside = select(pole, large, number(x, 1));
  const Expr correction = 2.0 * exp(square(inside)) / (1.0 - exp(2 * std::numbers::pi / kStep * inside));
  const Expr integral = large * sum * (kStep / std::numbers::pi);
  const Expr above = select(near, exp(square(small)) * (1.0 - unary(Primitive::kErf, small)),
                            select(pole, integral + correction, integral));
  return select(x < 0.0, 2.0 * exp(square(x)) - above, above);
}

void lower_scaled_erfc(Call& call) { call.returns(scaled_erfc(call.tensor("self"))); }

// log of the normal distribution: below -1 by the scaled erfc, which does not underflow.
void lower_log_normal(Call& call) {
  const Expr x = call.tensor("self"), below = x < -1.0;
  const Expr tail = select(below, x * -std::sqrt(0.5), number(x, 1));
  const Expr rest = select(below, number(x, 1), x * std::sqrt(0.5));
  call.returns(
      select(below, log(0.5 * scaled_erfc(tail)) - square(tail), log1p(-0.5 * (1.0 - unary(Primitive::kErf, rest)))));
}

// Giles' approximation ("Approximating the erfinv function", GPU Computing Gems, 2010), then Newton's steps.
Expr inverse_erf(Expr x) {
  const Expr one = number(x, 1);
  const Expr inside = compare(Primitive::kLess, abs(x), one), z = select(inside, x, number(x, 0));
  const Expr w = -log((1.0 - z) * (1.0 + z));
  const Expr centre = polynomial(w - 2.5, {1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087,
                                           -4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08});
  const Expr tail = polynomial(sqrt(w) - 3.0, {2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773,
                                               -0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257});
  Expr y = select(w < 5.0, centre, tail) * z;
  for (int step = 0; step < 3; ++step)
    y = y - (unary(Primitive::kErf, y) - z) * exp(square(y)) * (std::sqrt(std::numbers::pi) / 2);
  const Expr edge = equal(abs(x), 1);
  const Expr outside = select(edge, x * kInfinity, number(x, kNaN));
  return select(inside, y, outside);
}

void lower_inverse_erf(Call& call) { call.returns(inverse_erf(call.tensor("self"))); }
void lower_inverse_normal(Call& call) {
  call.returns(inverse_erf(2.0 * call.tensor("self") - 1.0) * std::numbers::sqrt2);
}

}  // namespace

std::span<const Rule> gamma_rules() {
  static const Rule kRules[] = {
      {"lgamma", {"default"}, lower_log_gamma, kPointwise},
      {"mvlgamma", {"default"}, lower_multivariate, kInPlace | kOut},
      {"digamma", {"default"}, lower_digamma, kInPlace | kOut},
      {"polygamma", {"default"}, lower_polygamma, kInPlace | kOut},
      {"special_zeta", {"default", "self_scalar", "other_scalar"}, lower_zeta, kOut},
      {"special_erfcx", {"default"}, lower_scaled_erfc, kOut},
      {"special_log_ndtr", {"default"}, lower_log_normal, kOut},
      {"special_ndtri", {"default"}, lower_inverse_normal, kOut},
      {"erfinv", {"default"}, lower_inverse_erf, kInPlace | kOut},
  };
  return kRules;
}

}  // namespace plumbline
