// A comparison on the host (kernels/comparison.h), a block of elements at a time.
#pragma once

#include <algorithm>

#include "kernels/comparison.h"
#include "kernels/cpu/lines.h"

namespace plumbline::cpu {
namespace internal {

constexpr std::int64_t kComparedBlock = 256;

// The sums of one side's terms.
struct alignas(kLine) ComparedBlock {
  double sum[kComparedBlock], radius[kComparedBlock], rounding[kComparedBlock];
  double event[kComparedBlock];  // Roundings within the radius.

  void add(const ComparedTerm& term, bool first, std::int64_t begin, std::int64_t n) {
    alignas(kLine) double decoded[kComparedBlock];
    const double* x = decoded;
    if (term.x.values) {
      x = term.x.values.data() + begin;
    } else {
      decode(term.x.format, term.x.bytes + begin * traits(term.x.format).bytes, n, decoded);
    }
    const auto put = [first, n](double* out, const auto& f) {
      if (first) {
        for (std::int64_t i = 0; i < n; ++i) out[i] = f(i);
      } else {
        for (std::int64_t i = 0; i < n; ++i) out[i] += f(i);
      }
    };
    const auto leave = [first, n](double* out) {
      if (first) std::fill_n(out, n, 0.0);
    };
    const double weight = term.weight, size = std::fabs(weight), own = term.own, u = term.u, eta = term.eta;
    put(sum, [&](std::int64_t i) { return weight * x[i]; });
    if (term.x.radii) {
      const double* const r = term.x.radii.values.data() + begin;
      put(radius, [&](std::int64_t i) { return size * r[i]; });
      put(event, [&](std::int64_t i) {
        const double rounds = u * std::fabs(x[i]) + eta;
        return size * (rounds < r[i] ? rounds : r[i]);
      });
    } else {
      leave(radius);
      leave(event);
    }
    if (own != 0)
      for (std::int64_t i = 0; i < n; ++i) radius[i] += size * (own * std::fabs(x[i]));
    if (u != 0 || eta != 0)
      put(rounding, [&](std::int64_t i) { return size * (u * std::fabs(x[i]) + eta); });
    else
      leave(rounding);
  }
};

// What a block adds to what was `found` of those before it. Deviations are divided by their radii only where that may
// change something: mostly all are nearer than the furthest, and likelier than the least likely, by products.
inline Comparison looked_at(std::int64_t begin, std::int64_t n, const ComparedBlock& centres,
                            const ComparedBlock& values, double slack, const Comparison& found) {
  double radius_sum = 0, excess_sum = 0, centre_sum = 0;
  double not_finite = 0;  // 0 or NaN.
  alignas(kLine) double radii[kComparedBlock];
  // A hair to the side of the quotients' rounding.
  const double nearer_than = found.worst * (1 - 0x1p-50), likelier_than = 2 * found.least_chance * (1 + 0x1p-50);
  std::int64_t open = found.worst < 0 ? 1 : 0;
#pragma omp simd reduction(+ : radius_sum, excess_sum, centre_sum, not_finite) reduction(| : open)
  for (std::int64_t i = 0; i < n; ++i) {
    const double m = centres.sum[i], t = values.sum[i], r = centres.radius[i] + values.radius[i];
    const double excess = std::max(0.0, r - (centres.rounding[i] + values.rounding[i]));
    radius_sum += r * r;
    excess_sum += excess * excess;
    centre_sum += m * m;
    not_finite += m - m;
    const double allowed = r * slack, deviation = std::fabs(t - m), event = centres.event[i] + values.event[i];
    radii[i] = allowed;
    const double width = event < allowed ? event : allowed, rest = allowed - width;
    const double nearer = allowed - deviation, further = width - rest - deviation;
    const double tails = (nearer > 0 ? nearer : 0) + (further > 0 ? further : 0);
    const double limit = nearer_than * allowed;  // Exact but for a relative rounding, or left open.
    const bool near = (deviation == 0) | ((deviation <= limit) & (limit >= 0x1p-1000) & (deviation < HUGE_VAL));
    const bool likely = (deviation <= rest) | (tails > likelier_than * width);
    open |= static_cast<std::int64_t>(!(near & likely));
  }
  Comparison block{not_finite == 0, radius_sum, centre_sum, excess_sum};
  if (open == 0) return block;
  alignas(kLine) double ratios[kComparedBlock];
  double largest = 0, least = 1;
#pragma omp simd reduction(max : largest) reduction(min : least)
  for (std::int64_t i = 0; i < n; ++i) {
    const double m = centres.sum[i], t = values.sum[i];
    ratios[i] = comparison::ratio(m, t, radii[i]);
    largest = std::max(largest, ratios[i]);
    least = std::min(least, comparison::chance(m, t, radii[i], centres.event[i] + values.event[i]));
  }
  const std::int64_t i = std::find(ratios, ratios + n, largest) - ratios;
  block.worst = largest;
  block.element = static_cast<std::uint64_t>(begin + i);
  block.centre = centres.sum[i];
  block.radius = radii[i];
  block.value = values.sum[i];
  block.least_chance = least;
  return block;
}

}  // namespace internal

inline Comparison compare(std::span<const ComparedTerm> centres, std::span<const ComparedTerm> values,
                          std::int64_t count, double slack) {
  Comparison found;
  for (std::int64_t begin = 0; begin < count; begin += internal::kComparedBlock) {
    const std::int64_t n = std::min(internal::kComparedBlock, count - begin);
    const std::int64_t next = begin + n, length = std::min(internal::kComparedBlock, count - next);
    for (const ComparedTerm& term : values) fetch(term.x, next, length);
    internal::ComparedBlock centre, value;
    for (std::size_t k = 0; k < centres.size(); ++k) centre.add(centres[k], k == 0, begin, n);
    for (std::size_t k = 0; k < values.size(); ++k) value.add(values[k], k == 0, begin, n);
    found.join(internal::looked_at(begin, n, centre, value, slack, found));
  }
  return found;
}

}  // namespace plumbline::cpu
