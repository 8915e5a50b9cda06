// A chain's cotangents on the device (kernels/pullback.h): a thread takes an element through all steps and back. What
// waits for its readers waits in shared memory, and so do the thread's sums.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cpu/pullback.h"
#include "kernels/cuda/chain.cuh"
#include "kernels/primitive/element.h"

namespace plumbline::cuda {
namespace internal {

constexpr std::int64_t kPulledBlocks = 1024;
constexpr std::uint32_t kNone = 0xffffffff;

struct DevicePulledStep {
  Chain::Step step;
  primitive::ElementRounding target, own;
  const double* seed;
  double* shown;
  bool reached, own_by_chance;
  // Where its sums begin: whole, bias, squares, drift; of our own, whole alone where it is not by chance.
  std::uint32_t of_target, of_own;
};
struct DevicePulledSource {
  const double* values;
  std::int64_t row, outer, inner;  // Element i lies at i / row * outer + i % row * inner; row 0: at i * inner.
  double* into;                    // Null where it is of one element, or not asked for.
  std::uint32_t cotangent;         // Its place among the cotangents; kNone: not asked for.
  bool add, one;
};
// Values of the steps, then cotangents of the steps and of the sources that are asked for, then sums.
struct DevicePullback {
  const DevicePulledStep* steps;
  const DevicePulledSource* sources;
  double* partial;  // [block, sums and cotangents of sources of one element]
  std::uint32_t step_count, source_count, cotangents, sums;
};

template <int kOperand>
struct HandOn {
  const double (&x)[3];
  double g, t;
  template <class E>
  __device__ double operator()(E) const {
    if constexpr (kOperand < E::kArity) return primitive::element::HandedOn<E, kOperand>{}(g, x[0], x[1], t);
    return 0;
  }
};
__device__ inline double handed_on(Primitive primitive, int operand, const double (&x)[3], double g, double t) {
  if (operand == 0) return primitive::element::visit(primitive, HandOn<0>{x, g, t});
  if (operand == 1) return primitive::element::visit(primitive, HandOn<1>{x, g, t});
  return primitive::element::visit(primitive, HandOn<2>{x, g, t});
}

__device__ inline void add_charge(Primitive primitive, const primitive::ElementRounding& rounding, bool by_chance,
                                  const double (&x)[3], double t, double g, double* sums, unsigned stride) {
  const double e = primitive::chain::rounding_error(primitive, rounding.error, rounding.tiny, x, t);
  sums[0] += primitive::whole_charge(g, e);
  if (!by_chance) return;
  const Totals<2> one = rounding.events.charge(g, t, e);
  sums[stride] += one.of[0];
  sums[2 * stride] += one.of[1];
  if (rounding.dropped_u > 0)
    sums[3 * stride] += primitive::dropped(g, t, x[0], x[1], rounding.sign, rounding.dropped_u, rounding.error.absorbs);
}

// Four blocks of a multiprocessor leave 128 registers to a thread: with fewer it spills.
__global__ void __launch_bounds__(kChainThreads, 4) pullback_kernel(std::int64_t count, DevicePullback of) {
  extern __shared__ unsigned long long shared[];
  double* const waiting = reinterpret_cast<double*>(shared);
  const unsigned width = blockDim.x;
  double* const values = waiting + threadIdx.x;
  double* const cotangents = values + of.step_count * width;
  double* const sums = cotangents + of.cotangents * width;
  // The cotangents of sources of one element are sums too.
  for (std::uint32_t k = 0; k < of.cotangents; ++k) cotangents[k * width] = 0;
  for (std::uint32_t k = 0; k < of.sums; ++k) sums[k * width] = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * width;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(width) + threadIdx.x; i < count; i += stride) {
    const auto operands = [&](const Chain::Step& step, double(&x)[3]) {
      for (int k = 0; k < 3; ++k) {
        const std::uint32_t input = step.inputs[k];
        if (input >= of.source_count) {
          x[k] = values[(input - of.source_count) * width];
          continue;
        }
        const DevicePulledSource& source = of.sources[input];
        const std::int64_t r = source.row > 0 ? i / source.row : 0;
        x[k] = source.values[source.one ? 0 : r * source.outer + (i - r * source.row) * source.inner];
      }
    };
    for (std::uint32_t s = 0; s < of.step_count; ++s) {
      double x[3];
      operands(of.steps[s].step, x);
      values[s * width] = primitive::chain::value(of.steps[s].step, x);
      cotangents[s * width] = of.steps[s].seed != nullptr ? of.steps[s].seed[i] : 0.0;
    }
    for (std::uint32_t k = 0; k < of.source_count; ++k)
      if (of.sources[k].into != nullptr) cotangents[of.sources[k].cotangent * width] = 0;
    for (std::uint32_t s = of.step_count; s-- > 0;) {
      const DevicePulledStep& pulled = of.steps[s];
      if (!pulled.reached) continue;
      const double g = cotangents[s * width], t = values[s * width];
      if (pulled.shown != nullptr) pulled.shown[i] = g;
      double x[3];
      operands(pulled.step, x);
      if (pulled.of_target != kNone)
        add_charge(pulled.step.primitive, pulled.target, true, x, t, g, sums + pulled.of_target * width, width);
      if (pulled.of_own != kNone)
        add_charge(pulled.step.primitive, pulled.own, pulled.own_by_chance, x, t, g, sums + pulled.of_own * width,
                   width);
      for (int k = 0; k < pulled.step.arity; ++k) {
        const std::uint32_t input = pulled.step.inputs[k];
        const std::uint32_t to = input >= of.source_count ? input - of.source_count : of.sources[input].cotangent;
        if (to != kNone) cotangents[to * width] += handed_on(pulled.step.primitive, k, x, g, t);
      }
    }
    for (std::uint32_t k = 0; k < of.source_count; ++k) {
      const DevicePulledSource& source = of.sources[k];
      if (source.into == nullptr) continue;
      const double g = cotangents[source.cotangent * width];
      source.into[i] = source.add ? source.into[i] + g : g;
    }
  }
  __syncthreads();
  // The threads' sums, each column by a thread of its own, from another row on: no two read one bank at a time.
  const std::uint32_t ones = of.cotangents - of.step_count, columns = ones + of.sums;
  for (std::uint32_t k = threadIdx.x; k < columns; k += width) {
    const double* const column = waiting + (2 * of.step_count + k) * width;
    double sum = 0;
    for (unsigned j = 0; j < width; ++j) sum += column[(j + k) % width];
    of.partial[blockIdx.x * static_cast<std::int64_t>(columns) + k] = sum;
  }
}

inline bool any_away(const PulledFunctional& functional) {
  const auto away = [](const Array& x) { return x.away(); };
  const auto into_away = [](const PulledFunctional::Target& into) { return into.cotangent.away(); };
  return std::ranges::any_of(functional.seeds, away) || std::ranges::any_of(functional.shown, away) ||
         std::ranges::any_of(functional.into, into_away);
}
inline bool away(const Pullback& pullback) {
  return std::ranges::any_of(pullback.sources, [](const Array& x) { return x.away(); });
}

// What is asked of one functional, as the kernel reads it, and the operands that it points to.
struct DevicePulled {
  std::vector<DevicePulledStep> steps;
  std::vector<DevicePulledSource> sources;
  std::vector<Array> held;
  std::uint32_t cotangents = 0, sums = 0;

