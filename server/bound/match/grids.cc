#include "server/bound/match/grids.h"

#include <cmath>
#include <optional>
#include <set>

#include "kernels/sums.h"
#include "server/bound/match/transplant.h"

namespace plumbline {
namespace {

enum class GridRounding : std::uint8_t { kNearest, kDirected, kStochastic };

struct Grid {
  NodeId node = 0;
  GridRounding rounding = GridRounding::kNearest;
  NodeId rounded = 0;  // What was to be rounded.
};

// What lies before movement and casts.
NodeId source_of(const Graph& graph, NodeId id) {
  while (graph.nodes[id].primitive == Primitive::kWindow || graph.nodes[id].primitive == Primitive::kCast)
    id = graph.nodes[id].inputs[0];
  return id;
}

// floor(y + draw) rounds y stochastically, and floor(y + 1/2) to nearest.
Grid grid_of(const Graph& graph, NodeId id, const std::set<NodeId>& random) {
  const Node& node = graph.nodes[id];
  Grid grid{id, node.primitive == Primitive::kRound ? GridRounding::kNearest : GridRounding::kDirected, node.inputs[0]};
  const Node& sum = graph.nodes[node.inputs[0]];
  if (node.primitive != Primitive::kFloor || sum.primitive != Primitive::kAdd) return grid;
  for (const std::size_t i : {0, 1}) {
    const NodeId added = source_of(graph, sum.inputs[i]), rest = sum.inputs[1 - i];
    if (graph.nodes[rest].shape != node.shape) continue;
    const Node& term = graph.nodes[added];
    if (random.count(added) != 0) return {id, GridRounding::kStochastic, rest};
    if (term.primitive == Primitive::kConstant && term.attributes.scalar == 0.5)
      return {id, GridRounding::kNearest, rest};
  }
  return grid;
}

std::vector<Grid> open_grids(const MatchSide& side, const std::vector<bool>& settled) {
  std::set<NodeId> random;
  for (const GraphLeaf& leaf : side.graph.leaves)
    if (leaf.role == LeafRole::kRandom) random.insert(leaf.node);
  const std::vector<bool> used = used_by_taps(side.graph);
  std::vector<Grid> grids;
  for (NodeId id = 0; id < side.graph.nodes.size(); ++id) {
    const Node& node = side.graph.nodes[id];
    const bool rounds = node.primitive >= Primitive::kFloor && node.primitive <= Primitive::kTrunc;
    if (rounds && used[id] && !settled[id] && side.replay.has(id) && is_float(side.graph.nodes[node.inputs[0]].result))
      grids.push_back(grid_of(side.graph, id, random));
  }
  return grids;
}

// Whether both were to round the same value: to some 2^-30 of its size, where a code is 1.
bool one_value(const Array& a, const Array& b) {
  if (a.count() != b.count()) return false;
  return norm2_difference(a, b) <= 0x1p-30 * std::fmax(norm2(b), 1);
}

}  // namespace

GridFormats match_grids(const MatchSide& target, const std::vector<bool>& target_settled, const MatchSide& reference,
                        const std::vector<bool>& reference_settled) {
  const std::vector<Grid> ours = open_grids(target, target_settled), theirs = open_grids(reference, reference_settled);
  GridFormats formats;
  std::vector<bool> our_turn(ours.size(), true), their_turn(theirs.size(), true);
  for (std::size_t t = 0; t < ours.size(); ++t)
    for (std::size_t r = 0; r < theirs.size(); ++r) {
      if (!their_turn[r] || ours[t].rounding == theirs[r].rounding) continue;
      if (ours[t].rounding == GridRounding::kDirected || theirs[r].rounding == GridRounding::kDirected) continue;
      if (!one_value(target.replay.value(ours[t].rounded), reference.replay.value(theirs[r].rounded))) continue;
      our_turn[t] = their_turn[r] = false;
      formats.target[ours[t].node] = ours[t].rounded;
      formats.reference[theirs[r].node] = theirs[r].rounded;
      break;
    }
  if (!formats.target.empty()) return formats;

  // Quantisers of a program whose counterpart has no grid at all.
  const auto alone = [](const MatchSide& side, const std::vector<Grid>& grids, const std::vector<Grid>& others,
                        Passes* passes, Freedoms* freedoms) {
    if (!others.empty()) return;
    for (const Grid& grid : grids) {
      if (grid.rounding == GridRounding::kDirected) continue;
      (*passes)[grid.node] = grid.rounded;
      const double step = grid.rounding == GridRounding::kNearest ? 0.5 : 1;
      freedoms->emplace(grid.node, Array::full(side.graph.nodes[grid.node].shape, step));
    }
  };
  alone(target, ours, theirs, &formats.target, &formats.target_freedoms);
  alone(reference, theirs, ours, &formats.reference, &formats.reference_freedoms);
  return formats;
}

}  // namespace plumbline
