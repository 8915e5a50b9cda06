// Shared rounding events. A kernel that is given the same operands twice rounds twice alike: repeated rows, equal
// tokens, few distinct values in a 16-bit format. Such errors do not add in squares; their cotangents add first.
#pragma once

#include <cstdint>
#include <vector>

#include "server/bound/replay.h"

namespace plumbline {

struct SharedEvents {
  // Row-major elements (or rows, of this length) of a node's result that share an event with another one, and which
  // event. Parallel.
  std::vector<std::uint32_t> elements, events;
  std::uint32_t count = 0;  // Of events.
  std::int64_t row = 1;
};

// Elements with equal operands, each as the node's format holds it (elementwise primitives), rows with equal operands
// (softmax and its logarithm), or elements with equal results (all others: equal rows give equal results). Results that
// are 0 have no event.
SharedEvents shared_events(const Graph& graph, NodeId id, const std::vector<Array>& inputs, const Array& value);

// The cotangent with each event's sum at its first element or row and 0 at its others. Elements that were joined by
// accident must not cancel: their event's size is at least the root of the squares.
Array merge_shared(const Array& cotangent, const SharedEvents& shared);

}  // namespace plumbline
