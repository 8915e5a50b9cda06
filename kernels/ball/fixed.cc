#include "kernels/ball/fixed.h"

#include <algorithm>
#include <cmath>

namespace plumbline {

double FixedPoint::step() const { return std::ldexp(1.0, -fraction_bits); }

double FixedPoint::low() const { return -std::ldexp(1.0, integer_bits - 1); }

double FixedPoint::high() const {
  const double beyond = -low();
  return integer_bits + fraction_bits <= 53 ? beyond - step() : std::nextafter(beyond, 0.0);
}

double FixedPoint::round(double x, Rounding rounding, double draw) const {
  if (x != x) return 0;
  const double inside = std::clamp(x, low(), high());
  const double scaled = std::ldexp(inside, fraction_bits);
  double code = 0;
  switch (rounding) {
    case Rounding::kNearest:
      code = std::nearbyint(scaled);
      break;
    case Rounding::kTowardZero:
      code = std::trunc(scaled);
      break;
    case Rounding::kStochastic:
      code = std::floor(scaled) + (draw < scaled - std::floor(scaled) ? 1 : 0);
      break;
  }
  return std::clamp(std::ldexp(code, -fraction_bits), low(), high());
}

}  // namespace plumbline
