// Two results compared element by element: does each element lie as close to its centre as its radius allows? What is
// kept is what a verdict needs, so that no array of bounds leaves the place where it was computed.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/chain.h"

namespace plumbline {

// weight x, whose x may be off by its radius and by `own` |x|. In both, u |x| + eta is the rounding of x to the format
// that holds it; where the radius is smaller, all of the radius is.
struct ComparedTerm {
  ChainInput x;
  double weight = 1;
  double own = 0;
  double u = 0, eta = 0;
};

struct Comparison {
  bool finite = true;  // All centres are.
  double radius_squares = 0, centre_squares = 0;
  double excess_squares = 0;  // Here radii do not include the roundings of results to the formats that hold them.
  double worst = -1;          // Largest deviation over radius, and where first; -1: nothing was looked at.
  std::uint64_t element = 0;
  double centre = 0, radius = 0, value = 0;
  double least_chance = 1;  // The least `chance` (below) over all elements.

  void join(const Comparison& next);  // `next` compared elements that come after ours.
};

// |value - centre| <= slack * radius, of `count` elements, where centre and value are sums of terms, at least one each,
// added in order, and the radius is the sum of all terms' own. On the backend that the calling thread computes on; the
// host's uses that thread alone.
Later<Comparison> compare(std::span<const ComparedTerm> centres, std::span<const ComparedTerm> values,
                          std::int64_t count, double slack);

namespace comparison {

// Deviation over radius; equal values deviate by nothing, NaN from NaN too.
PLUMBLINE_HOST_DEVICE inline double ratio(double centre, double value, double allowed) {
  const double deviation = std::fabs(value - centre);
  const bool same = (value == centre) | ((value != value) & (centre != centre));
  const bool bounded = (allowed > 0) & (deviation < HUGE_VAL);
  return same ? 0 : bounded ? deviation / allowed : HUGE_VAL;
}

// A bound of the probability that a legal value lies as far from its centre, or further. Let e be the sum of the
// roundings of results, within `event` in all, and b the rest of the error, within rest = allowed - event.
//
// The model: roundings are independent and each is uniform within its half-width; of b nothing is assumed. A sum of
// symmetric unimodal variables is one (Wintner 1938), so that e is a mixture of uniforms on [-w, w], w <= event
// (Khinchine 1938). For such e the probability of |e + b| >= d > rest is convex in b, hence largest at b = +-rest, and
// there it grows with w, so that w = event bounds it. For d <= rest it may be 1. One rounding alone has 1 - d / event.
//
// Nothing that is allowed has no chance at all: 2^-53 is the resolution of these numbers.
PLUMBLINE_HOST_DEVICE inline double chance(double centre, double value, double allowed, double event) {
  const double deviation = std::fabs(value - centre);
  const bool same = (value == centre) | ((value != value) & (centre != centre));
  const double width = event < allowed ? event : allowed, rest = allowed - width;
  const double nearer = allowed - deviation, further = width - rest - deviation;
  const double tails = ((nearer > 0 ? nearer : 0) + (further > 0 ? further : 0)) / (2 * width);
  const double within = tails > 0x1p-53 ? tails : 0x1p-53;
  const bool certain = same | ((deviation <= rest) & (deviation < HUGE_VAL));
  return certain ? 1 : nearer >= 0 ? within : 0;
}

}  // namespace comparison
}  // namespace plumbline
