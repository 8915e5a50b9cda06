// What the enclosure rules share.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/array.h"

namespace plumbline::primitive {

// A dozen roundings of 2^-53 each, and then some; a bound that cannot be computed is none.
inline double up(double bound) {
  return bound == bound ? bound * (1 + 0x1p-40) : std::numeric_limits<double>::infinity();
}

inline bool all_exact(std::span<const Bound> radii) {
  return std::none_of(radii.begin(), radii.end(), [](const Bound& r) { return static_cast<bool>(r); });
}

// The radius as an operand; an empty one is the scalar 0.
inline Array radius_of(const Bound& radius) { return radius ? radius.values : Array::scalar(0); }

}  // namespace plumbline::primitive
