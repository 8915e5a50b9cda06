// Exact sums of doubles and of products of doubles: a fixed-point number as wide as all of them (Kulisch).
#pragma once

#include <array>
#include <cstdint>

namespace plumbline::soundness {

// An exact result as a sum of two doubles, good to 2^-96 of itself.
struct Exact {
  double value = 0, rest = 0;
};

// |x - e|; NaN if either is.
inline double distance(double x, const Exact& e) {
  const double d = x == e.value ? 0 : x - e.value;  // Equal infinities agree.
  const double difference = d - e.rest;
  return difference < 0 ? -difference : difference;
}

class Superaccumulator {
 public:
  void add(double x);                    // Finite.
  void add_product(double a, double b);  // Finite.
  Exact value() const;

 private:
  void add_scaled(unsigned __int128 magnitude, int exponent, bool negative);

  // Limb i holds multiples of 2^(32 i - kLowest); up to 2^30 additions before a limb could overflow.
  static constexpr int kLowest = 2176, kLimbs = 140;
  std::array<std::int64_t, kLimbs> limbs_{};
};

}  // namespace plumbline::soundness
