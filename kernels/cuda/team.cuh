// The worker of one row on the device: a warp (blocks of 32 x n threads) or a block (kTeamThreads x 1). What each sum
// adds in which order depends on the length of the row and the size of the team alone. (The host's: cpu/team.h.)
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ball/scalar.h"

namespace plumbline::cuda {

constexpr int kTeamThreads = 256;

class Team {
 public:
  template <class F>
  __device__ void each(std::int64_t n, const F& f) const {
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) f(i);
    sync();  // What was written is seen by all.
  }

  template <class F>
  __device__ double sum(std::int64_t n, const F& f) const {
    return fold<scalar::Sum>(n, f);
  }

  __device__ double max(std::int64_t n, const double* x) const {
    return fold<scalar::Max>(n, [=](std::int64_t i) { return x[i]; });
  }

  template <class Argument, class F>
  __device__ void each_exp(std::int64_t n, const Argument& argument, const F& f) const {
    each(n, [&](std::int64_t i) { f(i, std::exp(argument(i))); });
  }

  template <class Argument, class F>
  __device__ double sum_exp(std::int64_t n, const Argument& argument, const F& f) const {
    return fold<scalar::Sum>(n, [&](std::int64_t i) { return f(i, std::exp(argument(i))); });
  }

  __device__ double log(double x) const { return std::log(x); }

  // A stretch of blockDim.x elements at a time: a scan within each warp, then over the warps, then the carry.
  template <class Get, class Put>
  __device__ void scan(std::int64_t n, const Get& get, const Put& put) const {
    __shared__ double of_warp[kTeamThreads / 32];
    double carry = 0;
    for (std::int64_t begin = 0; begin < n; begin += blockDim.x) {
      const std::int64_t i = begin + threadIdx.x;
      double value = i < n ? get(i) : 0.0;
      for (unsigned distance = 1; distance < 32; distance *= 2) {
        const double before = __shfl_up_sync(kAll, value, distance);
        if (threadIdx.x % 32 >= distance) value += before;
      }
      double before = carry, total = __shfl_sync(kAll, value, 31);
      if (blockDim.x > 32) {
        if (threadIdx.x % 32 == 31) of_warp[threadIdx.x / 32] = value;
        __syncthreads();
        double sum = 0;
        for (unsigned w = 0; w < kTeamThreads / 32; ++w) {
          if (w == threadIdx.x / 32) before += sum;
          sum += of_warp[w];
        }
        total = sum;
        __syncthreads();
      }
      if (i < n) put(i, before + value);
      carry += total;
    }
    sync();
  }

  __device__ bool first() const { return threadIdx.x == 0; }

  // Combination of f(0) ... f(n-1), known to all threads.
  template <class Combine, class F>
  __device__ double fold(std::int64_t n, const F& f) const {
    double held = Combine::kStart;
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) held = Combine::combine(held, f(i));
    return combined<Combine>(held);
  }

  // Combination of each thread's value.
  template <class Combine>
  __device__ double combined(double value) const {
    for (int distance = 16; distance > 0; distance /= 2)
      value = Combine::combine(value, __shfl_down_sync(kAll, value, distance));
    if (blockDim.x == 32) return __shfl_sync(kAll, value, 0);
    __shared__ double of_warp[kTeamThreads / 32];
    __syncthreads();  // Whoever still reads the last result.
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    double total = of_warp[0];
    for (unsigned w = 1; w < kTeamThreads / 32; ++w) total = Combine::combine(total, of_warp[w]);
    return total;
  }

 private:
  static constexpr unsigned kAll = 0xffffffffU;

  __device__ void sync() const {
    if (blockDim.x == 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
};

}  // namespace plumbline::cuda
