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

// Whether BlockPull takes derivatives from a function over the whole block.
constexpr bool by_vector(Primitive primitive) {
  return primitive == Primitive::kSin || primitive == Primitive::kCos || primitive == Primitive::kErf ||
         primitive == Primitive::kPow;
}

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
      if constexpr (by_vector(E::kPrimitive) && E::kPrimitive != P::kPow) {
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

// What additions drop of the smaller operand, times g: the drift of a functional with this cotangent.
inline double drift_of(const primitive::ElementRounding& rounding, const ChainBlock& block, const double* g) {
  if (rounding.dropped_u == 0) return 0;
  const double sign = rounding.sign, u = rounding.dropped_u;
  const bool absorbs = rounding.error.absorbs;
  const double *const x = block.x[0], *const y = block.x[1], *const t = block.value;
  // In most blocks no operand is so small that any of it is dropped.
  std::int64_t some = 0;
#pragma omp simd reduction(| : some)
  for (std::int64_t i = 0; i < block.count; ++i)
    some |= static_cast<std::int64_t>(primitive::may_drop(t[i], x[i], y[i], u));
  if (some == 0) return 0;
  double drift = 0;
#pragma omp simd reduction(+ : drift)
  for (std::int64_t i = 0; i < block.count; ++i) drift += primitive::dropped(g[i], t[i], x[i], y[i], sign, u, absorbs);
  return drift;
}

// Sums are raised above the rounding of their additions.
constexpr double kSummed = 1 + 0x1p-20;

// Adds what the step's errors e do to a functional with the cotangent g, element by element.
inline void charge_block(const primitive::ElementRounding& rounding, bool by_chance, const ChainBlock& block,
                         const double* g, const double* e, Charge* charge) {
  const std::int64_t n = block.count;
  const double* const t = block.value;
  double whole = 0;
#pragma omp simd reduction(+ : whole)
  for (std::int64_t i = 0; i < n; ++i) whole += primitive::whole_charge(g[i], e[i]);
  charge->whole += whole * kSummed;
  if (!by_chance) return;
  const primitive::Events events = rounding.events;
  double bias = 0, squares = 0;
#pragma omp simd reduction(+ : bias, squares)
  for (std::int64_t i = 0; i < n; ++i) {
    const Totals<2> one = events.charge(g[i], t[i], e[i]);
    bias += one.of[0];
    squares += one.of[1];
  }
  charge->noise.bias += bias;
  charge->noise.squares += squares;
}

// The same where errors are linear, from the moments of all blocks whose moments were added.
inline void charge_moments(const primitive::ElementRounding& rounding, bool by_chance,
                           const primitive::Moments& moments, Charge* charge) {
  const Charge found = primitive::charge_of(rounding, moments);
  charge->whole += found.whole * kSummed;
  if (!by_chance) return;
  charge->noise.bias += found.noise.bias;
  charge->noise.squares += found.noise.squares;
}

alignas(kLine) inline constexpr double kNothing[kChainBlock] = {};  // What a target holds that is not added to.

// Sums a step's moments and, where derivatives are worked out element by element, hands the cotangent on in the same
// loop, which reads it once for both. False: it is still to be handed on. `squares`: moments of chance too.
struct BlockGather {
  const ChainBlock& block;
  const double* g;
  const BlockTarget (&into)[3];
  bool squares;
  primitive::Moments* moments;

  template <class E>
  bool operator()(E) const {
    return squares ? to_asked<E, true>() : to_asked<E, false>();
  }

 private:
  template <class E, bool kSquares>
  bool to_asked() const {
    constexpr Primitive kOf = E::kPrimitive;
    if constexpr (!by_vector(kOf) && E::kArity <= 2 && primitive::element::hands_on(kOf, 0)) {
      const bool first = into[0].out != nullptr, second = E::kArity > 1 && into[1].out != nullptr;
      if constexpr (E::kArity > 1) {
        if (second && !first) return in_one_loop<E, kSquares, false, true>();
        if (second && into[0].out != into[1].out) return in_one_loop<E, kSquares, true, true>();
      }
      if (first && !second) return in_one_loop<E, kSquares, true, false>();
    }
    in_one_loop<E, kSquares, false, false>();
    return false;
  }

  template <class E, bool kSquares, bool kFirst, bool kSecond>
  bool in_one_loop() const {
    const std::int64_t n = block.count;
    const double *const a = block.x[0], *const b = block.x[1], *const t = block.value, *const cotangent = g;
    const auto held = [](const BlockTarget& target) { return target.add ? target.out : kNothing; };
    const double *const first_held = held(into[0]), *const second_held = held(into[1]);
    double *const first = into[0].out, *const second = into[1].out;
    double of_g = 0, gt = 0, gg = 0, ggt = 0, ggtt = 0;
#pragma omp simd reduction(+ : of_g, gt, gg, ggt, ggtt)
    for (std::int64_t i = 0; i < n; ++i) {
      const double size = std::fabs(cotangent[i]), product = size * std::fabs(t[i]);
      of_g += size;
      gt += product;
      if constexpr (kSquares) {
        gg += size * size;
        ggt += size * product;
        ggtt += product * product;
      }
      if constexpr (kFirst)
        first[i] = first_held[i] + primitive::element::HandedOn<E, 0>()(cotangent[i], a[i], b[i], t[i]);
      if constexpr (kSecond)
        second[i] = second_held[i] + primitive::element::HandedOn<E, 1>()(cotangent[i], a[i], b[i], t[i]);
    }
    *moments = {of_g, gt, gg, ggt, ggtt};
    return true;
  }
};

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

  // Passes a block of at most this weight, if nothing of it is drawn.
  bool pass(double weight) {
    const double after = passed + weight;
    if (!(next > after)) return false;
    passed = after;
    return true;
  }

  void draw(std::uint64_t event) {
    drawn->too_many = drawn->too_many || drawn->events.size() >= most;
    drawn->events.push_back(event);
    next += every;
  }
};

