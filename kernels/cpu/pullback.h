// A chain's cotangents on the host (kernels/pullback.h): a block of elements at a time, all of whose values, errors and
// cotangents stay near the processor, step by step in loops that vectorise.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/ball/key.h"
#include "kernels/cpu/chain.h"
#include "kernels/primitive/element.h"
#include "kernels/pullback.h"

namespace plumbline::cpu {
namespace internal {

// out (+)= f(i)
template <class F>
void store(bool add, std::int64_t n, double* out, const F& f) {
  if (add) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) out[i] += f(i);
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) out[i] = f(i);
  }
}

// Where a step's operand takes its part of the cotangent; out: null where it is not asked for.
struct BlockTarget {
  double* out = nullptr;
  bool add = false;
};

// Hands a step's cotangent g to its operands.
struct BlockPull {
  const Chain::Step& step;
  const ChainBlock& block;
  const double* g;
  const BlockTarget (&into)[3];

  template <class E>
  void operator()(E) const {
    hand_on<E, 0>();
    if constexpr (E::kArity > 1) hand_on<E, 1>();
    if constexpr (E::kArity > 2) hand_on<E, 2>();
  }

  template <class E, int kOperand>
  void hand_on() const {
    if constexpr (primitive::element::hands_on(E::kPrimitive, kOperand)) {
      if (into[kOperand].out == nullptr) return;
      const std::int64_t n = block.count;
      const double *const a = block.x[0], *const b = block.x[1], *const t = block.value;
      using P = Primitive;
      // The same derivatives by vector functions, where there are such.
      if constexpr (E::kPrimitive == P::kSin || E::kPrimitive == P::kCos || E::kPrimitive == P::kErf) {
        double slope[kChainBlock];
        if constexpr (E::kPrimitive == P::kErf) {  // 2 / sqrt(pi) exp(-a^2)
          for (std::int64_t i = 0; i < n; ++i) slope[i] = -a[i] * a[i];
          vector_exp(slope, slope, n);
        } else {
          (E::kPrimitive == P::kSin ? vector_cos : vector_sin)(a, slope, n);
        }
        constexpr double kFactor = E::kPrimitive == P::kErf ? 1.1283791670955126 : E::kPrimitive == P::kSin ? 1 : -1;
        hand<kOperand>([&](std::int64_t i) { return scalar::pull(g[i], kFactor * slope[i]); });
      } else if constexpr (E::kPrimitive == P::kPow && kOperand == 0) {  // b a^(b - 1)
        double power[kChainBlock], lower[kChainBlock];
        if (step.fixed_exponent && scalar::is_small_power(b[0] - 1)) {
          for (std::int64_t i = 0; i < n; ++i) power[i] = scalar::small_power(a[i], b[0] - 1);
        } else {
          for (std::int64_t i = 0; i < n; ++i) lower[i] = b[i] - 1;
          vector_pow(a, lower, power, n);
        }
        hand<kOperand>([&](std::int64_t i) { return b[i] == 0 ? 0.0 : scalar::pull(g[i], b[i] * power[i]); });
      } else {
        constexpr primitive::element::HandedOn<E, kOperand> kHandedOn;
        hand<kOperand>([&](std::int64_t i) { return kHandedOn(g[i], a[i], b[i], t[i]); });
      }
    }
  }

  template <int kOperand, class F>
  void hand(const F& f) const {
    store(into[kOperand].add, block.count, into[kOperand].out, f);
  }
};

inline void error_block(Primitive primitive, const primitive::ElementRounding& rounding, const ChainBlock& block,
                        double* out) {
  const primitive::element::LocalError error = rounding.error;
  const double *const a = block.x[0], *const t = block.value;
  if (rounding.tiny > 0) {
    for (std::int64_t i = 0; i < block.count; ++i)
      out[i] =
          primitive::chain::rounding_error(primitive, error, rounding.tiny, {a[i], block.x[1][i], block.x[2][i]}, t[i]);
  } else if (error.of_argument) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < block.count; ++i) out[i] = error.of(a[i], t[i]);
  } else {
    const double slope = error.slope, offset = error.offset;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < block.count; ++i) out[i] = slope * std::fabs(t[i]) + offset;
  }
}

