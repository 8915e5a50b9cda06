// Sums in which one term stands for infinity, as the numbers do that masks add to scores.
//
// From 2^64 on a finite number that a program adds to a much smaller one is a limit, not a quantity: what the other was
// is lost in every format. Rows of scores that are masked all over would be said to keep what no execution keeps, were
// it not so in exact arithmetic too. The sum is then the term that absorbs the other:
//
//   a + b = b   where |b| > 2^64 and |a| <= 2^-75 |b|.
//
// Roundings to nearest of formats up to fp64 give that, as would |a| <= 2^-54 |b|: half an ulp of b is no less. The
// rest makes the step between both meanings, |a|, small beside a rounding of fp64 (2^-22 of it), so that what is
// charged for a rounding where it is not known on which side of the step an execution lies covers it. The derivative
// stays that of the sum, which charges a's own roundings and no less.
#pragma once

#include <cmath>

#include "kernels/ball/scalar.h"

namespace plumbline::primitive {

inline constexpr double kStandsForInfinity = 0x1p64, kAbsorbed = 0x1p-75;

// `sum` is b to fp64.
PLUMBLINE_HOST_DEVICE inline bool absorbed(double a, double sum) {
  return std::fabs(sum) > kStandsForInfinity && std::fabs(a) <= kAbsorbed * std::fabs(sum);
}

}  // namespace plumbline::primitive
