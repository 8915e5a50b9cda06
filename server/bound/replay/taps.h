// Values of taps: what the execution observed, what a replay says, what a bare reference states.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/checks.h"
#include "server/bound/replay/tiles.h"

namespace plumbline {

std::vector<NodeId> nodes_of(const GraphTap& tap);  // The nodes of its terms.
bool is_observed(const GraphTap& tap);              // Nobody sent what a tap on a leaf that is known by name held.
Array observed_value(const GraphTap& tap);          // Sum of weight * observed, tap's shape. NaN: not observed.
Array replayed_value(const GraphTap& tap, const Replay& replay);  // Sum of weight * node value.
// The same where what was overridden counts: decisions that two programs share, and items that were matched.
Array seen_value(const GraphTap& tap, const Replay& replay);
// What was observed of `length` elements from `begin` on, row-major.
Array observed_part(const GraphTap& tap, std::int64_t begin, std::int64_t length);
Array weighted(Array term, double weight);  // weight * term
// Sum of weight * value, by term; all of one shape.
Array sum_of_terms(const GraphTap& tap, const std::vector<Array>& values);
Array reference_value(const GraphTap& tap);  // Decoded; empty if there is none.
Format tap_format(const GraphTap& tap);      // The format of its first term.

bool all_finite(const Array& values);
// Masks values some of which are infinite where the exact ones are, as masked scores are: 0 there and 1 elsewhere, in
// their shape. The mask is empty where all are finite, none is, one is no number, or the infinities are not the same.
Array common_infinities(const Array& observed, const Array& exact);
// Whether what was observed and what the replay says is finite all over.
struct FiniteTap {
  bool observed = false;
  std::vector<Later<bool>> exact_parts;  // There is one for each tile; none: it was not looked at.

  bool exact() const {
    return std::ranges::all_of(exact_parts, [](const Later<bool>& part) { return part.get(); });
  }
};
// By tap, of what was observed.
std::vector<FiniteTap> observed_finite(const Graph& graph);
// What finds out the rest, of the taps that are not `known` to be finite, where ranges do not tell it
// (finite_ranges.h); as long as it looks, all must stay where they are.
std::vector<Look> finite_looks(const Graph& graph, const Replay& replay, const std::vector<bool>& known,
                               std::vector<FiniteTap>* finite);

// Whether it holds of parts that are all of `count` elements, asked on the host from the first on as long as it does.
// They grow, so that few are asked for, and little where the first ones tell.
bool of_all_parts(std::int64_t count, const std::function<bool(std::int64_t begin, std::int64_t length)>& holds);

bool bitwise_equal(const LeafValue& a, const LeafValue& b);
bool bitwise_equal(const Array& a, const Array& b);  // Values and signs of zero are compared; NaN equals NaN.

}  // namespace plumbline
