// Images of points under primitives, enclosed by FLINT/Arb: the oracle of the radius rules.
#pragma once

#include <arb.h>

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

using Point = std::vector<std::vector<Real>>;  // Of each input, row-major; exact and finite.

// Of every element of the result. NaN where the point lies outside of the domain; infinite at a pole, and where the
// image is beyond 2^(2^20). Empty for a primitive that has no oracle.
std::vector<Real> images(const Problem& problem, const Point& point, slong precision);

}  // namespace plumbline::soundness
