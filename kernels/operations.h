// What a backend computes: a table for each, of which the current device's is used (kernels/device.h), so that no
// caller names a backend.
#pragma once

#include <span>

#include "kernels/chain.h"
#include "kernels/checks.h"
#include "kernels/comparison.h"
#include "kernels/primitive/primitive.h"
#include "kernels/projection.h"
#include "kernels/pullback.h"
#include "kernels/sharing.h"

namespace plumbline {

struct Operations {
  std::span<const PrimitiveTraits> primitives;  // Index: Primitive.

  // How it rounds: what its own fp64 results are bounded by.
  Arithmetic arithmetic;

  void (*decode)(Array& out, Format format, const void* bytes);  // `out` row-major; format.h.
  void (*copy)(Array& out, const Array& from);                   // Both have one shape, and either may be strided.
  void (*add)(Array& out, const Array& a, const Array& b);       // out = a + b
  // into (+)= the cotangent's sum over the dimensions along which an array of `shape` is broadcast to its shape. Empty:
  // untouched so far.
  void (*add_summed)(Array& into, const Shape& shape, const Array& cotangent);
  void (*scale)(Array& out, double factor, const Array& from);  // out = factor from
  void (*fill)(Array& out, double value);                       // `out` row-major.

  // out = (|centre| + radius) with the sign of the centre: of a ball's points, one of largest magnitude.
  void (*inflate)(Array& out, const Array& centre, const Array& radius);
  void (*add_bounds)(Array& out, const Array& a, const Array& b);  // out = a + b, rounded up.
  Later<Largest> (*largest)(const Array& radii, const Array& values);

  ChainResult (*run_chain)(const Chain&, std::span<const ChainInput>, std::int64_t count, std::span<const Array> into);
  Later<std::vector<PulledBack>> (*pull_back)(const Pullback&, std::span<const PulledFunctional>,
                                              std::span<const Array> errors, std::int64_t begin, std::int64_t count);
  Later<Comparison> (*compare)(std::span<const ComparedTerm> centres, std::span<const ComparedTerm> values,
                               std::int64_t count, double slack);

  EventOrder (*order_events)(std::span<const EventOperand> operands, const Array& value, std::int64_t row);
  Array (*merge_events)(const EventOrder& events, const Array& cotangent);

  // kernels/checks.h
  Later<Absorbed> (*absorbed)(const Array& accumulator, const Array& addend, Format format);
  Later<Cancelled> (*cancelled)(const Array& sum, const Array& a, const Array& x);
  FormatRange (*range_of)(Format format, const Array& values);
  Later<double> (*count_outside)(const Array& x, const Array& m, const Bound& r, double slack, double low, double high);
  Later<Finite> (*all_finite)(const Array& first, const Array& second);
  Later<Apart> (*apart)(const Array& a, const Array& b);
  Later<double> (*count_differing)(const Array& a, const Array& b);
  double (*outlying_rows)(const Arithmetic&, Inputs in, const Array& observed, std::uint64_t seed);  // projection.h

  // kernels/sums.h
  Later<std::vector<double>> (*weighted_bounds)(const std::vector<Array>& weights, const Bound& bound);
  Later<double> (*dot)(const Array& weights, const Array& values);
  Later<double> (*dot_difference)(const Array& weights, const Array& a, const Array& b);
  Later<double> (*norm2)(const Array& values);
  Later<double> (*norm_max)(const Array& values);
};

const Operations& host_operations();
const Operations& current_operations();  // The current device's, otherwise the host's.

namespace primitive {

// The table of the backend that is compiled, with this arithmetic.
Operations operations(const Arithmetic& arithmetic);

}  // namespace primitive
}  // namespace plumbline
