// Images of points under primitives, enclosed by FLINT/Arb: the oracle of the radius rules.
#pragma once

#include <arb.h>

#include <optional>
#include <utility>
#include <vector>

#include "tests/soundness/problem.h"

namespace plumbline::soundness {

class Real {  // A real number, as a ball that holds it; a point is exact.
 public:
  Real() { arb_init(x_); }
  explicit Real(double x) : Real() { arb_set_d(x_, x); }
  Real(const Real& other) : Real() { arb_set(x_, other.x_); }
  Real(Real&& other) noexcept : Real() { arb_swap(x_, other.x_); }
  Real& operator=(Real other) noexcept {
    arb_swap(x_, other.x_);
    return *this;
  }
  ~Real() { arb_clear(x_); }
  operator arb_ptr() { return x_; }
  operator arb_srcptr() const { return x_; }
  arf_srcptr point() const { return arb_midref(x_); }

 private:
  arb_t x_;
};

using Point = std::vector<std::vector<Real>>;  // The numbers of each input, row-major; exact and finite.

// The image of a point that lies in the function's domain: infinite at a pole, and where it is beyond 2^(2^20). It has
// no value where the point lies outside of the domain.
using Image = std::optional<Real>;

// The image of every element of the result. Throws std::logic_error for a primitive that has no oracle.
std::vector<Image> images(const Problem& problem, const Point& point, slong precision);

}  // namespace plumbline::soundness