// The event of an element; 0: none (EventKeys).
inline std::uint64_t event_of(const Pullback::Step& step, const ChainBlock& block, std::int64_t i) {
  if (block.value[i] == 0 || (step.exact_at_zero && block.x[0][i] == 0)) return 0;
  std::uint64_t event = key::kStart;
  for (const auto& [operand, held] : step.told_by) event = key::mixed(event) ^ key::bits_of(held(block.x[operand][i]));
  return key::mixed(event) | 1;
}

inline void weigh_block(const ChainBlock& block, const double* g, const double* e, double* weights) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < block.count; ++i) weights[i] = primitive::whole_charge(g[i], e[i]);
}

// Draws the elements at which the sum of the weights passes the next draw. There is room for a whole block of weights.
// They are summed in columns of every so many elements, whose sums come from loops that vectorise.
inline void draw_block(const Pullback::Step& step, const ChainBlock& block, double* weights, Drawing* drawing) {
  constexpr std::int64_t kColumns = 16;
  const std::int64_t rows = (block.count + kColumns - 1) / kColumns;
  std::fill(weights + block.count, weights + rows * kColumns, 0.0);
  double sums[kColumns] = {};
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < kColumns; ++column) sums[column] += weights[row * kColumns + column];
  for (std::int64_t column = 0; column < kColumns && !drawing->drawn->too_many; ++column) {
    const double after = drawing->passed + sums[column];
    if (drawing->next <= after) {
      double at = drawing->passed;
      const std::int64_t last = (block.count - 1 - column) / kColumns * kColumns + column;
      for (std::int64_t i = column; i <= last; i += kColumns) {
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
  // By functional and step: of the blocks with which they stay finite.
  std::vector<std::vector<primitive::Moments>> sums(functionals.size(), std::vector<primitive::Moments>(steps.size()));
  // Blocks of values by source and step, of cotangents the same, of errors by step.
  const auto blocks = [](std::size_t n) { return n * static_cast<std::size_t>(kChainBlock); };
  double* const values = internal::block_memory(2 * all + 2 * steps.size());
  double* const cotangents = values + blocks(all);
  double* const errors_held = cotangents + blocks(all);
  std::vector<const double*> x(all);
  for (std::size_t i = 0; i < sources; ++i) {
    x[i] = values + blocks(i);
    if (pullback.one(i)) std::fill_n(values + blocks(i), kChainBlock, pullback.sources[i].item());
  }
  std::vector<internal::ChainBlock> at(steps.size());
  std::vector<BlockTarget> targets(all);
  // Errors of a step in a block, worked out where something asks for them element by element.
  struct Errors {
    double* at = nullptr;
    bool known = false;
  };
  std::vector<Errors> target_errors(steps.size()), own_errors(steps.size());
  const auto errors_of = [&](std::size_t s, const primitive::ElementRounding& rounding,
                             Errors& found) -> const double* {
    if (!found.known) internal::error_block(steps[s].primitive, rounding, at[s], found.at);
    found.known = true;
    return found.at;
  };
  double weights[kChainBlock];
  // Asks for the block from `from` on.
  const auto fetch_ahead = [&](std::int64_t from) {
    const std::int64_t length = std::min(begin + count, from + kChainBlock) - from;
    for (const Array& source : pullback.sources)
      if (source.shape().size() == 1 && source.strides()[0] == 1) fetch(source.data() + from, length);
    for (const PulledFunctional& functional : functionals) {
      for (const Array& seed : functional.seeds)
        if (seed) fetch(seed.data() + from, length);
      for (const PulledFunctional::Target& into : functional.into)
        if (into.cotangent) fetch(into.cotangent.data() + from, length);
    }
  };

  for (std::int64_t first = begin; first < begin + count; first += kChainBlock) {
    const std::int64_t n = std::min(kChainBlock, begin + count - first);
    fetch_ahead(first + n);
    for (std::size_t i = 0; i < sources; ++i)
      if (!pullback.one(i)) x[i] = internal::elements_of(pullback.sources[i], first, n, values + blocks(i));
    for (std::size_t s = 0; s < steps.size(); ++s) {
      internal::ChainBlock& block = at[s];
      block = {n, {}, {}, values + blocks(sources + s), nullptr};
      for (int k = 0; k < 3; ++k) block.x[k] = x[steps[s].inputs[k]];
      primitive::element::visit(steps[s].primitive, internal::BlockValue{steps[s], block});
      x[sources + s] = block.value;
      target_errors[s] = {errors_held + blocks(s)};
      own_errors[s] = {errors_held + blocks(steps.size() + s)};
      if (!errors[s]) continue;
      const Pullback::Step& rounded = pullback.steps[s];
      const bool of_target = !rounded.target.none();
      Errors& shown = of_target ? target_errors[s] : own_errors[s];
      shown.at = errors[s].address() + first;
      if (of_target || !rounded.own.none()) errors_of(s, of_target ? rounded.target : rounded.own, shown);
    }
    for (std::size_t p = 0; p < functionals.size(); ++p) {
      const PulledFunctional& functional = functionals[p];
      for (std::size_t i = 0; i < sources; ++i) {
        const PulledFunctional::Target& into = functional.into[i];
        if (into.cotangent && !pullback.one(i))
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
        const bool of_target = functional.of_target && !rounded.target.none(), of_own = !rounded.own.none();
        const bool drawn = !drawings[p].empty() && drawings[p][s].every > 0;
        BlockTarget into[3];
        for (int k = 0; k < steps[s].arity; ++k) into[k] = targets[steps[s].inputs[k]];
        primitive::Moments moments;
        bool handed = false;
        if ((of_target && rounded.target.linear()) || (of_own && rounded.own.linear())) {
          const bool squares = of_target || functional.own_by_chance;
          handed =
              primitive::element::visit(steps[s].primitive, internal::BlockGather{at[s], g, into, squares, &moments});
        }
        const bool finite = sums[p][s].add(moments);
        const auto charge = [&](const primitive::ElementRounding& rounding, bool by_chance, Errors& found,
                                Charge* into) {
          if (by_chance) into->noise.drift += internal::drift_of(rounding, at[s], g);
          if (rounding.linear() && finite) return;  // By the sums.
          internal::charge_block(rounding, by_chance, at[s], g, errors_of(s, rounding, found), into);
        };
        const auto& by = of_target ? rounded.target : rounded.own;  // Draws go by these (charge.cc, weight).
        const double& weight = of_target ? charges.target.whole : charges.own.whole;
        const double before = weight;
        if (of_target) charge(rounded.target, true, target_errors[s], &charges.target);
        if (of_own) charge(rounded.own, functional.own_by_chance, own_errors[s], &charges.own);
        const auto of_block = [&] {
          return by.linear() && finite ? primitive::charge_of(by, moments).whole * internal::kSummed : weight - before;
        };
        if (drawn && !drawings[p][s].pass(of_block())) {
          internal::weigh_block(at[s], g, errors_of(s, by, of_target ? target_errors[s] : own_errors[s]), weights);
          internal::draw_block(rounded, at[s], weights, &drawings[p][s]);
        }
        for (int k = 0; k < steps[s].arity; ++k) {
          BlockTarget& target = targets[steps[s].inputs[k]];
          if (!handed) {
            BlockTarget of_operand[3];
            of_operand[k] = target;
            primitive::element::visit(steps[s].primitive, internal::BlockPull{steps[s], at[s], g, of_operand});
          }
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
  for (std::size_t p = 0; p < functionals.size(); ++p) {
    const PulledFunctional& functional = functionals[p];
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const Pullback::Step& rounded = pullback.steps[s];
      Charges& charges = pulled[p].steps[s];
      if (functional.of_target && rounded.target.linear())
        internal::charge_moments(rounded.target, true, sums[p][s], &charges.target);
      if (rounded.own.linear())
        internal::charge_moments(rounded.own, functional.own_by_chance, sums[p][s], &charges.own);
    }
    for (std::size_t i = 0; i < sources; ++i)
      if (const Array& into = functionals[p].into[i].cotangent; into && pullback.one(i))
        *into.address() = pulled[p].sources[i];
  }
  return pulled;
}

}  // namespace plumbline::cpu
