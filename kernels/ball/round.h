// Rounding to nearest into a format, where loops and kernels inline it; round_to (format.h) says what it does.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ball/format.h"
#include "kernels/ball/scalar.h"

namespace plumbline {

class RoundTo {
 public:
  explicit RoundTo(Format format) {
    const FormatTraits& t = traits(format);
    dropped_ = t.precision > 0 ? 53 - t.precision : 0;
    if (dropped_ == 0) return;
    normal_ = std::ldexp(1.0, t.exponent_min);
    shift_ = std::ldexp(1.5, 52 + t.exponent_min - t.precision + 1);
    largest_ = largest_finite(t);
    overflowed_ = t.infinities ? __builtin_inf() : largest_;
  }

  PLUMBLINE_HOST_DEVICE double operator()(double x) const {
    if (dropped_ == 0) return x;
    if (dropped_ == kOfFloat) return static_cast<double>(static_cast<float>(x));
    const double magnitude = std::fabs(x);
    double y;
    if (magnitude < normal_) {
      // Adding 1.5 2^52 quanta leaves room for no fraction of a quantum: the sum rounds to nearest, ties to even.
      y = (magnitude + shift_) - shift_;
    } else if (magnitude <= largest_ * 2) {
      std::uint64_t bits;
      __builtin_memcpy(&bits, &magnitude, sizeof bits);
      bits += (std::uint64_t{1} << (dropped_ - 1)) - 1 + (bits >> dropped_ & 1);
      bits &= ~((std::uint64_t{1} << dropped_) - 1);
      __builtin_memcpy(&y, &bits, sizeof y);
      y = y > largest_ ? overflowed_ : y;
    } else {
      y = magnitude != magnitude ? magnitude : overflowed_;
    }
    return std::copysign(y, x);
  }

 private:
  static constexpr int kOfFloat = 53 - 24;
  int dropped_ = 0;  // Bits of a double that the format has not.
  double normal_ = 0, shift_ = 0, largest_ = 0, overflowed_ = 0;
};

}  // namespace plumbline
