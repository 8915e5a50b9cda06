// What a backend computes: a table for each, of which the current device's is used (kernels/device.h). Everything
// beyond elementwise loops over arrays goes through it, so that no caller names a backend.
#pragma once

#include <span>

#include "kernels/primitive/primitive.h"

namespace plumbline {

struct Operations {
  std::span<const PrimitiveTraits> primitives;  // Index: Primitive.

  void (*copy)(Array& out, const Array& from);  // Of equal shape, either strided.
  void (*fill)(Array& out, double value);       // `out` row-major.

  // kernels/cpu/sums.h
  double (*weighted_bound)(const Array& weights, const Bound& bound);
  double (*dot)(const Array& weights, const Array& values);
  double (*dot_difference)(const Array& weights, const Array& a, const Array& b);
  double (*norm2)(const Array& values);
  double (*norm_max)(const Array& values);
  double (*norm2_difference)(const Array& a, const Array& b);
};

const Operations& host_operations();
const Operations& current_operations();  // The current device's, otherwise the host's.

}  // namespace plumbline
