// Values of taps: what the execution observed, what a replay says, what a bare reference states.
#pragma once

#include "server/bound/replay.h"

namespace plumbline {

Array observed_value(const GraphTap& tap);                        // Sum of weight * observed, tap's shape.
Array replayed_value(const GraphTap& tap, const Replay& replay);  // Sum of weight * node value.
Array reference_value(const GraphTap& tap);                       // Decoded; empty if there is none.
Format tap_format(const GraphTap& tap);                           // Of its first term.

double norm2(const Array& values);  // L2 norm; NaN if any element is NaN.
double norm2_difference(const Array& a, const Array& b);
bool all_finite(const Array& values);
bool bitwise_equal(const Array& a, const Array& b);  // By value and sign of zero; NaN equals NaN.
// Dot product, skipping elements whose weight is exactly 0 (0 * infinity = 0 there).
double dot(const Array& weights, const Array& values);

}  // namespace plumbline
