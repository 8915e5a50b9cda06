// Keys of rounding events: equal for operands that a kernel cannot tell apart.
#pragma once

#include <cstdint>

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

// Equal results of one function may differ in our replay's last bits where its own sums ran in another order.
PLUMBLINE_HOST_DEVICE inline std::uint64_t coarse_bits(double x) { return (bits_of(x) + 0x800) >> 12; }

}  // namespace plumbline::key
