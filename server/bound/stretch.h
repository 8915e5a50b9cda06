// Elementwise stretches of a graph, evaluated tile by tile: what lies between the values that they read and the nodes
// asked for stays in the processor's caches and takes no memory. The optimizer's part of a step is made of them.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "server/bound/replay.h"

namespace plumbline {

// The elementwise nodes before some ends, all of one count of elements in one order.
struct Stretch {
  struct Step {
    NodeId node = 0;
    std::vector<std::size_t> inputs;  // Indices into `sources`, and beyond them into `steps`.
  };
  std::int64_t count = 0;         // Of elements of every step.
  std::vector<NodeId> sources;    // What the steps read: of `count` elements, or of one.
  std::vector<Step> steps;        // In topological order.
  std::vector<std::size_t> ends;  // By end asked for: its index as in Step::inputs.
};

// Back to leaves, to nodes that are not elementwise and to those whose consumers see a value from elsewhere, which
// `stop` tells. Empty: the ends are not all elementwise or leaves, and of one count, or too small to gain anything.
std::optional<Stretch> stretch_before(const Graph& graph, const std::vector<NodeId>& ends,
                                      const std::function<bool(NodeId)>& stop);

// Sets of ends that share a stretch, or one that lies in none.
struct StretchGroup {
  std::vector<std::size_t> members;  // Indices of sets.
  std::optional<Stretch> stretch;    // Its ends: the members', one after the other.
};
std::vector<StretchGroup> group_ends(const Graph& graph, const std::vector<std::vector<NodeId>>& sets,
                                     const std::function<bool(NodeId)>& stop);

// Elements [begin, begin + length) of a stretch.
struct Tile {
  std::int64_t begin = 0, length = 0;
  std::vector<Array> values;  // Of sources as consumers see them, then of steps as computed.

  // A row-major array's part; of one element: itself.
  Array of(const Array& whole) const;
};

std::int64_t count_tiles(std::int64_t elements);
inline std::int64_t count_tiles(const Stretch& stretch) { return count_tiles(stretch.count); }

// A stretch's tiles, evaluated when they are asked for, in exact arithmetic. Several may be at the same time. Refers to
// what it is made from.
class Tiles {
 public:
  Tiles(const Graph& graph, const Replay& replay, const Stretch& stretch);
  Tile tile(std::int64_t index) const;

 private:
  const Graph& graph_;
  const Stretch& stretch_;
  std::vector<LeafValue> sources_;
};

// body(index) for as many tiles, in parallel.
void for_each_index(std::int64_t tiles, const std::function<void(std::int64_t)>& body);
// body(index, tile) for all tiles, in parallel.
void for_each_tile(const Graph& graph, const Replay& replay, const Stretch& stretch,
                   const std::function<void(std::int64_t, const Tile&)>& body);

// What is to be seen of some nodes.
struct Look {
  std::vector<NodeId> ends;
  // Where the nodes end a stretch: its tiles, of which several may be shown at the same time. `ends`: the indices of
  // the nodes' values in the tile's.
  std::function<void(const Stretch&, std::int64_t index, const Tile&, std::span<const std::size_t> ends)> tile;
  std::function<void()> whole;  // Elsewhere.
};
// Shows all of them, each stretch once for all who look at it.
void look(const Graph& graph, const Replay& replay, const std::vector<Look>& looks);

}  // namespace plumbline
