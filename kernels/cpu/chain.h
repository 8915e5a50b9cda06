// A chain on the host (kernels/chain.h): a block of elements at a time, so small that all that waits stays in the first
// level of the cache, step by step in loops that vectorise.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cpu/lines.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/primitive/chain_lane.h"

namespace plumbline::cpu {
namespace internal {

constexpr std::int64_t kChainBlock = 256;

// A thread's memory of this many blocks, until it asks again. It begins with a cache line: what lies across two takes
// twice as long to read, and a vector of 64 bytes would always do so.
inline double* block_memory(std::size_t blocks) {
  thread_local std::vector<double> held;
  const std::size_t needed = blocks * static_cast<std::size_t>(kChainBlock) + kLine / sizeof(double);
  if (held.size() < needed) held.resize(needed);
  void* start = held.data();
  std::size_t room = held.size() * sizeof(double);
  return static_cast<double*>(std::align(kLine, needed * sizeof(double) - kLine, start, room));
}

// A step's operands and results over a block.
struct ChainBlock {
  std::int64_t count;
  const double* x[3];
  const double* r[3];
  double* value;
  double* radius;
  bool exact[3] = {};  // The operand's radii are all 0.
};

struct BlockValue {
  const Chain::Step& step;
  const ChainBlock& block;

  template <class E>
  void operator()(E) const {
    using F = typename E::Value;
    const std::int64_t n = block.count;
    const double *const a = block.x[0], *const b = block.x[1], *const c = block.x[2];
    double* const out = block.value;
    if constexpr (E::kPrimitive == Primitive::kPow) {
      if (step.fixed_exponent && scalar::is_small_power(b[0])) {
        for (std::int64_t i = 0; i < n; ++i) out[i] = scalar::small_power(a[i], b[0]);
      } else {
        vector_pow(a, b, out, n);
      }
    } else if constexpr (E::kPrimitive == Primitive::kAtan2) {
      vector_atan2(a, b, out, n);
    } else if constexpr (E::kArity == 1) {
      if constexpr (kHasVector<F>) {
        kVector<F>(a, out, n);
      } else {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; ++i) out[i] = F::value(a[i]);
      }
    } else if constexpr (E::kArity == 2) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) out[i] = F::value(a[i], b[i]);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) out[i] = F::value(a[i], b[i], c[i]);
    }
  }
};

// A monotone function that is computed over arrays.
template <class R>
inline constexpr bool kMonotoneVector = false;
template <class F>
inline constexpr bool kMonotoneVector<primitive::element::Monotone<F>> = kHasVector<F>;
template <class F, int kBend>
inline constexpr bool kMonotoneVector<primitive::element::Gentle<F, kBend>> = kHasVector<F>;

// What the operands' balls make of the results.
struct BlockCarried {
  const ChainBlock& block;

