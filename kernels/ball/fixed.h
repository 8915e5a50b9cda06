// Fixed point <IL,FL>: IL bits before the binary point, the sign's included, FL behind it. Codes are integers times a
// step of 2^-FL in [-2^(IL-1), 2^(IL-1) - 2^-FL]; what lies beyond saturates.
//
// The common mistake: there is no unit roundoff. Rounding is off by half a step, or by a step when it is stochastic or
// toward zero, whatever the value.
#pragma once

#include "kernels/ball/format.h"

namespace plumbline {

struct FixedPoint {
  static constexpr int kBitsMax = 64;

  int integer_bits = 1;   // IL >= 1
  int fraction_bits = 0;  // FL >= 0; IL + FL <= kBitsMax

  double step() const;
  double low() const;
  double high() const;  // Beyond 53 bits the double below it.
  // Exact for up to 53 bits. `draw` as in round_to(Format, ...). NaN becomes 0, as in a conversion to an integer.
  double round(double x, Rounding rounding, double draw = 0) const;
  // Largest error of rounding a value within the range.
  double error(Rounding rounding) const { return rounding == Rounding::kNearest ? step() / 2 : step(); }
};

}  // namespace plumbline
