// Sums over whole arrays, on the backend that the calling thread computes on. Chunks of fixed size are added in order,
// so that a result does not depend on the number of threads. Arrays need not be contiguous; two arrays must have the
// same count.
#pragma once

#include "kernels/operations.h"

namespace plumbline {

// sum |weight_i| bound_i, rounded up. Elements of weight exactly 0 add nothing, even where the bound is infinite.
inline double weighted_bound(const Array& weights, const Bound& bound) {
  return current_operations().weighted_bounds({weights}, bound).front();
}
// Bounds each of the weighted sums.
inline std::vector<double> weighted_bounds(const std::vector<Array>& weights, const Bound& bound) {
  return current_operations().weighted_bounds(weights, bound);
}

// sum weight_i value_i; elements of weight exactly 0 add nothing.
inline double dot(const Array& weights, const Array& values) { return current_operations().dot(weights, values); }

// sum weight_i (a_i - b_i); elements of weight exactly 0 add nothing.
inline double dot_difference(const Array& weights, const Array& a, const Array& b) {
  return current_operations().dot_difference(weights, a, b);
}

// L2 norm; NaN if any element is NaN.
inline double norm2(const Array& values) { return current_operations().norm2(values); }

// Largest magnitude; NaN if any element is NaN.
inline double norm_max(const Array& values) { return current_operations().norm_max(values); }

// L2 norm of the difference. Equal elements differ by 0, infinities included.
inline double norm2_difference(const Array& a, const Array& b) { return current_operations().norm2_difference(a, b); }

}  // namespace plumbline
