// Cotangents on their way back through a chain (chain.h), and what the roundings of its steps add to the functionals
// that they belong to: values, errors and cotangents of an element are made where they are read. The host does a block
// of elements at a time (cpu/pullback.h), a device one element a thread (cuda/pullback.cuh).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/ball/round.h"
#include "kernels/chain.h"
#include "kernels/later.h"
#include "kernels/primitive/rounding.h"

namespace plumbline {

struct Charges {
  Charge target, own;  // The audited execution's charge, and our own replay's.
};

// A chain of exact values, whose steps are all asked for, and how they round.
struct Pullback {
  struct Step {
    primitive::ElementRounding target, own;  // none(): it does not round, or is not asked for.
    // The operands, by their number, that tell its rounding events apart, as the step reads them. For draws.
    std::vector<std::pair<int, RoundTo>> told_by = {};
    bool exact_at_zero = false;  // Where its operand is 0 nothing is rounded. For draws.
  };
  // Values for a chain whose elements have this shape, to which they are broadcast: as one element, or as all of them
  // in two dimensions at most, of any strides.
  static Array source_of(const Array& values, const Shape& shape);
  bool one(std::size_t source) const { return chain.sources()[source].one; }

  Chain chain{{}, false};
  std::vector<Array> sources;  // As source_of makes them.
  std::vector<Step> steps;
};

// A functional, as a chain sees it. Lists have an entry for each step or each source; arrays are row-major and hold all
// elements.
struct PulledFunctional {
  bool of_target = false;      // It asks of the target's roundings, whole and by chance.
  bool own_by_chance = false;  // Our own roundings too are charged by chance; they are charged whole in any case.
  std::vector<Array> seeds;    // For each step, its cotangent from elsewhere; an empty entry means none.
  // For each step, the array that receives its whole cotangent; an empty entry means that nothing is written. A step
  // that no other reads may be shown where its seed is.
  std::vector<Array> shown;
  std::vector<bool> reached;  // For each source, then for each step, whether a cotangent arrives there.
  struct Target {
    bool asked = false;  // Only where it is reached.
    // Where what the source is handed is written. That of a source of one element is all that these elements hand it;
    // where it is empty, that stands in PulledBack alone.
    Array cotangent{};
    bool add = false;  // To what is there.
  };
  std::vector<Target> into;  // There is one for each source.
  // For each step, the weight |g| e from one draw of an element to the next, e the target's error or, where that is not
  // asked for, our own (server/bound/envelope/events.h); 0 means that none is drawn. An empty list means that none is
  // drawn of any step. The host alone draws.
  std::vector<double> draw_every = {};

  // Fills `reached` from `seeds`.
  void reach(const Chain& chain);
};

// The events of the elements that were drawn of a step, in proportion to their weights; 0: an element without event.
struct Drawn {
  std::vector<std::uint64_t> events;
  bool too_many = false;  // A quarter of the elements was drawn, and the others were not.
};

// There is one for each functional.
struct PulledBack {
  std::vector<Charges> steps;
  std::vector<double> sources;  // The cotangents of those of one element.
  std::vector<Drawn> drawn;     // For each step; empty where none was to be drawn.

  void add(const PulledBack& part);
};

// Pulls back the elements [begin, begin + count). `errors` names for each step where the target's error, or otherwise
// our own, is written; an empty entry means nowhere. It runs on the backend that the calling thread computes on; the
// host's uses that thread alone.
Later<std::vector<PulledBack>> pull_back(const Pullback& pullback, std::span<const PulledFunctional> functionals,
                                         std::span<const Array> errors, std::int64_t begin, std::int64_t count);

}  // namespace plumbline
