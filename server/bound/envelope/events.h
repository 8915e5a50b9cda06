// Shared rounding events. A kernel that is given the same operands twice rounds twice alike: repeated rows, equal
// tokens, few distinct values in a 16-bit format. Such errors do not add in squares; their cotangents add first.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/ball/key.h"
#include "kernels/ball/round.h"
#include "kernels/sharing.h"
#include "server/bound/replay/replay.h"

namespace plumbline {

// Whether the node's result is not rounded where its operand is 0: exp(0) is 1 in every library (C17, F.10.3.1) and on
// every device (PTX, ex2), though maybe not in a user's kernel or in the middle of another function.
bool exact_at_zero(const Graph& graph, NodeId id);

// What tells a node's events apart: elements with equal operands, each as the node's format holds it (elementwise
// primitives), rows with equal operands (softmax and its logarithm), or elements with equal results (all others: equal
// rows give equal results).
class EventKeys {
 public:
  EventKeys(const Graph& graph, NodeId id, const std::vector<Array>& inputs, const Array& value);

  std::int64_t count() const { return count_; }  // The number of elements or rows.
  std::int64_t row() const { return row_; }      // Length of a row; 1: elements.
  // Whether a draw of d sqrt(n) elements costs less than to look at all n one by one, as at rows, and says something.
  bool drawable(double d) const {
    const auto n = static_cast<double>(count_);
    return row_ == 1 && n > 128 * d * d && n * d * d >= 64;
  }
  std::uint64_t at(std::int64_t i) const;  // 0: no event (a result of 0, or one that is exact).
  void materialize();                      // Broadcast operands: pays where most keys are read.
  EventOrder order() const;                // It sorts where the arrays are.

 private:
  struct Operand {
    Operand(const Array& values, Format held);
    double at(std::int64_t i) const;  // In row-major order, whatever the strides.

    Array array;
    Format format;
    RoundTo held;
    bool contiguous;
    std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // Sizes and strides.
  };

  Array value_;
  std::vector<Operand> operands_;
  bool by_operands_ = false, exact_at_zero_ = false;
  std::int64_t count_ = 0, row_ = 1;
};

struct SharedEvents {
  // Row-major elements (or rows, of this length) of a node's result that share an event with another one, and which
  // event. Parallel.
  std::vector<std::uint32_t> elements, events;
  std::uint32_t count = 0;  // The number of events.
  std::int64_t row = 1;
};

SharedEvents shared_events(EventKeys keys);

// Weights w_i = |a_i| error_i of a functional's elements, summed over blocks of 16 and over tiles of those.
struct EventWeights {
  static constexpr std::int64_t kBlock = 16;

  EventWeights(std::int64_t count, std::int64_t tile);        // Tiles of so many elements, still to be weighed.
  EventWeights(const Array& cotangent, const Array& errors);  // All of a node's, row-major.

  // A tile, whose sum it returns, rounded up; different ones at a time.
  double weigh(std::int64_t index, std::span<const double> a, const double* errors);

  std::int64_t tile, tile_blocks;  // Elements and blocks of a tile.
  std::vector<double> totals;      // Each tile has one,
  std::vector<double> blocks;      // and by block, each tile's together.
};

// The factor by which sharing may enlarge the sum of squares of a functional with this cotangent, as a draw tells of d
// sqrt(n) elements in proportion to w_i. Events of weight w_g add at most X = sum w_g^2 to squares of at least S = (sum
// w)^2 / n; the draw expects d^2 / 2 X / S pairs of one event or more, so that X / S stays below the upper limit of
// that expectation (99%; 4.6 where there is no pair) over d^2 / 2. Infinite where weights are. Arrays are row-major.
double sharing_drawn(const EventKeys& keys, const EventWeights& weights, const Array& cotangent, const Array& errors,
                     double d);

// The same of the events of what was drawn, d sqrt(n) elements of n.
double sharing_of(std::span<const std::uint64_t> drawn, double d);

// The cotangent with each event's sum at its first element or row and 0 at its others. Elements that were joined by
// accident must not cancel: their event's size is at least the root of the squares.
Array merge_shared(const Array& cotangent, const SharedEvents& shared);

}  // namespace plumbline
