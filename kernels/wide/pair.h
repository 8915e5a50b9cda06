// Numbers as the sum of two doubles, hi + lo, which hold 106 bits (Dekker 1971). With u = 2^-53, a sum is within 3 u^2
// and a product within 4 u^2 of itself, whatever the signs (Joldes, Muller, Popescu 2017, algorithms 6 and 12; Muller,
// Rideau 2022), as long as nothing overflows and no low part is subnormal. Without an FMA instruction std::fma is a
// call to the C library: slower, but the same result.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/wide/scalar.h"

namespace plumbline::wide {

struct Pair {
  double hi, lo;
};

inline Pair sum(double a, double b) {
  const double s = a + b, of_b = s - a;
  return {s, (a - (s - of_b)) + (b - of_b)};
}

// |a| >= |b|, or either is 0.
inline Pair fast_sum(double a, double b) {
  const double s = a + b;
  return {s, b - (s - a)};
}

inline Pair sum(Pair x, Pair y) {
  const Pair s = sum(x.hi, y.hi), t = sum(x.lo, y.lo);
  const Pair v = fast_sum(s.hi, s.lo + t.hi);
  return fast_sum(v.hi, t.lo + v.lo);
}

inline Pair product(double a, double b) {
  const double p = a * b;
  return {p, std::fma(a, b, -p)};
}

inline Pair product(Pair x, Pair y) {
  const Pair p = product(x.hi, y.hi);
  return fast_sum(p.hi, p.lo + std::fma(x.lo, y.hi, std::fma(x.hi, y.lo, x.lo * y.lo)));
}

inline Pair split(Wide x) {
  const auto hi = static_cast<double>(x);
  return {hi, static_cast<double>(x - hi)};
}

inline Wide joined(Pair x) { return static_cast<Wide>(x.hi) + x.lo; }

inline double power_of_two(int exponent) {  // Of a normal number.
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

// The 53 highest bits of x, the 53 after them, and the last 7. By its bits: the compiler's conversions take longer than
// what is computed of them. 2^-900 < |x| < 2^900.
inline std::array<double, 3> thirds(Wide x) {
  std::array<std::uint64_t, 2> words;
  static_assert(sizeof words == sizeof x);
  std::memcpy(words.data(), &x, sizeof x);
  if constexpr (std::endian::native == std::endian::big) std::swap(words[0], words[1]);
  const double unit = power_of_two(static_cast<int>(words[1] >> 48 & 0x7fff) - 16383);
  const double highest = words[1] >> 63 != 0 ? -unit : unit;
  const auto part = [&](std::uint64_t bits, int below) {
    return static_cast<double>(static_cast<std::int64_t>(bits)) * (highest * power_of_two(-below));
  };
  constexpr std::uint64_t kOfUpper = (std::uint64_t{1} << 48) - 1, kOfDouble = (std::uint64_t{1} << 53) - 1;
  const std::uint64_t upper = (words[1] & kOfUpper) + kOfUpper + 1;  // With the bit that is not written.
  return {part(upper << 4 | words[0] >> 60, 52), part(words[0] >> 7 & kOfDouble, 105), part(words[0] & 127, 112)};
}

}  // namespace plumbline::wide
