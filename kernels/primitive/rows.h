// Walking the rows along the last dimension of a row-major array.
#pragma once

#include <algorithm>

#include "kernels/cpu/loop.h"

namespace plumbline::primitive {

struct Rows {
  std::int64_t count, length;
};

inline Rows rows_of(const Array& x) {
  const std::int64_t length = x.shape().empty() ? 1 : x.shape().back();
  return {length == 0 ? 0 : x.count() / length, length};
}

// body(row index), in parallel.
template <class Body>
void for_each_row(const Rows& rows, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, rows.length));
  cpu::parallel_for(rows.count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) body(r);
  });
}

// f(0) + ... + f(n-1), in lanes that vectorise.
template <class F>
double row_fold(std::int64_t n, const F& f) {
  constexpr std::int64_t kLanes = 16;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] += f(i + l);
  }
  for (std::int64_t l = 0; i < n; ++i, ++l) lanes[l] += f(i);
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

inline double row_sum(const double* x, std::int64_t n) {
  return row_fold(n, [x](std::int64_t i) { return x[i]; });
}

// NaN if there is one.
inline double row_max(const double* x, std::int64_t n) {
  double most = -__builtin_inf();
  double nans = 0;
#pragma omp simd reduction(max : most) reduction(+ : nans)
  for (std::int64_t i = 0; i < n; ++i) {
    most = most < x[i] ? x[i] : most;
    nans += x[i] == x[i] ? 0.0 : 1.0;
  }
  return nans == 0 ? most : __builtin_nan("");
}

}  // namespace plumbline::primitive
