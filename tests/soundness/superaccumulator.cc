#include "tests/soundness/superaccumulator.h"

#include <bit>
#include <cmath>

namespace plumbline::soundness {
namespace {

struct Parts {
  std::uint64_t mantissa;
  int exponent;
  bool negative;
};

Parts parts_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const int biased = static_cast<int>(bits >> 52 & 0x7ff);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  return {biased == 0 ? fraction : fraction | std::uint64_t{1} << 52, (biased == 0 ? 1 : biased) - 1075,
          (bits >> 63) != 0};
}

}  // namespace

void Superaccumulator::add_scaled(unsigned __int128 magnitude, int exponent, bool negative) {
  const int at = exponent + kLowest;
  int limb = at / 32;
  const int shift = at % 32;
  // The lowest limb takes its 32 - shift bits, each further one 32.
  std::uint64_t low = (static_cast<std::uint64_t>(magnitude) << shift) & 0xffffffffU;
  magnitude >>= 32 - shift;
  while (true) {
    limbs_[static_cast<std::size_t>(limb)] +=
        negative ? -static_cast<std::int64_t>(low) : static_cast<std::int64_t>(low);
    if (magnitude == 0) return;
    low = static_cast<std::uint64_t>(magnitude) & 0xffffffffU;
    magnitude >>= 32;
    ++limb;
  }
}

void Superaccumulator::add(double x) {
  const Parts p = parts_of(x);
  add_scaled(p.mantissa, p.exponent, p.negative);
}

void Superaccumulator::add_product(double a, double b) {
  const Parts p = parts_of(a), q = parts_of(b);
  add_scaled(static_cast<unsigned __int128>(p.mantissa) * q.mantissa, p.exponent + q.exponent,
             p.negative != q.negative);
}

Exact Superaccumulator::value() const {
  // Carries to [0, 2^32), the sign in what is left above; then the magnitude.
  std::array<std::int64_t, kLimbs> v = limbs_;
  const auto carry = [&v] {
    std::int64_t over = 0;
    for (std::int64_t& limb : v) {
      limb += over;
      over = limb >> 32;
      limb -= over * (std::int64_t{1} << 32);
    }
    return over;
  };
  const bool negative = carry() < 0;
  if (negative) {
    for (std::int64_t& limb : v) limb = -limb;
    carry();
  }
  int top = kLimbs - 1;
  while (top >= 0 && v[static_cast<std::size_t>(top)] == 0) --top;
  if (top < 0) return {};
  const int last = top > 3 ? top - 3 : 0;
  unsigned __int128 leading = 0;
  for (int i = top; i >= last; --i)
    leading = leading << 32 | static_cast<std::uint64_t>(v[static_cast<std::size_t>(i)]);
  const auto high = static_cast<double>(leading);
  const double low = high >= 0x1p128
                         ? -static_cast<double>(~leading) - 1
                         : static_cast<double>(static_cast<__int128>(leading - static_cast<unsigned __int128>(high)));
  const double sign = negative ? -1 : 1;
  const int exponent = 32 * last - kLowest;
  return {std::ldexp(sign * high, exponent), std::ldexp(sign * low, exponent)};
}

}  // namespace plumbline::soundness
