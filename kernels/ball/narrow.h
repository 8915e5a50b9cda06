// Magnitudes in a narrower format, from above: operands of products that bound others.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ball/scalar.h"

namespace plumbline {

struct Narrow {
  double scale, floor;  // (|x| + floor) scale is at most 2.

  // Not below (|x| + floor) scale, and 0 or at least 2^-60: products of two of these do not underflow.
  PLUMBLINE_HOST_DEVICE float operator()(double x) const {
    const double wanted = (std::fabs(x) + floor) * scale * (1 + 0x1p-50);
    const auto nearest = static_cast<float>(wanted);
    const float above = static_cast<double>(nearest) < wanted ? nearest * (1 + 0x1p-22F) : nearest;
    return x == 0 && floor == 0 ? 0.0F : above < 0x1p-60F ? 0x1p-60F : above;
  }

  // In the upper half of a float's bits: bf16.
  PLUMBLINE_HOST_DEVICE std::uint16_t bf16(double x) const {
    const float above = (*this)(x);
    std::uint32_t bits;
    __builtin_memcpy(&bits, &above, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0xffff) >> 16);
  }
};

}  // namespace plumbline
