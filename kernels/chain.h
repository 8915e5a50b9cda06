// Elementwise operations on the same elements, one after the other while their operands are at hand: nothing between
// what a chain reads and what is asked of it goes through memory. The host does a block of elements at a time
// (cpu/chain.h), a device one element a thread (cuda/chain.cuh).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/later.h"
#include "kernels/primitive/element.h"

namespace plumbline {

// The largest radius and value of an array, or of a part of it: bits of magnitudes, which are ordered as they are, NaN
// above all. (Their maximum vectorises.) Elements whose value is infinite have no finite ball: they say nothing of the
// others.
struct Largest {
  std::int64_t radius = 0, value = 0;

  void join(const Largest& other) {
    radius = std::max(radius, other.radius);
    value = std::max(value, other.value);
  }
  void look_at(std::int64_t count, const double* radii, const double* values) {
    constexpr std::int64_t kInfinite = std::bit_cast<std::int64_t>(HUGE_VAL);
    const auto magnitude = [](double x) { return std::bit_cast<std::int64_t>(std::fabs(x)); };
    std::int64_t r = radius, v = value;
    for (std::int64_t i = 0; i < count; ++i) {
      r = std::max(r, magnitude(radii[i]));
      v = std::max(v, magnitude(values[i]));
    }
    if (v < kInfinite) {  // As nearly always, none is infinite.
      radius = r;
      value = v;
      return;
    }
    r = radius;
    v = value;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t size = magnitude(values[i]), counts = -static_cast<std::int64_t>(size < kInfinite);
      r = std::max(r, magnitude(radii[i]) & counts);
      v = std::max(v, size & counts);
    }
    radius = r;
    value = v;
  }
  bool beyond(double limit) const { return std::bit_cast<double>(radius) + std::bit_cast<double>(value) > limit; }
  bool exploded() const {  // Beyond use as a whole.
    const auto r = std::bit_cast<double>(radius), v = std::bit_cast<double>(value);
    return !(r < HUGE_VAL) || (v > 0 && r > 1e6 * v);
  }
};

class Chain {
 public:
  struct Source {
    bool one = false;       // One element, whatever the count of the chain.
    bool enclosed = false;  // It has radii.
  };
  struct Step {
    Primitive primitive = Primitive::kCast;
    int arity = 0;
    std::uint32_t inputs[3] = {};  // An index counts the sources first, then the steps.
    std::uint32_t slot = 0;        // Where its result waits for those who read it: no other is there until then.
    bool fixed_exponent = false;   // kPow, by a source of one element.
    // Its enclosure: what its operands' balls make of it, and its local error.
    bool moved = false;     // Some operand has a radius.
    bool inflated = false;  // The error is that at the operands of largest magnitude within their balls.
    double tiny = 0;        // Operands below it are flushed to zero; 0: none are.
    primitive::element::LocalError error;

    bool enclosed() const { return moved || tiny > 0 || !error.none; }
  };

  // `enclosed`: radii are wanted as well.
  Chain(std::vector<Source> sources, bool enclosed) : sources_(std::move(sources)), enclosed_(enclosed) {}
  // An elementwise operation on `inputs`, indices of sources and, beyond them, of steps. `arithmetic`: of its error;
  // read where radii are wanted.
  void add(Primitive primitive, const Attributes& attributes, std::span<const std::size_t> inputs,
           const Arithmetic& arithmetic);
  // What is asked for: steps. Once, after the last one was added.
  void ask(std::vector<std::size_t> ends);

  const std::vector<Source>& sources() const { return sources_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<std::size_t>& ends() const { return ends_; }
  bool enclosed() const { return enclosed_; }
  bool enclosed(std::size_t index) const {
    return index < sources_.size() ? sources_[index].enclosed : steps_[index - sources_.size()].enclosed();
  }
  std::uint32_t slots() const { return slots_; }

 private:
  std::vector<Source> sources_;
  bool enclosed_;
  std::vector<Step> steps_;
  std::vector<std::size_t> ends_;
  std::uint32_t slots_ = 0;
};

// What a chain reads: an array of all elements or of one, row-major; or all elements as they are held in `format`. With
// radii where its Chain::Source has some.
struct ChainInput {
  Array values{};  // Empty: `bytes`.
  const std::uint8_t* bytes = nullptr;
  Format format = Format::kUnknown;
  Bound radii{};
};
struct ChainResult {
  std::vector<Array> values;  // There is one for each end.
  std::vector<Bound> radii;   // There is one for each end where radii are wanted; an empty one is exactly zero.
  // There is one for each step where radii are wanted.
  Later<std::vector<Largest>> largest = std::vector<Largest>();
};

// On the backend that the calling thread computes on; the host's uses that thread alone. `into`: by end, where its
// values go, which are row-major; none: to arrays of their own.
ChainResult run(const Chain& chain, std::span<const ChainInput> inputs, std::int64_t count,
                std::span<const Array> into = {});

}  // namespace plumbline
