// Whether a value of one program occurs in the other, in exact arithmetic on the same leaves.
//
// Values are known by fingerprints: a projection with fixed pseudo-random weights, relative to the L2 norm, on a grid
// of 2^-34. Replays of equal mathematics differ by some 1e-13 of the norm, so that a value's neighbours on the grid are
// tried too, and values that differ by more than 1.2e-10 of the norm pass for equal with a probability of 2^-34 per
// known value of the same length and binary exponent. A value is known as a whole (its row-major elements, whatever its
// shape) and by its rows (last dimension), so that a batch agrees with its split; vectors by their elements too. Zeros
// agree with anything: an operation whose result vanishes has added nothing.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

enum class Agreement {
  kDiffers,     // Some row is not known.
  kRearranged,  // All rows are known, but the whole is not, though some value there has that shape.
  kAgrees,
};

class KnownValues {
 public:
  KnownValues(const Graph& graph, const Replay& replay);

  Agreement of(const Node& node, const Array& value) const;
  // A value that a product multiplies by, or a quotient divides by.
  bool is_factor(const Array& value) const { return holds_rows(factors_, value); }
  bool is_divisor(const Array& value) const { return holds_rows(divisors_, value); }

 private:
  using Keys = std::vector<std::uint64_t>;  // Sorted.

  void add_whole(const Array& value);
  static void add_rows(Keys* keys, const Array& value);
  static bool holds_rows(const Keys& keys, const Array& value);

  Keys wholes_, rows_, factors_, divisors_;
  std::set<Shape> shapes_;
};

// Under which a whole value is known: its own key first, then those of its neighbours on the grid. Empty: zeros,
// and a single number, which may recur by chance.
std::vector<std::uint64_t> value_keys(const Array& value);

// The input that scales a product or a quotient: the smaller factor, or the divisor.
std::size_t scaling_input(const Graph& graph, const Node& node);

}  // namespace plumbline
