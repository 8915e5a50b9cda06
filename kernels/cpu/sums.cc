#include "kernels/cpu/sums.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/parallel.h"

namespace plumbline::cpu {
namespace {

constexpr std::int64_t kChunk = 1 << 15;
constexpr std::int64_t kLanes = 8;  // Independent partial sums, for the processor's vectors.

// Sum of term(i) over [0, n).
template <class Term>
double sum_over(std::int64_t n, Term term) {
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
  std::vector<double> sums(static_cast<std::size_t>(chunks), 0.0);
  parallel_for(chunks, 2, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c) {
      const std::int64_t end = std::min(n, (c + 1) * kChunk);
      std::int64_t i = c * kChunk;
      double lanes[kLanes] = {};
      for (; i + kLanes <= end; i += kLanes)
        for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
      double sum = 0;
      for (; i < end; ++i) sum += term(i);
      for (double lane : lanes) sum += lane;
      sums[static_cast<std::size_t>(c)] = sum;
    }
  });
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

}  // namespace

double weighted_bound(const Array& weights, const Bound& bound) {
  const Array w = weights.materialize(), b = bound.values.materialize();
  const double *wp = w.data(), *bp = b.data();
  const double sum = sum_over(w.count(), [=](std::int64_t i) {
    const double product = std::fabs(wp[i]) * bp[i];
    return wp[i] == 0 ? 0.0 : product;
  });
  return sum * (1 + 0x1p-20);  // above the rounding of 2^12 additions in a lane and 2^16 chunks
}

double dot(const Array& weights, const Array& values) {
  const Array w = weights.materialize(), x = values.materialize();
  const double *wp = w.data(), *xp = x.data();
  return sum_over(w.count(), [=](std::int64_t i) {
    const double product = wp[i] * xp[i];
    return wp[i] == 0 ? 0.0 : product;
  });
}

double dot_difference(const Array& weights, const Array& a, const Array& b) {
  const Array w = weights.materialize(), x = a.materialize(), y = b.materialize();
  const double *wp = w.data(), *xp = x.data(), *yp = y.data();
  return sum_over(w.count(), [=](std::int64_t i) {
    const double product = wp[i] * (xp[i] - yp[i]);
    return wp[i] == 0 ? 0.0 : product;
  });
}

double norm2(const Array& values) {
  const Array x = values.materialize();
  const double* xp = x.data();
  return std::sqrt(sum_over(x.count(), [=](std::int64_t i) { return xp[i] * xp[i]; }));
}

double norm_max(const Array& values) {
  const Array x = values.materialize();
  const double* xp = x.data();
  const std::int64_t n = x.count(), chunks = (n + kChunk - 1) / kChunk;
  std::vector<double> largest(static_cast<std::size_t>(chunks), 0.0);
  parallel_for(chunks, 2, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c) {
      double lanes[kLanes] = {}, nan = 0;
      for (std::int64_t i = c * kChunk; i < std::min(n, (c + 1) * kChunk); ++i) {
        double& lane = lanes[i % kLanes];
        const double magnitude = std::fabs(xp[i]);
        lane = magnitude > lane ? magnitude : lane;
        nan = magnitude == magnitude ? nan : magnitude;
      }
      double most = nan;
      for (double lane : lanes) most = lane > most ? lane : most;
      largest[static_cast<std::size_t>(c)] = nan == nan ? most : nan;
    }
  });
  double most = 0;
  for (double one : largest) {
    if (std::isnan(one)) return one;
    most = std::max(most, one);
  }
  return most;
}

double norm2_difference(const Array& a, const Array& b) {
  const Array x = a.materialize(), y = b.materialize();
  const double *xp = x.data(), *yp = y.data();
  return std::sqrt(sum_over(x.count(), [=](std::int64_t i) {
    const double difference = xp[i] - yp[i];
    return xp[i] == yp[i] ? 0.0 : difference * difference;
  }));
}

}  // namespace plumbline::cpu
