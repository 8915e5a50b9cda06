// What a value that is zero by mathematics is measured by: the magnitudes of the terms that cancel in it.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

// Elements that no rounding moves (match/exact_elements.h), by node and in its shape: 0; empty: all of the node's.
using Unmoved = std::map<NodeId, Array>;

// Elementwise, in the node's shape: where the node adds, what its terms' magnitudes add up to, back through additions,
// what moves, chooses or scales their results, and magnitudes; elsewhere the value's own magnitude.
Array terms_magnitude(const Graph& graph, const Replay& replay, NodeId node);

// The same of many nodes, in ascending order: visit(node, terms) of each. Costs about a replay of what they depend on,
// without its products. What is `unmoved` is a term itself, of whatever it was added up.
void visit_terms(const Graph& graph, const Replay& replay, const std::vector<NodeId>& nodes, const Unmoved& unmoved,
                 const std::function<void(NodeId, const Array&)>& visit);

// The inputs whose terms make up the node's; empty: its value is a term itself.
std::vector<std::size_t> summands(const Graph& graph, const Node& node);

// The magnitude of a tap whose exact values have this norm: the norm or, where that is no more than some roundings of
// its terms, the terms' norm. It lies in [0, inf).
double tap_magnitude(const Graph& graph, const Replay& replay, const GraphTap& tap, double norm);

// The same of many taps, by index, back through products too: a product is zero by mathematics where a factor is, and
// is made of that one's terms times the other. A gradient on the way of one that is zero passes through a product with
// each layer's weights. Costs about a replay of what the taps depend on.
std::map<std::size_t, double> tap_magnitudes(const Graph& graph, const Replay& replay,
                                             const std::map<std::size_t, double>& norms);

}  // namespace plumbline