// Adds what the step's errors e do to a functional with the cotangent g.
inline void charge_block(const primitive::ElementRounding& rounding, bool by_chance, const ChainBlock& block,
                         const double* g, const double* e, Charge* charge) {
  const std::int64_t n = block.count;
  const double* const t = block.value;
  double whole = 0;
#pragma omp simd reduction(+ : whole)
  for (std::int64_t i = 0; i < n; ++i) whole += primitive::whole_charge(g[i], e[i]);
  charge->whole += whole * (1 + 0x1p-20);  // Above the rounding of its additions.
  if (!by_chance) return;
  const primitive::Events events = rounding.events;
  double bias = 0, squares = 0, drift = 0;
#pragma omp simd reduction(+ : bias, squares)
  for (std::int64_t i = 0; i < n; ++i) {
    const Totals<2> one = events.charge(g[i], t[i], e[i]);
    bias += one.of[0];
    squares += one.of[1];
  }
  charge->noise.bias += bias;
  charge->noise.squares += squares;
  if (rounding.dropped_u == 0) return;
  const double sign = rounding.sign, u = rounding.dropped_u;
  const double *const x = block.x[0], *const y = block.x[1];
#pragma omp simd reduction(+ : drift)
  for (std::int64_t i = 0; i < n; ++i) drift += primitive::dropped(g[i], t[i], x[i], y[i], sign, u);
  charge->noise.drift += drift;
}

// What was drawn of a step's elements before a block.
struct Drawing {
  double every = 0, next = 0, passed = 0;  // The sums of weights from draw to draw, at the next one, and so far.
  std::size_t most = 0;
  Drawn* drawn = nullptr;

  // The first draw of a part lies anywhere before the second, as a hash of the part's place says.
  Drawing(double every, std::int64_t begin, std::int64_t count, Drawn* drawn)
      : every(every),
        next(every * static_cast<double>(key::mixed(key::kStart + static_cast<std::uint64_t>(begin)) >> 11) * 0x1p-53),
        most(static_cast<std::size_t>(count / 4)),
        drawn(drawn) {}

  void draw(std::uint64_t event) {
    drawn->too_many = drawn->too_many || drawn->events.size() >= most;
    drawn->events.push_back(event);
    next += every;
  }
};

// The event of an element; 0: none, as its result is 0 (EventKeys).
inline std::uint64_t event_of(const Pullback::Step& step, const ChainBlock& block, std::int64_t i) {
  if (block.value[i] == 0) return 0;
  std::uint64_t event = key::kStart;
  for (const auto& [operand, held] : step.told_by) event = key::mixed(event) ^ key::bits_of(held(block.x[operand][i]));
  return key::mixed(event) | 1;
}

// Draws the elements at which the sum of the weights passes the next draw.
inline void draw_block(const Pullback::Step& step, const ChainBlock& block, const double* g, const double* e,
                       Drawing* drawing) {
  constexpr std::int64_t kRun = 16;
  double weights[kChainBlock];
#pragma GCC ivdep
  for (std::int64_t i = 0; i < block.count; ++i) weights[i] = primitive::whole_charge(g[i], e[i]);
  std::fill(weights + block.count, weights + (block.count + kRun - 1) / kRun * kRun, 0.0);
  for (std::int64_t first = 0; first < block.count && !drawing->drawn->too_many; first += kRun) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < kRun; ++i) sum += weights[first + i];
    const double after = drawing->passed + sum;
    if (drawing->next <= after) {
      double at = drawing->passed;
      const std::int64_t last = std::min(block.count, first + kRun) - 1;
      for (std::int64_t i = first; i <= last; ++i) {
        at += weights[i];
        while ((drawing->next <= at || (i == last && drawing->next <= after)) && !drawing->drawn->too_many)
          drawing->draw(event_of(step, block, i));
      }
    }
    drawing->passed = after;
  }
}

// Elements [begin, begin + n) of a source: in place where they lie side by side, otherwise gathered into `room`.
inline const double* elements_of(const Array& source, std::int64_t begin, std::int64_t n, double* room) {
  const double* const from = source.data();
  const bool flat = source.shape().size() == 1;
  const std::int64_t outer = flat ? 0 : source.strides()[0], inner = source.strides().back();
  if (flat && inner == 1) return from + begin;
  const std::int64_t row = source.shape().back();
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t r = (begin + i) / row, at = (begin + i) % row, length = std::min(row - at, n - i);
    const double* const x = from + r * outer + at * inner;
    if (inner == 0)
      std::fill_n(room + i, length, *x);
    else if (inner == 1)
      std::copy_n(x, length, room + i);
    else
      for (std::int64_t k = 0; k < length; ++k) room[i + k] = x[k * inner];
    i += length;
  }
  return room;
}

}  // namespace internal

