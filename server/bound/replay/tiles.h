// Elementwise chains of a graph, evaluated tile by tile: what lies between the values that they read and the nodes
// asked for stays in the processor's caches and takes no memory. The optimizer's part of a step is made of them.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/chain.h"
#include "server/bound/replay/replay.h"

namespace plumbline {

// The elementwise nodes before some ends, all of one count of elements in one order.
struct TiledChain {
  struct Step {
    NodeId node = 0;
    std::vector<std::size_t> inputs;  // Indices into `sources`, and beyond them into `steps`.
  };
  std::int64_t count = 0;  // Every step has so many elements.
  std::vector<NodeId>
      sources;                // What the steps read: of `count` elements, of one, or of some that are spread over all.
  std::vector<Shape> spread;  // For each source, the shape that its elements are spread over; empty: they are not.
  std::vector<Step> steps;    // In topological order.
  std::vector<std::size_t> ends;  // Each end asked for is an index as in Step::inputs.
};

// Back to leaves, to nodes that are not elementwise and to those whose consumers see a value from elsewhere, which
// `stop` tells. Empty: the ends are not all elementwise or leaves, and of one count, or too small to gain anything.
std::optional<TiledChain> chain_before(const Graph& graph, const std::vector<NodeId>& ends,
                                       const std::function<bool(NodeId)>& stop);

// Sets of ends that share a chain, or one that lies in none.
struct ChainGroup {
  std::vector<std::size_t> members;  // Indices of sets.
  std::optional<TiledChain> chain;   // Its ends: the members', one after the other.
};
std::vector<ChainGroup> group_ends(const Graph& graph, const std::vector<std::vector<NodeId>>& sets,
                                   const std::function<bool(NodeId)>& stop);

// Elements [begin, begin + length) of a chain.
struct Tile {
  std::int64_t begin = 0, length = 0;
  std::vector<Array> ends;   // Sources as consumers see them, steps as computed.
  std::vector<Bound> radii;  // There is one for each end where ends are enclosed; an empty one is exactly zero.
  // There is one for each step where steps are enclosed.
  Later<std::vector<Largest>> largest = std::vector<Largest>();
};

std::int64_t count_tiles(std::int64_t elements);
// What a Look is shown of so many elements: tiles, or all at once.
inline std::size_t count_parts(std::int64_t elements) {
  return static_cast<std::size_t>(std::max<std::int64_t>(1, count_tiles(elements)));
}
inline std::int64_t count_tiles(const TiledChain& chain) { return count_tiles(chain.count); }

// Radii of a chain's sources, and the arithmetic whose roundings its steps' enclosures take.
struct ChainBalls {
  struct Source {
    Bound radii;                          // Empty: exactly zero.
    std::optional<Arithmetic> unrounded;  // In place of radii: a rounding that its consumers may not have seen.
  };
  std::vector<Source> sources;
  std::vector<Arithmetic> steps;
};

// A chain's tiles, evaluated when they are asked for, in exact arithmetic. Several may be at the same time. Refers to
// what it is made from.
class Tiles {
 public:
  Tiles(const Graph& graph, const Replay& replay, const TiledChain& chain, ChainBalls balls = {});
  // `into`: by step that is an end, in the ends' order, an array of all elements, row-major, to which it writes its
  // values. None: they have memory of their own.
  Tile tile(std::int64_t index, std::span<const Array> into = {}) const;

 private:
  const TiledChain& chain_;
  std::vector<LeafValue> sources_;  // Of those that are spread, a view over all elements.
  ChainBalls balls_;
  Chain code_;
};

// body(index) for as many tiles, in parallel.
void for_each_index(std::int64_t tiles, const std::function<void(std::int64_t)>& body);

// body(part, begin, length) for the count_parts() parts of so many elements, several at a time; on a device part 0 is
// all of them.
void for_each_part(std::int64_t elements,
                   const std::function<void(std::size_t part, std::int64_t begin, std::int64_t length)>& body);

// What is to be seen of some nodes.
struct Look {
  std::vector<NodeId> ends;
  // Where the nodes end a chain: its tiles, of which several may be shown at the same time. `ends`: the nodes'
  // values, each followed by those of its operands as it sees them if those are asked for, too.
  std::function<void(std::int64_t index, const Tile&, std::span<const Array> ends)> tile;
  std::function<void()> whole;  // Elsewhere.
  bool operands = false;
  bool sampled = false;  // Some tiles will do: those that `sampled` tells.
};
// Whether a tile is among the kSampledTiles that stand for all, at equal distances.
inline constexpr std::int64_t kSampledTiles = 8;
inline bool sampled(std::int64_t index, std::int64_t tiles) {
  return tiles <= kSampledTiles || index * kSampledTiles / tiles != (index + 1) * kSampledTiles / tiles;
}
// Shows all of them, each chain once for all who look at it.
void look(const Graph& graph, const Replay& replay, const std::vector<Look>& looks);

}  // namespace plumbline
