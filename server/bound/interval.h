// Forward enclosures: centre and radius of every node, rounded up. Tight inside one operation or a short elementwise
// segment, useless across a network (NUMERICS section 2), hence two uses:
//
// - between anchors (nodes whose observed value replaced the replay's), where it decides elementwise and PROVEN
//   whether each observed value is legal;
// - from the leaves to a scalar tap, as the plain interval bound that users know, for comparison only.
#pragma once

#include <vector>

#include "server/bound/replay.h"
#include "server/bound/stretch.h"

namespace plumbline {

// Radius of what the replay computed at a node; empty: exactly zero. Exploded: it is not finite or exceeds a million
// times the node's largest value, and was given up.
struct Enclosure {
  Bound radius;
  bool exploded = false;
};

// Encloses nodes when they are asked for, with what lies before them up to anchors and leaves, where the values that
// consumers saw are exact. A radius is given up after its last use: every entry of `wanted` may be taken once. Refers
// to what it is made from.
class Enclosures {
 public:
  Enclosures(const Graph& graph, const Replay& replay, const std::vector<NodeId>& wanted, const Profile& profile,
             const Overrides& anchors);
  Enclosure take(NodeId id);

 private:
  bool anchored(NodeId id) const { return anchors_.count(id) != 0; }
  void use(NodeId id);
  Enclosure compute(NodeId id);

  const Graph& graph_;
  const Replay& replay_;
  const Profile& profile_;
  const Overrides& anchors_;
  std::vector<std::uint32_t> uses_;  // By node: still to come, of consumers and wanted ones.
  std::vector<bool> known_;
  std::vector<Enclosure> enclosures_;
};

// Sources of a stretch that `enclose_stretch` takes: neither anchors nor leaves.
std::vector<NodeId> enclosed_sources(const Graph& graph, const Stretch& stretch, const Overrides& anchors);

// The same for a stretch, whose tiles are given to `body` with the radii of their values. Returns by value whether it
// exploded: then its radii say nothing.
std::vector<bool> enclose_stretch(
    const Graph& graph, const Replay& replay, const Stretch& stretch, const Profile& profile, const Overrides& anchors,
    Enclosures* enclosures, const std::function<void(std::int64_t, const Tile&, const std::vector<Bound>&)>& body);

}  // namespace plumbline
