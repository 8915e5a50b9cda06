// Two results compared element by element: does each element lie as close to its centre as its radius allows? What is
// kept is what a verdict needs, so that no array of bounds leaves the place where it was computed.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/chain.h"

namespace plumbline {

// weight x, whose x may be off by its radius and by `own` |x|. Of both, u |x| + eta is the rounding of x to the format
// that holds it.
struct ComparedTerm {
  ChainInput x;
  double weight = 1;
  double own = 0;
  double u = 0, eta = 0;
};

struct Comparison {
  bool finite = true;  // All centres are.
  double radius_squares = 0, centre_squares = 0;
  double excess_squares = 0;  // Of the radii without the roundings of results to the formats that hold them.
  double worst = -1;          // Largest deviation over radius, and where first; -1: nothing was looked at.
  std::uint64_t element = 0;
  double centre = 0, radius = 0, value = 0;

  void join(const Comparison& next);  // Of elements further on.
};

// |value - centre| <= slack * radius, of `count` elements, where centre and value are sums of terms, added in order,
// and the radius is the sum of all terms' own. On the backend that the calling thread computes on; the host's uses that
// thread alone.
Comparison compare(std::span<const ComparedTerm> centres, std::span<const ComparedTerm> values, std::int64_t count,
                   double slack);

namespace comparison {

// Deviation over radius; equal values deviate by nothing, NaN from NaN too.
PLUMBLINE_HOST_DEVICE inline double ratio(double centre, double value, double allowed) {
  const double deviation = std::fabs(value - centre);
  const bool same = (value == centre) | ((value != value) & (centre != centre));
  const bool bounded = (allowed > 0) & (deviation < HUGE_VAL);
  return same ? 0 : bounded ? deviation / allowed : HUGE_VAL;
}

}  // namespace comparison
}  // namespace plumbline
