// Products that nobody reads but a gradient's tap, and the optimizer, which is judged from what was observed of them:
// the gradients of weights, a third of all products of a training step and what takes most memory of its replay.
#pragma once

#include <map>
#include <vector>

#include "server/lower/graph.h"

namespace plumbline {

// The tap's observed values are those of a product, [m, n], in its own shape.
struct TappedProduct {
  std::size_t tap = 0;      // Index into Graph::taps.
  bool transposed = false;  // The tap has the product's columns as its first dimension.

  // What was observed, in the product's shape. A view of what is decoded each time.
  Array observed(const Graph& graph, const Node& product) const;
};

// By the product's node. Its rounding is that of its sums alone: it is held in the format that it is added up in. What
// else of the graph depends on it is elementwise or moves elements, ends in taps, and no decision or read of a number
// is among it.
using TappedProducts = std::map<NodeId, TappedProduct>;
TappedProducts tapped_products(const Graph& graph);

// Without those that some of `asked` (indices into Graph::taps) depends on, but for a product's own tap.
TappedProducts not_asked(const Graph& graph, TappedProducts products, const std::vector<std::size_t>& asked);

}  // namespace plumbline