  // Of the cotangent of a source of one element that is asked for.
  std::int64_t column_of(std::size_t source) const { return sources[source].cotangent - std::ssize(steps); }
  std::int64_t columns() const { return cotangents - steps.size() + sums; }
  std::size_t shared(int threads) const {
    return (2 * steps.size() + static_cast<std::size_t>(columns())) * static_cast<std::size_t>(threads) *
           sizeof(double);
  }
  bool fits() const { return shared(32) <= kChainShared; }
};

inline DevicePulled pulled_of(Queue& queue, const Pullback& pullback, const PulledFunctional& functional) {
  const std::vector<Chain::Step>& steps = pullback.chain.steps();
  DevicePulled pulled;
  pulled.cotangents = static_cast<std::uint32_t>(steps.size());
  const auto address = [&](const Array& x) -> const double* {
    return x ? pulled.held.emplace_back(resident(queue, x)).device_read() : nullptr;
  };
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const Pullback::Step& rounded = pullback.steps[s];
    DevicePulledStep row{steps[s],
                         rounded.target,
                         rounded.own,
                         address(functional.seeds[s]),
                         nullptr,
                         functional.reached[pullback.sources.size() + s],
                         functional.own_by_chance,
                         kNone,
                         kNone};
    if (functional.shown[s] && !functional.shown[s].same_place(functional.seeds[s]))
      row.shown = functional.shown[s].device_write();
    const auto place = [&](bool asked, bool by_chance) {
      if (!asked || !functional.reached[pullback.sources.size() + s]) return kNone;
      const std::uint32_t at = pulled.sums;
      pulled.sums += by_chance ? 4 : 1;
      return at;
    };
    row.of_target = place(functional.of_target && !rounded.target.none(), true);
    row.of_own = place(!rounded.own.none(), functional.own_by_chance);
    pulled.steps.push_back(row);
  }
  for (std::size_t i = 0; i < pullback.sources.size(); ++i) {
    const Array& x = pullback.sources[i];
    const PulledFunctional::Target& into = functional.into[i];
    const bool flat = x.shape().size() < 2;
    pulled.sources.push_back({address(x), flat ? 0 : x.shape()[1], flat ? 0 : x.strides()[0], x.strides().back(),
                              into.cotangent && !pullback.one(i) ? into.cotangent.device_write() : nullptr,
                              into.asked ? pulled.cotangents++ : kNone, into.add, pullback.one(i)});
  }
  return pulled;
}

