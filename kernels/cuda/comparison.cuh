// A comparison on the device (kernels/comparison.h): a block of threads takes a stretch of elements, and what it found
// is all that is fetched.
#pragma once

#include <vector>

#include "kernels/cpu/comparison.h"
#include "kernels/cuda/table.cuh"

namespace plumbline::cuda {
namespace internal {

constexpr int kComparedThreads = 256;
constexpr std::int64_t kComparedBlocks = 1024;

struct DeviceTerm {
  const double *values, *radii;  // radii: null where they are exactly zero.
  double weight, own, u, eta;
};
struct DeviceComparison {
  const DeviceTerm* terms;  // The centres' terms come first, then the values'.
  std::uint32_t centres, all;
  double slack;
};

// One element: as ComparedBlock and looked_at (cpu/comparison.h) do it.
struct ComparedElement {
  double centre = 0, value = 0, radius = 0, rounding = 0, event = 0;

  __device__ ComparedElement(const DeviceComparison& of, std::int64_t i) {
    double radii[2] = {}, roundings[2] = {}, events[2] = {}, sums[2] = {};
    for (std::uint32_t k = 0; k < of.all; ++k) {
      const DeviceTerm& term = of.terms[k];
      const int side = k < of.centres ? 0 : 1;
      const double x = term.values[i], size = fabs(term.weight), weighted = term.weight * x;
      sums[side] = k == 0 || k == of.centres ? weighted : sums[side] + weighted;
      const double rounds = term.u * fabs(x) + term.eta;
      if (term.radii != nullptr) {
        radii[side] += size * term.radii[i];
        events[side] += size * (rounds < term.radii[i] ? rounds : term.radii[i]);
      }
      if (term.own != 0) radii[side] += size * (term.own * fabs(x));
      roundings[side] += size * rounds;
    }
    centre = sums[0];
    value = sums[1];
    radius = radii[0] + radii[1];
    rounding = roundings[0] + roundings[1];
    event = events[0] + events[1];
  }
};

// What a thread found, and after `gather` its block. A fixed order of elements and threads: results do not vary.
struct ComparedPart {
  double radius_squares, centre_squares, excess_squares, not_finite, worst, least_chance;
  std::int64_t element;

  __device__ void join(const ComparedPart& other) {
    radius_squares += other.radius_squares;
    centre_squares += other.centre_squares;
    excess_squares += other.excess_squares;
    not_finite += other.not_finite;
    if (other.least_chance < least_chance) least_chance = other.least_chance;
    if (other.worst > worst || (other.worst == worst && other.element < element)) {
      worst = other.worst;
      element = other.element;
    }
  }
};

__global__ void __launch_bounds__(kComparedThreads)
    comparison_kernel(std::int64_t count, std::int64_t stretch, DeviceComparison of, Comparison* found) {
  __shared__ ComparedPart parts[kComparedThreads];
  const std::int64_t begin = blockIdx.x * stretch, end = begin + stretch < count ? begin + stretch : count;
  ComparedPart mine = {0, 0, 0, 0, -1, 1, begin};
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kComparedThreads) {
    const ComparedElement one(of, i);
    const double excess = one.radius - one.rounding, allowed = one.radius * of.slack;
    mine.join({one.radius * one.radius, one.centre * one.centre, excess > 0 ? excess * excess : 0.0,
               one.centre - one.centre, comparison::ratio(one.centre, one.value, allowed),
               comparison::chance(one.centre, one.value, allowed, one.event), i});
  }
  parts[threadIdx.x] = mine;
  for (unsigned width = kComparedThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) parts[threadIdx.x].join(parts[threadIdx.x + width]);
  }
  if (threadIdx.x != 0) return;
  const ComparedPart& all = parts[0];
  const ComparedElement worst(of, all.element);
  found[blockIdx.x] = {all.not_finite == 0, all.radius_squares,
                       all.centre_squares,  all.excess_squares,
                       all.worst,           static_cast<std::uint64_t>(all.element),
                       worst.centre,        worst.radius * of.slack,
                       worst.value,         all.least_chance};
}

}  // namespace internal

inline Later<Comparison> compare(std::span<const ComparedTerm> centres, std::span<const ComparedTerm> values,
                                 std::int64_t count, double slack) {
  Queue* const queue = current_queue();
  const auto away = [](const ComparedTerm& term) { return internal::away(term.x); };
  const bool small = queue != nullptr && count <= queue->host_work() && std::ranges::none_of(centres, away) &&
                     std::ranges::none_of(values, away);
  if (queue == nullptr || count == 0 || small) return cpu::compare(centres, values, count, slack);
  Residents residents(*queue);
  std::vector<internal::DeviceTerm> terms;
  for (const std::span<const ComparedTerm> side : {centres, values})
    for (const ComparedTerm& term : side)
      terms.push_back(
          {residents.values(term.x, count), residents.radii(term.x), term.weight, term.own, term.u, term.eta});
  const std::int64_t blocks =
      std::clamp<std::int64_t>(count / (4 * internal::kComparedThreads), 1, internal::kComparedBlocks);
  const std::int64_t stretch = (count + blocks - 1) / blocks;  // No block goes without: blocks <= stretch.
  const Array table = table_of(*queue, terms);
  const Array parts = memory_of<Comparison>(static_cast<std::size_t>(blocks));
  const internal::DeviceComparison of = {rows_of<internal::DeviceTerm>(table),
                                         static_cast<std::uint32_t>(centres.size()),
                                         static_cast<std::uint32_t>(terms.size()), slack};
  queue->launch("comparison", internal::comparison_kernel, {static_cast<unsigned>(blocks), internal::kComparedThreads},
                count, stretch, of, rows_of<Comparison>(parts));
  return later(parts, [blocks](const double* numbers) {
    Comparison whole;
    for (const Comparison& part : rows_brought<Comparison>(numbers, static_cast<std::size_t>(blocks))) whole.join(part);
    return whole;
  });
}

}  // namespace plumbline::cuda