  template <class E>
  void operator()(E) const {
    using R = typename E::Radius;
    using primitive::up;
    const std::int64_t n = block.count;
    const double *const a = block.x[0], *const b = block.x[1], *const c = block.x[2], *const t = block.value;
    const double *const ra = block.r[0], *const rb = block.r[1], *const rc = block.r[2];
    double* const out = block.radius;
    if constexpr (E::kArity == 1 && kMonotoneVector<R>) {
      if (nearly<R>()) return;
      alignas(kLine) double low[kChainBlock] = {}, high[kChainBlock] = {};
      for (std::int64_t i = 0; i < n; ++i) {
        low[i] = R::low(a[i], ra[i]);
        high[i] = primitive::element::above(a[i], ra[i]);
      }
      kVector<typename R::Function>(low, low, n);
      kVector<typename R::Function>(high, high, n);
      for (std::int64_t i = 0; i < n; ++i)
        if (!R::is_near(a[i], ra[i], t[i])) out[i] = up(R::between(ra[i], low[i], high[i], t[i]));
    } else if constexpr (E::kArity == 1) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) out[i] = up(R::radius(a[i], ra[i], t[i]));
    } else if constexpr (E::kArity == 2) {
      if (plainly<R>()) return;
      // Of an operand without radius the rules leave little, and most have one.
      if (block.exact[1]) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; ++i) out[i] = up(R::radius(a[i], ra[i], b[i], 0.0, t[i]));
      } else if (block.exact[0]) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; ++i) out[i] = up(R::radius(a[i], 0.0, b[i], rb[i], t[i]));
      } else {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; ++i) out[i] = up(R::radius(a[i], ra[i], b[i], rb[i], t[i]));
      }
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) out[i] = up(R::radius(a[i], ra[i], b[i], rb[i], c[i], rc[i], t[i]));
    }
  }

  // Finds the radii of those balls that are so small that no value elsewhere is needed. Whether all are.
  template <class R>
  bool nearly() const {
    if constexpr (requires { &R::near; }) {
      const double *const a = block.x[0], *const ra = block.r[0], *const t = block.value;
      double* const out = block.radius;
      std::int64_t far = 0;
#pragma omp simd reduction(| : far)
      for (std::int64_t i = 0; i < block.count; ++i) {
        out[i] = primitive::up(R::near(a[i], ra[i], t[i]));
        far |= static_cast<std::int64_t>(!R::is_near(a[i], ra[i], t[i]));
      }
      return far == 0;
    } else {
      return false;
    }
  }

  // Whether the block has no special case, and its radii are found without looking at each element for one.
  template <class R>
  bool plainly() const {
    if constexpr (requires { &R::plain; }) {
      const double *const a = block.x[0], *const b = block.x[1], *const t = block.value;
      const double *const ra = block.r[0], *const rb = block.r[1];
      double* const out = block.radius;
      std::int64_t special = 0;
#pragma omp simd reduction(| : special)
      for (std::int64_t i = 0; i < block.count; ++i) {
        const double radius = R::plain(a[i], ra[i], b[i], rb[i], t[i]);
        out[i] = radius * (1 + 0x1p-40);  // As `up`; NaN is a special case.
        special |= static_cast<std::int64_t>(!primitive::element::is_plain(radius, t[i]));
      }
      return special == 0;
    } else {
      return false;
    }
  }
};

inline void enclose_block(const Chain::Step& step, const ChainBlock& block) {
  const std::int64_t n = block.count;
  double* const radius = block.radius;
  const double *const value = block.value, *const a = block.x[0], *const ra = block.r[0];
  const primitive::element::LocalError error = step.error;
  if (step.tiny > 0) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double x[3] = {a[i], block.x[1][i], block.x[2][i]}, r[3] = {ra[i], block.r[1][i], block.r[2][i]};
      radius[i] = primitive::chain::radius(step, x, r, value[i]);
    }
    return;
  }
  if (step.moved) primitive::element::visit(step.primitive, BlockCarried{block});
  if (error.none) {
    if (!step.moved)
      std::fill_n(radius, n, 0.0);
    else
      for (std::int64_t i = 0; i < n; ++i) radius[i] *= 1 + 0x1p-40;
    return;
  }
  // Its error at the operands and the result of largest magnitude.
  constexpr double kUp = 1 + 0x1p-40;
  if (!error.of_argument && step.moved) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) radius[i] = (radius[i] + error.of(std::fabs(value[i]) + radius[i])) * kUp;
  } else if (!error.of_argument) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) radius[i] = error.of(value[i]);
  } else if (step.moved) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const double argument = step.inflated ? std::fabs(a[i]) + ra[i] : a[i];
      radius[i] = (radius[i] + error.of(argument, std::fabs(value[i]) + radius[i])) * kUp;
    }
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) radius[i] = error.of(a[i], value[i]);
  }
}

}  // namespace internal

