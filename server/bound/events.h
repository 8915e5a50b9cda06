// Shared rounding events. A kernel that is given the same operands twice rounds twice alike: repeated rows, equal
// tokens, few distinct values in a 16-bit format. Such errors do not add in squares; their cotangents add first.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "server/bound/replay.h"

namespace plumbline {

// What tells a node's events apart: elements with equal operands, each as the node's format holds it (elementwise
// primitives), rows with equal operands (softmax and its logarithm), or elements with equal results (all others: equal
// rows give equal results).
class EventKeys {
 public:
  EventKeys(const Graph& graph, NodeId id, const std::vector<Array>& inputs, const Array& value);

  std::int64_t count() const { return count_; }  // Of elements or rows.
  std::int64_t row() const { return row_; }      // Length of a row; 1: elements.
  std::uint64_t at(std::int64_t i) const;        // 0: no event (a result of 0).
  void materialize();                            // Broadcast operands: pays where most keys are read.

 private:
  struct Operand {
    Operand(const Array& values, Format held);
    double at(std::int64_t i) const;  // In row-major order, whatever the strides.

    Array array;
    Format format;
    bool contiguous;
    std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // Sizes and strides.
  };

  Array value_;
  std::vector<Operand> operands_;
  bool by_operands_ = false;
  std::int64_t count_ = 0, row_ = 1;
};

struct SharedEvents {
  // Row-major elements (or rows, of this length) of a node's result that share an event with another one, and which
  // event. Parallel.
  std::vector<std::uint32_t> elements, events;
  std::uint32_t count = 0;  // Of events.
  std::int64_t row = 1;
};

SharedEvents shared_events(EventKeys keys);

// By how much sharing may enlarge the sum of squares of a functional with this cotangent, where a draw tells: 8 sqrt(n)
// elements in proportion to w_i = |a_i| error_i. Events of weight w_g add at most X = sum w_g^2 to squares of at least
// S = (sum w)^2 / n; the draw expects 32 X / S pairs of one event or more, so that X / S stays below the upper limit of
// that expectation (99%; 4.6 where there is no pair) over 32. Empty: the events must be looked at (many pairs, a small
// node, rows), which takes the memory of several results.
std::optional<double> sharing_drawn(const EventKeys& keys, const Array& cotangent, const Bound& error);

// The cotangent with each event's sum at its first element or row and 0 at its others. Elements that were joined by
// accident must not cancel: their event's size is at least the root of the squares.
Array merge_shared(const Array& cotangent, const SharedEvents& shared);

}  // namespace plumbline
