// What the enclosure rules share. An infinite ball (and a radius of NaN) holds anything, NaN included; a finite one
// around an infinity or NaN holds that alone. Points outside of a function's domain do not count.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/ball/scalar.h"
#include "kernels/primitive/primitive.h"

namespace plumbline::primitive {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A dozen roundings of 2^-53 each, and then some; a bound that cannot be computed is none.
PLUMBLINE_HOST_DEVICE inline double up(double bound) {
  return bound == bound ? bound * (1 + 0x1p-40) : std::numeric_limits<double>::infinity();
}

// Products and quotients of upper bounds that may underflow: one step of fp64's grid covers that. Exact zeros stay.
inline constexpr double kLeast = 0x1p-1074;
PLUMBLINE_HOST_DEVICE inline double times(double x, double y) { return x * y + (x == 0 || y == 0 ? 0.0 : kLeast); }
PLUMBLINE_HOST_DEVICE inline double over(double x, double y) { return x / y + (x == 0 ? 0.0 : kLeast); }

inline bool all_exact(std::span<const Bound> radii) {
  return std::none_of(radii.begin(), radii.end(), [](const Bound& r) { return static_cast<bool>(r); });
}

// The radius as an operand; an empty one is the scalar 0.
inline Array radius_of(const Bound& radius) { return radius ? radius.values : Array::scalar(0); }

}  // namespace plumbline::primitive
