// Forward enclosures give centre and radius of every node, rounded up. They are tight inside one operation or a short
// elementwise segment and useless across a network (kernels/README.md, "Why adjoints and not intervals"), hence two
// uses:
//
// - between anchors (nodes whose observed value replaced the replay's), where it decides elementwise and PROVEN
//   whether each observed value is legal;
// - from the leaves to a scalar tap, as the plain interval bound that users know, for comparison only.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "server/bound/replay/replay.h"
#include "server/bound/replay/tiles.h"

namespace plumbline {

// Radius of what the replay computed at a node; empty: exactly zero. Exploded: it is not finite or exceeds a million
// times the node's largest value, and was given up.
struct Enclosure {
  Bound radius;
  Later<bool> exploded = false;
};

// Of nodes whose radii may still be on a device, whether they exploded. Node after node, each after those before it.
class Explosions {
 public:
  // Whether one of the nodes `before` exploded, which were added earlier, or the node by itself.
  static Later<bool> add(NodeId id, std::vector<NodeId> before, Later<bool> by_itself,
                         const std::shared_ptr<Explosions>& all);

 private:
  struct Open {
    NodeId id;
    std::vector<NodeId> before;
    Later<bool> by_itself;
  };
  std::vector<Open> open_;
  std::set<NodeId> exploded_;
};

// Encloses nodes when they are asked for, with what lies before them up to anchors and leaves, where the values that
// consumers saw are exact. A radius is given up after its last use, and so is what `replay` computed where consumers
// saw another value: every entry of `wanted` may be taken once. Refers to what it is made from.
class Enclosures {
 public:
  // `profile`: of the target's roundings. Null: our own replay's are enclosed. `freedoms`: by node, how far its
  // elements may lie elsewhere beside that; null: nowhere.
  Enclosures(const Graph& graph, const Replay& replay, const std::vector<NodeId>& wanted, const Profile* profile,
             const Overrides& anchors, const std::map<NodeId, Array>* freedoms = nullptr);
  Enclosure take(NodeId id);
  // In place of `take`: gives up the entry, and what lies before it alone.
  void leave(NodeId id);
  // What consumers read of the node is known without a radius, whatever lies before it: content of a leaf or an
  // anchor, or moved from there.
  bool exactly_seen(NodeId id) const;

 private:
  friend class EnclosedChain;

  bool anchored(NodeId id) const { return anchors_.count(id) != 0; }
  bool use(NodeId id);  // Whether it was the last time.
  // What the node's enclosure takes of others.
  std::vector<NodeId> taken_by(NodeId id) const;
  Enclosure compute(NodeId id);
  Enclosure compute(NodeId id, const TiledChain& chain);
  Bound freedom(NodeId id) const;
  bool looked_at(NodeId id) const;
  double overflows_beyond(NodeId id) const;
  // The rounding of an anchor that fused kernels may have left out before its consumers; empty: none.
  std::optional<Arithmetic> elidable(NodeId id) const;
  Bound unrounded(NodeId id, const Array& stored) const;
  Arithmetic arithmetic(NodeId id) const;
  Bound enclose(NodeId id, const std::vector<Array>& centres, const std::vector<Bound>& radii,
                const Array& value) const;

  const Graph& graph_;
  const Replay& replay_;
  const Profile* const profile_;
  const Overrides& anchors_;
  const std::map<NodeId, Array>* const freedoms_;
  std::vector<std::uint32_t> uses_;  // Each node has so many uses still to come, by consumers and as a wanted one.
  std::vector<bool> wanted_, known_;
  std::map<NodeId, TiledChain> chains_;  // Elementwise nodes with what lies before them and is not taken whole.
  std::vector<Enclosure> enclosures_;
  const std::shared_ptr<Explosions> explosions_;
};

// Nodes whose enclosure is taken whole, because something that is not elementwise reads it or a consumer spreads it, or
// because many elementwise nodes lie before it, or fewer that are read often. Others are enclosed tile by tile within
// chains, which end before these.
std::vector<bool> taken_whole(const Graph& graph);

// Sources of a chain that its enclosure takes: neither anchors nor leaves.
std::vector<NodeId> enclosed_sources(const Graph& graph, const TiledChain& chain, const Overrides& anchors);

// The same for a chain, tile by tile. Tiles may be asked for at the same time. Refers to what it is made from.
class EnclosedChain {
 public:
  EnclosedChain(const TiledChain& chain, Enclosures* enclosures);  // Takes its `enclosed_sources`.

  Tile tile(std::int64_t index);
  // Tells for each value, once every tile was asked for, whether its enclosure exploded. Then its radii say nothing.
  // `look_at_ends`: whether they are beyond use as a whole is asked of the ends, too; what lies between would make them
  // so.
  std::vector<bool> exploded(bool look_at_ends = true) const;

 private:
  ChainBalls balls(Enclosures* enclosures);

  const TiledChain& chain_;
  const Enclosures& enclosures_;
  std::vector<Later<bool>> lost_;  // Whether the enclosure of each source exploded.
  const Tiles tiles_;
  std::vector<Later<std::vector<Largest>>> largest_;  // Each tile has one for each step.
};

}  // namespace plumbline
