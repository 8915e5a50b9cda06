// Elements that share a rounding event (server/bound/envelope/events.h), found by sorting: a backend's way, by its own
// loops. Where few draws tell that hardly any do, the host looks no further; a device sorts faster than it asks.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/array.h"
#include "kernels/ball/format.h"

namespace plumbline {

struct EventOperand {
  Array values;  // In the result's shape.
  Format held;   // What the kernel read is this, rounded to the format.
};

// All elements, or rows of `row` elements, those of one event together and in order.
struct EventOrder {
  Array keys;   // Falling. Equal ones are one event, and 0 is none.
  Array order;  // The element or row of each key.
  std::int64_t row = 1;
};

// An event is shared by elements with equal operands, or with equal results where no operand is named, or by rows with
// equal elements of the only operand. A result of 0 is no event. Both run on the backend that the calling thread
// computes on (kernels/operations.h).
EventOrder order_events(std::span<const EventOperand> operands, const Array& value, std::int64_t row);

// The cotangent with each event's sum at its first element or row and 0 at its others. Elements that were joined by
// accident must not cancel: their event's size is at least the root of the squares.
Array merge_events(const EventOrder& events, const Array& cotangent);

}  // namespace plumbline
