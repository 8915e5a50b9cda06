// What checks of whole arrays ask: counts and sums of elements, on the backend that the calling thread computes on, so
// that no array leaves it. Arrays need not be contiguous; all of a call have the same shape, or are broadcast to that
// of the first.
#pragma once

#include "kernels/array.h"
#include "kernels/ball/format.h"
#include "kernels/later.h"

namespace plumbline {

// What of addends x leaves an accumulator a as it was: round(a + x) = round(a) though x is not 0. Elements with an
// infinity or NaN do not count.
struct Absorbed {
  double elements = 0, lost_elements = 0;  // x != 0; those that are lost.
  double total = 0, lost = 0;              // Their sums of |x|.
};
Later<Absorbed> absorbed(const Array& accumulator, const Array& addend, Format format);

// Sums of squares of |a| + |x|, and of their sum t.
struct Cancelled {
  double terms_squares = 0, squares = 0;
};
Later<Cancelled> cancelled(const Array& sum, const Array& a, const Array& x);

// Finite values that are not 0 against the range of a format.
struct FormatRange {
  double nonzero = 0, overflowing = 0, underflowing = 0;
  double squares = 0, lost_squares = 0;  // The second is the part of what values below the normal range lose.
  double largest = 0;                    // Magnitude.
};
FormatRange range_of(Format format, const Array& values);

// Elements x that no legal execution gives whose exact value m has the radius r: |x - m| > slack r, or x outside of
// [low, high]. Equal ones, and those whose m is not finite, do not count. An empty radius is 0.
Later<double> count_outside(const Array& x, const Array& m, const Bound& r, double slack, double low, double high);

// Whether they hold no infinity or NaN: two arrays of one count, in one pass.
struct Finite {
  bool first = false, second = false;
};
Later<Finite> all_finite(const Array& first, const Array& second);

// How far two arrays of one count are apart, in one pass.
struct Apart {
  double norm = 0;        // L2, of the second; NaN if any element is NaN.
  double difference = 0;  // L2 norm of the difference. Equal elements differ by 0, infinities included.

  double relative() const { return difference == 0 ? 0 : difference / (norm > 0 ? norm : 1); }
};
Later<Apart> apart(const Array& a, const Array& b);

// Elements where the arrays have other bits: 0 and -0 do, two NaN do not.
Later<double> count_differing(const Array& a, const Array& b);

}  // namespace plumbline
