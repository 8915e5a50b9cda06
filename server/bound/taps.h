// Values of taps: what the execution observed, what a replay says, what a bare reference states.
#pragma once

#include "server/bound/replay.h"

namespace plumbline {

Array observed_value(const GraphTap& tap);                        // Sum of weight * observed, tap's shape.
Array replayed_value(const GraphTap& tap, const Replay& replay);  // Sum of weight * node value.
Array reference_value(const GraphTap& tap);                       // Decoded; empty if there is none.
Format tap_format(const GraphTap& tap);                           // Of its first term.

bool all_finite(const Array& values);
bool bitwise_equal(const Array& a, const Array& b);  // By value and sign of zero; NaN equals NaN.

}  // namespace plumbline
