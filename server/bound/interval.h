// Forward enclosures: centre and radius of every node, rounded up. Tight inside one operation or a short elementwise
// segment, useless across a network (NUMERICS section 2), hence two uses:
//
// - between anchors (nodes whose observed value replaced the replay's), where it decides elementwise and PROVEN
//   whether each observed value is legal;
// - from the leaves to a scalar tap, as the plain interval bound that users know, for comparison only.
#pragma once

#include <vector>

#include "server/bound/replay.h"

namespace plumbline {

struct Enclosures {
  // Radius of what the replay computed at a node, by node; empty: exactly zero.
  std::vector<Bound> radii;
  // Nodes whose radius is not finite or exceeds a million times their largest value: given up there.
  std::vector<bool> exploded;
  std::vector<bool> visited;
};

// Encloses the nodes in `wanted` (closed under inputs up to anchors by this function). The values that consumers saw
// are exact at anchors and leaves.
Enclosures enclose(const Graph& graph, const Replay& replay, const std::vector<NodeId>& wanted, const Profile& profile,
                   const Overrides& anchors);

}  // namespace plumbline