// total [1, columns], without waiting for it.
inline void put_pulled(Queue& queue, const DevicePulled& pulled, std::int64_t count, Array& total) {
  int threads = kChainThreads;
  while (pulled.shared(threads) > kChainShared) threads /= 2;
  const Grid grid{static_cast<unsigned>(std::clamp<std::int64_t>((count + threads - 1) / threads, 1, kPulledBlocks)),
                  static_cast<unsigned>(threads), pulled.shared(threads)};
  const Array step_table = table_of(queue, pulled.steps), source_table = table_of(queue, pulled.sources);
  const Array partial = Array::uninitialized({grid.blocks.x, pulled.columns()});
  queue.check(cudaFuncSetAttribute(pullback_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(kChainShared)),
              "shared memory of a pullback");
  queue.launch("pullback", pullback_kernel, grid, count,
               DevicePullback{rows_of<DevicePulledStep>(step_table), rows_of<DevicePulledSource>(source_table),
                              partial.device_write(), static_cast<std::uint32_t>(pulled.steps.size()),
                              static_cast<std::uint32_t>(pulled.sources.size()), pulled.cotangents, pulled.sums});
  cuda::reduce<scalar::Sum>(total, false, partial.shape(), Copy{}, partial);  // `partial` is away.
}

// From its columns.
inline PulledBack pulled_back(const DevicePulled& pulled, bool own_by_chance, const double* found) {
  PulledBack result;
  result.steps.resize(pulled.steps.size());
  result.sources.resize(pulled.sources.size());
  const std::size_t step_count = pulled.steps.size();
  const double* const of_steps = found + (pulled.cotangents - step_count);
  for (std::size_t s = 0; s < step_count; ++s) {
    const auto charge = [&](std::uint32_t at, bool by_chance, Charge* into) {
      if (at == kNone) return;
      into->whole = of_steps[at] * (1 + 0x1p-20);  // Above the rounding of its additions.
      if (by_chance) into->noise = {of_steps[at + 1], of_steps[at + 2], of_steps[at + 3]};
    };
    charge(pulled.steps[s].of_target, true, &result.steps[s].target);
    charge(pulled.steps[s].of_own, own_by_chance, &result.steps[s].own);
  }
  for (std::size_t i = 0; i < pulled.sources.size(); ++i)
    if (pulled.sources[i].one && pulled.sources[i].cotangent != kNone) result.sources[i] = found[pulled.column_of(i)];
  return result;
}

}  // namespace internal

inline Later<std::vector<PulledBack>> pull_back(const Pullback& pullback, std::span<const PulledFunctional> functionals,
                                                std::span<const Array> errors, std::int64_t begin, std::int64_t count) {
  Queue* const queue = current_queue();
  const std::size_t work = pullback.steps.size() * functionals.size();
  if (queue == nullptr || (internal::work_of_chain(count, work) <= queue->host_work() && !internal::away(pullback) &&
                           std::ranges::none_of(functionals, internal::any_away)))
    return cpu::pull_back(pullback, functionals, errors, begin, count);
  std::vector<internal::DevicePulled> asked;
  std::int64_t columns = 0;
  for (const PulledFunctional& functional : functionals) {
    asked.push_back(internal::pulled_of(*queue, pullback, functional));
    if (asked.back().fits()) columns += asked.back().columns();
  }
  const Array totals = Array::uninitialized({columns});  // All functionals', brought together.
  std::vector<PulledBack> on_host(functionals.size());   // Of what does not fit.
  std::int64_t at = 0;
  for (std::size_t p = 0; p < functionals.size(); ++p) {
    const internal::DevicePulled& one = asked[p];
    if (!one.fits()) {
      on_host[p] = cpu::pull_back(pullback, functionals.subspan(p, 1), errors, begin, count).front();
      continue;
    }
    Array total = totals.restride({{1, one.columns()}, {one.columns(), 1}, at});
    internal::put_pulled(*queue, one, count, total);
    for (std::size_t i = 0; i < pullback.sources.size(); ++i) {
      Array into = functionals[p].into[i].cotangent;
      if (into && pullback.one(i)) cuda::map(into, Copy{}, total.restride({{1}, {1}, one.column_of(i)}));
    }
    at += one.columns();
  }
  for (internal::DevicePulled& one : asked) one.held.clear();
  std::vector<bool> by_chance;
  for (const PulledFunctional& functional : functionals) by_chance.push_back(functional.own_by_chance);
  return later(totals, [asked, by_chance, on_host](const double* found) {
    std::vector<PulledBack> pulled;
    for (std::size_t p = 0; p < asked.size(); ++p) {
      pulled.push_back(asked[p].fits() ? internal::pulled_back(asked[p], by_chance[p], found) : on_host[p]);
      if (asked[p].fits()) found += asked[p].columns();
    }
    return pulled;
  });
}

}  // namespace plumbline::cuda