inline std::vector<PulledBack> pull_back(const Pullback& pullback, std::span<const PulledFunctional> functionals,
                                         std::span<const Array> errors, std::int64_t begin, std::int64_t count) {
  using internal::BlockTarget;
  using internal::kChainBlock;
  const std::vector<Chain::Step>& steps = pullback.chain.steps();
  const std::size_t sources = pullback.sources.size(), all = sources + steps.size();
  std::vector<PulledBack> pulled(functionals.size());
  for (PulledBack& one : pulled) {
    one.steps.resize(steps.size());
    one.sources.resize(sources);
  }
  std::vector<std::vector<internal::Drawing>> drawings(functionals.size());
  for (std::size_t p = 0; p < functionals.size(); ++p) {
    const std::vector<double>& every = functionals[p].draw_every;
    pulled[p].drawn.resize(every.size());
    for (std::size_t s = 0; s < every.size(); ++s)
      drawings[p].emplace_back(every[s], begin, count, &pulled[p].drawn[s]);
  }
  // Blocks of values by source and step, of cotangents the same, of errors by step.
  thread_local std::vector<double> held;
  const auto blocks = [](std::size_t n) { return n * static_cast<std::size_t>(kChainBlock); };
  held.resize(std::max(held.size(), blocks(2 * all + 2 * steps.size())));
  double* const values = held.data();
  double* const cotangents = values + blocks(all);
  double* const target_errors = cotangents + blocks(all);
  double* const own_errors = target_errors + blocks(steps.size());
  std::vector<const double*> x(all), target_error(steps.size());
  for (std::size_t i = 0; i < sources; ++i) {
    x[i] = values + blocks(i);
    if (pullback.one(i)) std::fill_n(values + blocks(i), kChainBlock, pullback.sources[i].item());
  }
  std::vector<internal::ChainBlock> at(steps.size());
  std::vector<BlockTarget> targets(all);

  for (std::int64_t first = begin; first < begin + count; first += kChainBlock) {
    const std::int64_t n = std::min(kChainBlock, begin + count - first);
    for (std::size_t i = 0; i < sources; ++i)
      if (!pullback.one(i)) x[i] = internal::elements_of(pullback.sources[i], first, n, values + blocks(i));
    for (std::size_t s = 0; s < steps.size(); ++s) {
      internal::ChainBlock& block = at[s];
      block = {n, {}, {}, values + blocks(sources + s), nullptr};
      for (int k = 0; k < 3; ++k) block.x[k] = x[steps[s].inputs[k]];
      primitive::element::visit(steps[s].primitive, internal::BlockValue{steps[s], block});
      x[sources + s] = block.value;
      const Pullback::Step& rounded = pullback.steps[s];
      double* const shown = errors[s] ? errors[s].address() + first : nullptr;
      double* const of_target = shown != nullptr ? shown : target_errors + blocks(s);
      if (!rounded.target.none()) internal::error_block(steps[s].primitive, rounded.target, block, of_target);
      target_error[s] = of_target;
      if (rounded.own.none()) continue;
      internal::error_block(steps[s].primitive, rounded.own, block, own_errors + blocks(s));
      if (shown != nullptr && rounded.target.none()) std::copy_n(own_errors + blocks(s), n, shown);
    }
    for (std::size_t p = 0; p < functionals.size(); ++p) {
      const PulledFunctional& functional = functionals[p];
      for (std::size_t i = 0; i < sources; ++i) {
        const PulledFunctional::Target& into = functional.into[i];
        if (into.cotangent)
          targets[i] = {into.cotangent.address() + first, into.add};
        else
          targets[i] = {into.asked ? cotangents + blocks(i) : nullptr, false};
      }
      for (std::size_t s = 0; s < steps.size(); ++s) {
        BlockTarget& target = targets[sources + s];
        target = {functional.shown[s] ? functional.shown[s].address() + first : cotangents + blocks(sources + s),
                  static_cast<bool>(functional.seeds[s])};
        if (target.add && functional.reached[sources + s] && !functional.seeds[s].same_place(functional.shown[s]))
          std::copy_n(functional.seeds[s].data() + first, n, target.out);
      }
      for (std::size_t s = steps.size(); s-- > 0;) {
        if (!functional.reached[sources + s]) continue;
        const double* const g = targets[sources + s].out;
        Charges& charges = pulled[p].steps[s];
        const Pullback::Step& rounded = pullback.steps[s];
        if (functional.of_target && !rounded.target.none())
          internal::charge_block(rounded.target, true, at[s], g, target_error[s], &charges.target);
        if (!drawings[p].empty() && drawings[p][s].every > 0)
          internal::draw_block(rounded, at[s], g, target_error[s], &drawings[p][s]);
        if (!rounded.own.none())
          internal::charge_block(rounded.own, functional.own_by_chance, at[s], g, own_errors + blocks(s), &charges.own);
        for (int k = 0; k < steps[s].arity; ++k) {
          BlockTarget into[3];
          BlockTarget& target = targets[steps[s].inputs[k]];
          into[k] = target;
          primitive::element::visit(steps[s].primitive, internal::BlockPull{steps[s], at[s], g, into});
          target.add = target.add || primitive::element::hands_on(steps[s].primitive, k);
        }
      }
      for (std::size_t i = 0; i < sources; ++i) {
        if (!functional.into[i].asked || !pullback.one(i) || !targets[i].add) continue;
        const double* const g = cotangents + blocks(i);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t k = 0; k < n; ++k) sum += g[k];
        pulled[p].sources[i] += sum;
      }
    }
  }
  return pulled;
}

}  // namespace plumbline::cpu
