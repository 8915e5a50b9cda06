// Values that two programs have in common: value numbering (Alpern, Wegman, Zadeck 1988) over two graphs at once.
//
// A node is congruent to a place in the other program if the same primitive makes it of congruent operands. Where that
// works row by row, fewer rows do: what a micro-batch computes is some rows of what the whole batch does. A leaf is
// what holds the same content. Casts of floating-point numbers, which exact arithmetic ignores, and windows on elements
// that lie side by side are a place in their operand.
//
// What is computed otherwise, and is the same bit by bit all the same, is taken for congruent, too: the gradient of the
// mean over half of a batch, halved, is that of the whole. Such values may differ by less than fp64 tells; so may the
// replays of one program.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

class Congruence {
 public:
  // Refers to all. `known`: an exact replay of `known_graph` on these leaves; `leaves`: those of
  // `graph`.
  Congruence(const Graph& known_graph, const std::vector<LeafValue>& known_leaves, const Replay& known,
             const Graph& graph, const std::vector<LeafValue>& leaves);

  // To be called by the exact replay of `graph`, of every node that it needs, in order. Returns the node's value where
  // the other replay holds it, row-major, in memory that both share; otherwise empty.
  Array held(NodeId id);
  // What was computed at a node of which `held` had nothing.
  void computed(NodeId id, const Array& value);

  // By node: all of its value is the other program's, too.
  std::vector<bool> common_of_known() const;
  std::vector<bool> common() const;

 private:
  // The value lies in that of a node of the known graph, row-major, from `offset` on.
  struct Place {
    NodeId node = 0;
    std::int64_t offset = 0;
  };
  using Places = std::vector<std::optional<Place>>;
  struct Side {
    const Graph& graph;
    const std::vector<LeafValue>& leaves;
    Places places;
    std::map<NodeId, std::size_t> leaf_of;  // Index into `leaves`.
  };

  static std::uint64_t hash_of(const Side& side, const Node& node);
  std::optional<Place> find(const Side& side, NodeId id) const;
  std::optional<Place> find_leaf(const Side& side, NodeId id) const;
  std::optional<Place> find_assembled(const Side& side, const Node& node) const;
  Place place_in(NodeId numbered, std::int64_t offset) const {
    const Place of = *known_side_.places[numbered];
    return {of.node, of.offset + offset};
  }
  // Where the node is some rows of one that is numbered: from which element on.
  std::optional<std::int64_t> rows_of(const Side& side, const Node& node, NodeId numbered) const;
  // `apart`: so far do their operands' places lie apart.
  std::optional<std::int64_t> rows_of_window(const Node& node, std::int64_t apart, NodeId numbered) const;
  std::optional<std::int64_t> rows_of_assembled(const Side& side, const Node& node, NodeId numbered) const;
  // By its bits. Not on a device, which would be waited for each time.
  std::optional<Place> find_content(const Side& side, const Node& node, const Array& computed) const;
  bool holds(Place place, const Array& value) const;
  std::int64_t size_of(NodeId numbered) const { return count(known_graph_.nodes[numbered].shape); }

  const Graph& known_graph_;
  const Replay& known_;
  Side known_side_, side_;
  std::vector<std::int64_t> periods_;  // By node of the known graph: its elements repeat after so many; 0: they do not.
  std::unordered_multimap<std::uint64_t, NodeId> numbered_;   // By primitive and places of operands.
  std::unordered_multimap<std::uint64_t, NodeId> leaves_;     // By what they begin with.
  std::unordered_multimap<std::uint64_t, NodeId> batches_;    // Leaves of data, by what a row of them is.
  std::unordered_multimap<std::uint64_t, NodeId> contents_;   // By some elements.
  std::unordered_multimap<std::uint64_t, NodeId> consumers_;  // By primitive and place of an operand.
};

}  // namespace plumbline
