// What no rounding can change: an interval in which every legal execution's values of a node lie.
//
// Centre and radius forget that max(x, 0) is never negative; a guard must not. Only facts that survive any faithful
// rounding (one that keeps a number which the format holds) are used: the sign of sums, products and functions whose
// error is relative, limits of sums that the format holds, those of a clamp and of functions whose range the profile
// promises (a device's cosine may leave [-1, 1]), and what movement hands on. Everything else is unbounded.
#pragma once

#include <limits>
#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

struct Interval {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

// The range of each node; those on which `wanted` does not depend are unbounded. Leaves' contents are taken from
// `replay`.
std::vector<Interval> certain_ranges(const Graph& graph, const Replay& replay, const std::vector<NodeId>& wanted,
                                     const Profile& profile);

}  // namespace plumbline
