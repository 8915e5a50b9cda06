// Keys of rounding events: equal for operands that a kernel cannot tell apart.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ball/format.h"
#include "kernels/ball/scalar.h"

namespace plumbline::key {

PLUMBLINE_HOST_DEVICE inline std::uint64_t bits_of(double x) {
  std::uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

PLUMBLINE_HOST_DEVICE inline std::uint64_t mixed(std::uint64_t z) {  // The finaliser of splitmix64 (Steele, Lea,
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;                       // Flood 2014).
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

inline constexpr std::uint64_t kStart = 0x9e3779b97f4a7c15ULL;

// What a format keeps of a number.
struct Held {
  int precision = 53, exponent_min = -1022;

  explicit Held(Format format) {
    if (!is_float(format)) return;  // All of it.
    precision = traits(format).precision;
    exponent_min = traits(format).exponent_min;
  }
};

// Bits of x as it is held, rounded to nearest. (Overflow is not told: what overflows is no event.)
PLUMBLINE_HOST_DEVICE inline std::uint64_t held_bits(const Held& held, double x) {
  if (held.precision == 53 || !(std::fabs(x) < __builtin_inf())) return bits_of(x);
  if (held.precision == 24) return bits_of(static_cast<float>(x));
  if (x == 0) return bits_of(x);
  const int exponent = std::ilogb(x);
  const int quantum = (exponent < held.exponent_min ? held.exponent_min : exponent) - held.precision + 1;
  return bits_of(std::scalbn(std::rint(std::scalbn(x, -quantum)), quantum));
}

// Equal results of one function may differ in our replay's last bits where its own sums ran in another order.
PLUMBLINE_HOST_DEVICE inline std::uint64_t coarse_bits(double x) { return (bits_of(x) + 0x800) >> 12; }

}  // namespace plumbline::key
