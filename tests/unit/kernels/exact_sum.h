// Sums of products of doubles, exactly: a fixed-point number that is wide enough for all of them.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace plumbline::testing {

class ExactSum {
 public:
  // Finite factors.
  void add(double x, double y) {
    int ex = 0, ey = 0;
    const auto mx = static_cast<std::int64_t>(std::ldexp(std::frexp(x, &ex), 53));
    const auto my = static_cast<std::int64_t>(std::ldexp(std::frexp(y, &ey), 53));
    if (mx == 0 || my == 0) return;
    const bool negative = (mx < 0) != (my < 0);
    const auto magnitude =
        static_cast<unsigned __int128>(mx < 0 ? -mx : mx) * static_cast<unsigned __int128>(my < 0 ? -my : my);
    const int lowest = ex + ey - 106 + kBelow;  // Of the product's bits; at least 0.
    unsigned __int128 left = magnitude;
    std::size_t limb = static_cast<std::size_t>(lowest / 32);
    const int shift = lowest % 32;
    // The first limb takes what is below the next one's bits.
    std::uint64_t part = static_cast<std::uint64_t>(left & ((std::uint64_t{1} << (32 - shift)) - 1)) << shift;
    left >>= 32 - shift;
    while (true) {
      limbs_[limb++] += negative ? -static_cast<std::int64_t>(part) : static_cast<std::int64_t>(part);
      if (left == 0) break;
      part = static_cast<std::uint64_t>(left & 0xffffffffU);
      left >>= 32;
    }
    if (++added_ % (1 << 20) == 0) carry();
  }
  void subtract(double x) { add(-x, 1); }

  // Within 2^-60 of the sum.
  long double value() {
    carry();
    const bool negative = limbs_.back() < 0;
    if (negative) negate();
    long double sum = 0;
    for (std::size_t i = limbs_.size(), taken = 0; i-- > 0 && taken < 4;) {
      if (limbs_[i] == 0 && taken == 0) continue;
      sum += std::ldexp(static_cast<long double>(limbs_[i]), static_cast<int>(i) * 32 - kBelow);
      ++taken;
    }
    if (negative) negate();
    return negative ? -sum : sum;
  }

 private:
  static constexpr int kBelow = 2400;  // Bits below 1.

  void carry() {
    for (std::size_t i = 0; i + 1 < limbs_.size(); ++i) {
      limbs_[i + 1] += limbs_[i] >> 32;
      limbs_[i] &= 0xffffffff;
    }
  }
  void negate() {
    for (std::int64_t& limb : limbs_) limb = -limb;
    carry();
  }

  std::array<std::int64_t, 145> limbs_{};  // Of 32 bits and what waits to be carried.
  int added_ = 0;
};

}  // namespace plumbline::testing
