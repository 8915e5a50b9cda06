// What is asked of wide arrays in the end: how far apart two values are, in fp64.
#pragma once

#include "kernels/wide/array.h"

namespace plumbline::wide {

// To the nearest double; what is too large for fp64 becomes infinite.
Array rounded(const WideArray& values);

// a - b, subtracted in wide scalars and then rounded to fp64; row-major, of a's shape. Both have the same count.
// Infinities of one sign differ by 0, NaN differs from everything by NaN.
Array difference(const WideArray& a, const WideArray& b);
Array difference(const WideArray& a, const Array& b);

// a + weight b, of a's shape; both have the same count.
WideArray plus(const WideArray& a, double weight, const WideArray& b);

// sum weight_i value_i and sum weight_i (a_i - b_i), added in wide scalars. Elements whose weight is exactly 0 add
// nothing. All arguments have the same count.
double dot(const Array& weights, const WideArray& values);
double dot_difference(const Array& weights, const WideArray& a, const WideArray& b);

// L2 norm and largest magnitude; NaN if any element is NaN.
double norm2(const WideArray& values);
double norm_max(const WideArray& values);

}  // namespace plumbline::wide
