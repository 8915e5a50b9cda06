// Sums over whole arrays, on the backend that the calling thread computes on. Chunks of fixed size are added in order,
// so that a result does not depend on the number of threads. Arrays need not be contiguous; two arrays must have the
// same count. Whoever adds up several of them asks for all of these first.
#pragma once

#include <vector>

#include "kernels/operations.h"

namespace plumbline {

// sum |weight_i| bound_i, rounded up. Elements of weight exactly 0 add nothing, even where the bound is infinite; so do
// those of bound exactly 0, whatever the weight.
inline Later<double> weighted_bound(const Array& weights, const Bound& bound) {
  return current_operations().weighted_bounds({weights}, bound).then([](const auto& one) { return one.front(); });
}
// Bounds each of the weighted sums.
inline Later<std::vector<double>> weighted_bounds(const std::vector<Array>& weights, const Bound& bound) {
  return current_operations().weighted_bounds(weights, bound);
}

// sum weight_i value_i; elements of weight exactly 0 add nothing.
inline Later<double> dot(const Array& weights, const Array& values) {
  return current_operations().dot(weights, values);
}

// sum weight_i (a_i - b_i); elements of weight exactly 0 add nothing.
inline Later<double> dot_difference(const Array& weights, const Array& a, const Array& b) {
  return current_operations().dot_difference(weights, a, b);
}

// L2 norm; NaN if any element is NaN.
inline Later<double> norm2(const Array& values) { return current_operations().norm2(values); }

// Largest magnitude; NaN if any element is NaN.
inline Later<double> norm_max(const Array& values) { return current_operations().norm_max(values); }

// L2 norm of the difference (apart, kernels/checks.h).
inline Later<double> norm2_difference(const Array& a, const Array& b) {
  return apart(a, b).then([](const Apart& apart) { return apart.difference; });
}

// All of them, added in order.
inline double sum_of(const std::vector<Later<double>>& parts) {
  double sum = 0;
  for (const Later<double>& part : parts) sum += part.get();
  return sum;
}

}  // namespace plumbline
