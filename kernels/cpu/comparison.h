// A comparison on the host (kernels/comparison.h), a block of elements at a time.
#pragma once

#include <algorithm>

#include "kernels/comparison.h"

namespace plumbline::cpu {
namespace internal {

constexpr std::int64_t kComparedBlock = 256;

struct ComparedBlock {
  double sum[kComparedBlock] = {}, radius[kComparedBlock] = {}, rounding[kComparedBlock] = {};
  double event[kComparedBlock] = {};  // Roundings within the radius.

  void add(const ComparedTerm& term, bool first, std::int64_t begin, std::int64_t n) {
    double decoded[kComparedBlock];
    const double* x = decoded;
    if (term.x.values) {
      x = term.x.values.data() + begin;
    } else {
      decode(term.x.format, term.x.bytes + begin * traits(term.x.format).bytes, n, decoded);
    }
    const double weight = term.weight, size = std::fabs(weight), own = term.own, u = term.u, eta = term.eta;
    if (first) {
      for (std::int64_t i = 0; i < n; ++i) sum[i] = weight * x[i];
    } else {
      for (std::int64_t i = 0; i < n; ++i) sum[i] += weight * x[i];
    }
    if (term.x.radii) {
      const double* const r = term.x.radii.values.data() + begin;
      for (std::int64_t i = 0; i < n; ++i) {
        const double rounds = u * std::fabs(x[i]) + eta;
        radius[i] += size * r[i];
        event[i] += size * (rounds < r[i] ? rounds : r[i]);
      }
    }
    if (own != 0)
      for (std::int64_t i = 0; i < n; ++i) radius[i] += size * (own * std::fabs(x[i]));
    if (u != 0 || eta != 0)
      for (std::int64_t i = 0; i < n; ++i) rounding[i] += size * (u * std::fabs(x[i]) + eta);
  }
};

inline Comparison looked_at(std::int64_t begin, std::int64_t n, const ComparedBlock& centres,
                            const ComparedBlock& values, double slack) {
  double radius_sum = 0, excess_sum = 0, centre_sum = 0, largest = 0, least = 1;
  double not_finite = 0;  // 0 or NaN.
  double radii[kComparedBlock], ratios[kComparedBlock];
#pragma omp simd reduction(+ : radius_sum, excess_sum, centre_sum, not_finite) reduction(max : largest) \
    reduction(min : least)
  for (std::int64_t i = 0; i < n; ++i) {
    const double m = centres.sum[i], t = values.sum[i], r = centres.radius[i] + values.radius[i];
    const double excess = std::max(0.0, r - (centres.rounding[i] + values.rounding[i]));
    radius_sum += r * r;
    excess_sum += excess * excess;
    centre_sum += m * m;
    not_finite += m - m;
    radii[i] = r * slack;
    ratios[i] = comparison::ratio(m, t, radii[i]);
    largest = std::max(largest, ratios[i]);
    least = std::min(least, comparison::chance(m, t, radii[i], centres.event[i] + values.event[i]));
  }
  const std::int64_t i = std::find(ratios, ratios + n, largest) - ratios;
  return {not_finite == 0, radius_sum, centre_sum,    excess_sum, largest, static_cast<std::uint64_t>(begin + i),
          centres.sum[i],  radii[i],   values.sum[i], least};
}

}  // namespace internal

inline Comparison compare(std::span<const ComparedTerm> centres, std::span<const ComparedTerm> values,
                          std::int64_t count, double slack) {
  Comparison found;
  for (std::int64_t begin = 0; begin < count; begin += internal::kComparedBlock) {
    const std::int64_t n = std::min(internal::kComparedBlock, count - begin);
    internal::ComparedBlock centre, value;
    for (std::size_t k = 0; k < centres.size(); ++k) centre.add(centres[k], k == 0, begin, n);
    for (std::size_t k = 0; k < values.size(); ++k) value.add(values[k], k == 0, begin, n);
    found.join(internal::looked_at(begin, n, centre, value, slack));
  }
  return found;
}

}  // namespace plumbline::cpu
