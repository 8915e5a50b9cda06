// The worker of one row on the host: one thread, with the processor's vectors. (The device's is a warp or a block.)
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/vector_math.h"

namespace plumbline::cpu {

class Team {
 public:
  // f(i) for all i < n, each of which touches its own elements alone.
  template <class F>
  void each(std::int64_t n, const F& f) const {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) f(i);
  }

  // f(0) + ... + f(n-1), in lanes that vectorise.
  template <class F>
  double sum(std::int64_t n, const F& f) const {
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

  // The largest x[i]; NaN if there is one.
  double max(std::int64_t n, const double* x) const {
    double most = -__builtin_inf();
    double nans = 0;
#pragma omp simd reduction(max : most) reduction(+ : nans)
    for (std::int64_t i = 0; i < n; ++i) {
      most = most < x[i] ? x[i] : most;
      nans += x[i] == x[i] ? 0.0 : 1.0;
    }
    return nans == 0 ? most : __builtin_nan("");
  }

  // f(i, exp(argument(i))) for all i < n.
  template <class Argument, class F>
  void each_exp(std::int64_t n, const Argument& argument, const F& f) const {
    tiles(n, argument, [&](std::int64_t begin, std::int64_t length, const double* e) {
      each(length, [&](std::int64_t j) { f(begin + j, e[j]); });
    });
  }

  // Sum of f(i, exp(argument(i))).
  template <class Argument, class F>
  double sum_exp(std::int64_t n, const Argument& argument, const F& f) const {
    double total = 0;
    tiles(n, argument, [&](std::int64_t begin, std::int64_t length, const double* e) {
      total += sum(length, [&](std::int64_t j) { return f(begin + j, e[j]); });
    });
    return total;
  }

  double log(double x) const {
    vector_log(&x, &x, 1);
    return x;
  }

  // put(i, get(0) + ... + get(i)).
  template <class Get, class Put>
  void scan(std::int64_t n, const Get& get, const Put& put) const {
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) put(i, total += get(i));
  }

  // What a row has one of is written by one of the team.
  bool first() const { return true; }

 private:
  static constexpr std::int64_t kLanes = 16;
  static constexpr std::int64_t kTile = 256;

  template <class Argument, class Use>
  void tiles(std::int64_t n, const Argument& argument, const Use& use) const {
    double e[kTile];
    for (std::int64_t begin = 0; begin < n; begin += kTile) {
      const std::int64_t length = std::min(kTile, n - begin);
      for (std::int64_t j = 0; j < length; ++j) e[j] = argument(begin + j);
      vector_exp(e, e, length);
      use(begin, length, e);
    }
  }
};

}  // namespace plumbline::cpu
