// A chain on the device (kernels/chain.h): a thread takes an element through all steps, and what waits for its readers
// waits in shared memory.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/cpu/chain.h"
#include "kernels/cuda/loop.cuh"
#include "kernels/cuda/table.cuh"
#include "kernels/primitive/chain_lane.h"

namespace plumbline::cuda {
namespace internal {

// Elements of work; a step takes a fraction of what a loop of its own does.
inline std::int64_t work_of_chain(std::int64_t count, std::size_t steps) {
  return count * static_cast<std::int64_t>(1 + steps / 4);
}

constexpr int kChainThreads = 128;
constexpr std::size_t kChainShared = 96 << 10;  // Bytes of a block at most: every device has them.

struct DeviceSource {
  const double *values, *radii;  // radii: null where they are exactly zero.
  bool one;
};
struct DeviceEnd {
  std::uint32_t step;
  double *values, *radii;
};
struct DeviceChain {
  const Chain::Step* steps;
  const DeviceSource* sources;
  const DeviceEnd* ends;
  unsigned long long* largest;  // Each step has a pair, its largest radius and value.
  std::uint32_t step_count, source_count, end_count, slots;
};

// Raises `largest` to the largest x of the warp's threads. One vote where no thread has more, as with most elements.
__device__ inline void raise(unsigned long long* largest, unsigned long long x) {
  if (!__any_sync(0xffffffffU, x > *largest)) return;
  for (int distance = 16; distance > 0; distance /= 2) {
    const unsigned long long other = __shfl_xor_sync(0xffffffffU, x, distance);
    x = other > x ? other : x;
  }
  if (threadIdx.x % 32 == 0) atomicMax(largest, x);
}

// Five blocks of a multiprocessor leave 100 registers to a thread: left alone, ptxas takes 64 and spills.
template <bool kEnclosed>
__global__ void __launch_bounds__(kChainThreads, 5) chain_kernel(std::int64_t count, DeviceChain chain) {
  // [step, radius or value] of the largest, then [slot, thread] of values, then of radii.
  extern __shared__ unsigned long long shared[];
  unsigned long long* const largest = shared;
  double* const values = reinterpret_cast<double*>(shared + (kEnclosed ? 2 * chain.step_count : 0)) + threadIdx.x;
  double* const radii = values + chain.slots * blockDim.x;
  if (kEnclosed) {
    for (std::uint32_t k = threadIdx.x; k < 2 * chain.step_count; k += blockDim.x) largest[k] = 0;
    __syncthreads();
  }
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  // Threads of a warp stay together: those beyond the end work on the last element, once more.
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.x); first < count; first += stride) {
    const std::int64_t mine = first + threadIdx.x, i = mine < count ? mine : count - 1;
    for (std::uint32_t s = 0; s < chain.step_count; ++s) {
      const Chain::Step& step = chain.steps[s];
      double x[3], r[3] = {};
      for (int k = 0; k < 3; ++k) {
        const std::uint32_t input = step.inputs[k];
        if (input < chain.source_count) {
          const DeviceSource& source = chain.sources[input];
          const std::int64_t at = source.one ? 0 : i;
          x[k] = source.values[at];
          if (kEnclosed && source.radii != nullptr) r[k] = source.radii[at];
        } else {
          const std::uint32_t at = chain.steps[input - chain.source_count].slot * blockDim.x;
          x[k] = values[at];
          if (kEnclosed) r[k] = radii[at];
        }
      }
      const double t = primitive::chain::value(step, x);
      values[step.slot * blockDim.x] = t;
      if (!kEnclosed) continue;
      const double radius = primitive::chain::radius(step, x, r, t);
      radii[step.slot * blockDim.x] = radius;
      const bool counts = t - t == 0;  // Largest::look_at
      raise(&largest[2 * s], counts ? __double_as_longlong(fabs(radius)) : 0);
      raise(&largest[2 * s + 1], counts ? __double_as_longlong(fabs(t)) : 0);
    }
    if (mine >= count) continue;
    for (std::uint32_t e = 0; e < chain.end_count; ++e) {
      const DeviceEnd& end = chain.ends[e];
      const std::uint32_t at = chain.steps[end.step].slot * blockDim.x;
      end.values[i] = values[at];
      if (kEnclosed && end.radii != nullptr) end.radii[i] = radii[at];
    }
  }
  if (!kEnclosed) return;
  __syncthreads();
  for (std::uint32_t k = threadIdx.x; k < 2 * chain.step_count; k += blockDim.x)
    if (largest[k] > 0) atomicMax(&chain.largest[k], largest[k]);
}

}  // namespace internal

inline ChainResult run(const Chain& chain, std::span<const ChainInput> inputs, std::int64_t count,
                       std::span<const Array> into) {
  Queue* const queue = current_queue();
  const auto steps = static_cast<std::uint32_t>(chain.steps().size());
  const bool enclosed = chain.enclosed();
  const auto shared = [&](int threads) {
    const std::size_t largest = enclosed ? 2 * steps * sizeof(unsigned long long) : 0;
    return largest + (enclosed ? 2 : 1) * chain.slots() * static_cast<std::size_t>(threads) * sizeof(double);
  };
  int threads = internal::kChainThreads;
  while (threads > 32 && shared(threads) > internal::kChainShared) threads /= 2;
  const bool small = queue != nullptr && internal::work_of_chain(count, steps) <= queue->host_work() &&
                     std::ranges::none_of(inputs, internal::away);
  if (queue == nullptr || count == 0 || small || shared(threads) > internal::kChainShared)
    return cpu::run(chain, inputs, count, into);

  Residents residents(*queue);
  std::vector<internal::DeviceSource> sources;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    sources.push_back({residents.values(inputs[i], count), residents.radii(inputs[i]), chain.sources()[i].one});
  ChainResult result;
  std::vector<internal::DeviceEnd> ends;
  for (const std::size_t end : chain.ends()) {
    result.values.push_back(into.empty() ? Array::uninitialized({count}) : into[result.values.size()]);
    if (enclosed) result.radii.push_back(chain.enclosed(end) ? Bound{Array::uninitialized({count})} : Bound{});
    double* const radii = enclosed && result.radii.back() ? result.radii.back().values.device_write() : nullptr;
    ends.push_back({static_cast<std::uint32_t>(end - inputs.size()), result.values.back().device_write(), radii});
  }
  const Array step_table = table_of(*queue, chain.steps()), source_table = table_of(*queue, sources);
  const Array end_table = table_of(*queue, ends);
  const Array largest = Array::zeros({std::max<std::int64_t>(1, 2 * steps)});  // The bits of 0 are 0.
  const internal::DeviceChain tables = {rows_of<Chain::Step>(step_table),
                                        rows_of<internal::DeviceSource>(source_table),
                                        rows_of<internal::DeviceEnd>(end_table),
                                        reinterpret_cast<unsigned long long*>(largest.device_write()),
                                        steps,
                                        static_cast<std::uint32_t>(sources.size()),
                                        static_cast<std::uint32_t>(ends.size()),
                                        chain.slots()};
  auto* const kernel = enclosed ? internal::chain_kernel<true> : internal::chain_kernel<false>;
  queue->check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(internal::kChainShared)),
               "shared memory of a chain");
  queue->launch("chain", kernel,
                {internal::grid_for(count, threads).blocks, static_cast<unsigned>(threads), shared(threads)}, count,
                tables);
  if (!enclosed) return result;
  result.largest = later(largest, [steps](const double* numbers) { return rows_brought<Largest>(numbers, steps); });
  return result;
}

}  // namespace plumbline::cuda
