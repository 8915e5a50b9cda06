// What accumulating sums and products costs, as a profile states it.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/primitive/error_model.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

ProductClass class_of(Format format) {
  switch (format) {
    case Format::kFloat64:
      return ProductClass::kFp64;
    case Format::kFloat16:
      return ProductClass::kFp16;
    case Format::kBFloat16:
      return ProductClass::kBf16;
    case Format::kFloat8E4M3:
    case Format::kFloat8E5M2:
      return ProductClass::kFp8;
    case Format::kTf32:
      return ProductClass::kTf32;
    case Format::kFloat32:
    case Format::kInt64:  // Products of integers are exact: any class bounds them.
    case Format::kInt32:
    case Format::kInt16:
    case Format::kInt8:
    case Format::kUInt8:
    case Format::kBool:
      return ProductClass::kFp32;
    case Format::kUnknown:
      break;
  }
  throw std::logic_error("a product of no format");
}

double effective(int k, double n) { return k * std::ceil(n / k); }

// (n roundings of u each, nearest: n u holds without a higher-order term (Jeannerod and Rump, 2013). Directed and
// stochastic ones gather (1+u)^n - 1 <= n u / (1 - n u).)
double gathered(double x, const Arithmetic& arithmetic) {
  if (arithmetic.profile->rounding == Rounding::kNearest) return x;
  return x < 1 ? x / (1 - x) : kInfinity;
}

// n products of class `kind` whose inputs are converted with the relative error w each. The converted inputs satisfy
// |A'||B'| <= (1+w)^2 absM, and A'B' differs from AB by at most (2w + w^2) absM. Matrix units (k > 1) state what they
// lose themselves; a unit with k = 1 rounds as the profile says.
ProductError of_class(const Product& kind, double w, std::int64_t n, const Arithmetic& arithmetic) {
  const bool plain = kind.k == 1 && kind.accumulator_bits == 0;
  const double u =
      plain ? roundoff(arithmetic)
            : (kind.accumulator_bits > 0 ? std::ldexp(1.0, -kind.accumulator_bits) : unit_roundoff(arithmetic.compute));
  const auto terms = static_cast<double>(n);
  const bool promoted = kind.promote_every > 0 && kind.promote_every < terms;
  double factor = kind.c * effective(kind.k, promoted ? kind.promote_every : terms) * u;
  if (plain) factor = gathered(factor, arithmetic);
  if (promoted) factor += std::ceil(terms / kind.promote_every) * roundoff(arithmetic) * (1 + factor);
  // Accumulators that cut off below their smallest normal lose a unit of its last place with every term.
  const int bits = kind.accumulator_bits > 0 ? kind.accumulator_bits : traits(arithmetic.compute).precision;
  const int exponent =
      kind.accumulator_exponent_min != 0 ? kind.accumulator_exponent_min : traits(arithmetic.compute).exponent_min;
  const double eta =
      plain ? underflow(arithmetic) : std::max(underflow(arithmetic), std::ldexp(1.0, exponent - bits + 1));
  ProductError error{(1 + w) * (1 + w) * factor + 2 * w + w * w, terms * (eta + sum_underflow(arithmetic)), 0,
                     plain && !promoted && kind.c <= 1};
  // Below the smallest normal a conversion is off by an absolute w 2^emin instead: w (|x| + 2^emin) covers both.
  const double tiny = smallest_normal(Format::kFloat32);
  if (w > 0) error.floor = tiny;
  // Flushed elements move by at most tiny: tiny (sum|a| + sum|b|), and n tiny for products. The sums come from raising
  // each magnitude by tiny / factor: factor (|A| + f)(|B| + f) = factor |A||B| + tiny (sum|a| + sum|b|) + ...
  if (kind.flushes && error.factor > 0) {
    error.floor += tiny / error.factor;
    error.absolute += terms * tiny;
  }
  return error;
}

}  // namespace

double accumulation_error(const Accumulation& kind, std::int64_t n, const Arithmetic& arithmetic) {
  if (n <= 0) return 0;
  if (kind.tree && !arithmetic.own_kernel) {
    // h roundings on the way of each term: (1+u)^h - 1.
    const double x = kind.c * std::ceil(std::log2(static_cast<double>(n + 1))) * roundoff(arithmetic);
    return x < 1 ? x / (1 - x) : kInfinity;
  }
  return gathered(kind.c * effective(kind.k, static_cast<double>(n)) * roundoff(arithmetic), arithmetic);
}

std::int64_t product_terms(const Attributes& attributes, Inputs in) {
  return std::max(attributes.size, in[0].shape().back()) + (in.size() > 2 ? 2 : 0);
}

ProductError product_error(const Arithmetic& arithmetic, std::int64_t n) {
  const Profile& profile = *arithmetic.profile;
  const Format input = arithmetic.input == Format::kUnknown ? arithmetic.compute : arithmetic.input;
  const ProductClass own = class_of(input);
  ProductError error = of_class(profile.products[static_cast<int>(own)], 0, n, arithmetic);
  if (own == ProductClass::kFp32 && (arithmetic.convolution ? profile.tf32_convolutions : profile.tf32_allowed)) {
    const Product& tf32 = profile.products[static_cast<int>(ProductClass::kTf32)];
    const ProductError other = of_class(tf32, tf32.inputs_truncated ? 0x1p-10 : 0x1p-11, n, arithmetic);
    error = {std::max(error.factor, other.factor), std::max(error.absolute, other.absolute),
             std::max(error.floor, other.floor), false};
  }
  // Partial sums of absM in all: s of them rounded to the format that holds them, s - 1 additions in it.
  if (const SplitK& split = profile.split_k; split.parts > 1) {
    const bool reduced = split.reduced && is_float(arithmetic.result) &&
                         traits(arithmetic.result).precision < traits(arithmetic.compute).precision;
    error.rounds_each = error.rounds_each && !reduced;
    const double slack = profile.rounding == Rounding::kNearest ? 1 : 2;
    const double u = slack * (reduced ? std::max(unit_roundoff(arithmetic.result), unit_roundoff(arithmetic.compute))
                                      : unit_roundoff(arithmetic.compute));
    error.factor += split.parts * u * (1 + split.parts * u) * (1 + error.factor);
    if (reduced) error.absolute += 2 * split.parts * slack * half_smallest_subnormal(arithmetic.result);
  }
  return error;
}

}  // namespace plumbline::primitive
