// Sums over whole arrays, with both cores. Chunks of fixed size are added in order, so that a result does not depend
// on the number of threads. Arrays need not be contiguous; two arrays must have the same count.
#pragma once

#include "kernels/array.h"

namespace plumbline::cpu {

// sum |weight_i| bound_i, rounded up. Elements of weight exactly 0 add nothing, even where the bound is infinite.
double weighted_bound(const Array& weights, const Bound& bound);

// sum weight_i value_i; elements of weight exactly 0 add nothing.
double dot(const Array& weights, const Array& values);

// sum weight_i (a_i - b_i); elements of weight exactly 0 add nothing.
double dot_difference(const Array& weights, const Array& a, const Array& b);

double norm2(const Array& values);                        // L2 norm; NaN if any element is NaN.
double norm_max(const Array& values);                     // Largest magnitude; NaN if any element is NaN.
double norm2_difference(const Array& a, const Array& b);  // Equal elements differ by 0, infinities included.

}  // namespace plumbline::cpu
