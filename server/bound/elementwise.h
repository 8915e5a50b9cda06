// Two values of a tap, compared element by element: does each element lie as close to its centre as its radius allows?
#pragma once

#include "server/bound/bounds.h"

namespace plumbline {

struct Elementwise {
  bool finite = true;  // All centres are.
  double radius_squares = 0, centre_squares = 0;
  double excess_squares = 0;  // Of the radii without the rounding of each result to the format that holds it.
  double worst = -1;          // Largest deviation over radius, and where; -1: nothing was looked at.
  std::uint64_t element = 0;
  double centre = 0, radius = 0, value = 0;

  void join(const Elementwise& next);
  // `length` elements from number `begin` on: |value - centre| <= slack * radius. `rounding`: the radii's part that is
  // the rounding of the results to their formats.
  void look_at(std::int64_t begin, std::int64_t length, const double* centres, const double* values,
               const double* radii, const double* rounding, double slack);
  // The worst element's ratio, in units of the radii's norm over `scale`; 0: over the centres' norm.
  Answer answer(double scale) const;
};

}  // namespace plumbline