inline ChainResult run(const Chain& chain, std::span<const ChainInput> inputs, std::int64_t count,
                       std::span<const Array> into) {
  using internal::kChainBlock;
  const std::size_t sources = inputs.size(), slots = chain.slots();
  ChainResult result;
  for (const std::size_t end : chain.ends()) {
    result.values.push_back(into.empty() ? Array::uninitialized({count}) : into[result.values.size()]);
    if (chain.enclosed()) result.radii.push_back(chain.enclosed(end) ? Bound{Array::uninitialized({count})} : Bound{});
  }
  std::vector<Largest> largest(chain.enclosed() ? chain.steps().size() : 0);

  // Blocks of sources that are decoded or repeated, of slots' values and radii, and of zeros.
  const auto blocks = [](std::size_t n) { return n * static_cast<std::size_t>(kChainBlock); };
  double* const source_values = internal::block_memory(2 * sources + 2 * slots + 1);
  double* const source_radii = source_values + blocks(sources);
  double* const slot_values = source_radii + blocks(sources);
  double* const slot_radii = slot_values + blocks(slots);
  double* const zeros = slot_radii + blocks(slots);
  std::fill_n(zeros, kChainBlock, 0.0);
  struct Operand {
    const double *values, *radii;
  };
  std::vector<Operand> operands(sources + chain.steps().size(), Operand{zeros, zeros});
  // Each step that is asked for writes to its place at once, so that no temporary array is needed.
  struct Place {
    double *values = nullptr, *radii = nullptr;
  };
  std::vector<Place> places(chain.steps().size());
  for (std::size_t e = 0; e < chain.ends().size(); ++e) {
    Place& place = places[chain.ends()[e] - sources];
    place.values = result.values[e].data();
    if (chain.enclosed() && result.radii[e]) place.radii = result.radii[e].values.data();
  }
  for (std::size_t i = 0; i < sources; ++i) {
    if (!chain.sources()[i].one) continue;
    std::fill_n(source_values + blocks(i), kChainBlock, inputs[i].values.item());
    operands[i].values = source_values + blocks(i);
    if (!chain.sources()[i].enclosed) continue;
    std::fill_n(source_radii + blocks(i), kChainBlock, inputs[i].radii.values.item());
    operands[i].radii = source_radii + blocks(i);
  }

  for (std::int64_t begin = 0; begin < count; begin += kChainBlock) {
    const std::int64_t n = std::min(kChainBlock, count - begin), next = begin + n;
    for (std::size_t i = 0; i < sources; ++i) {
      if (chain.sources()[i].one) continue;
      fetch(inputs[i], next, std::min(kChainBlock, count - next));
      if (inputs[i].values) {
        operands[i].values = inputs[i].values.data() + begin;
      } else {
        decode(inputs[i].format, inputs[i].bytes + begin * traits(inputs[i].format).bytes, n,
               source_values + blocks(i));
        operands[i].values = source_values + blocks(i);
      }
      if (chain.sources()[i].enclosed) operands[i].radii = inputs[i].radii.values.data() + begin;
    }
    for (std::size_t s = 0; s < chain.steps().size(); ++s) {
      const Chain::Step& step = chain.steps()[s];
      const Place& place = places[s];
      internal::ChainBlock block{n, {}, {}, slot_values + blocks(step.slot), slot_radii + blocks(step.slot)};
      if (place.values != nullptr) block.value = place.values + begin;
      if (place.radii != nullptr) block.radius = place.radii + begin;
      for (int k = 0; k < 3; ++k) {
        block.x[k] = operands[step.inputs[k]].values;
        block.r[k] = operands[step.inputs[k]].radii;
        block.exact[k] = block.r[k] == zeros;
      }
      primitive::element::visit(step.primitive, internal::BlockValue{step, block});
      operands[sources + s].values = block.value;
      if (!chain.enclosed() || !step.enclosed()) continue;
      internal::enclose_block(step, block);
      operands[sources + s].radii = block.radius;
      largest[s].look_at(n, block.radius, block.value);
    }
  }
  result.largest = std::move(largest);
  return result;
}

}  // namespace plumbline::cpu
