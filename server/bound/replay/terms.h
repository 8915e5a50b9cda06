// What a value that is zero by mathematics is measured by: the magnitudes of the terms that cancel in it.
#pragma once

#include <map>

#include "server/bound/replay/replay.h"

namespace plumbline {

// Elementwise, in the node's shape: where the node adds, what its terms' magnitudes add up to, back through additions,
// what moves or scales their results, and magnitudes; elsewhere the value's own magnitude.
Array terms_magnitude(const Graph& graph, const Replay& replay, NodeId node);

// The magnitude of a tap whose exact values have this norm: the norm or, where that is no more than some roundings of
// its terms, the terms' norm. It lies in [0, inf).
double tap_magnitude(const Graph& graph, const Replay& replay, const GraphTap& tap, double norm);

// The same of many taps, by index, back through products too: a product is zero by mathematics where a factor is, and
// is made of that one's terms times the other. A gradient on the way of one that is zero passes through a product with
// each layer's weights. Costs about a replay of what the taps depend on.
std::map<std::size_t, double> tap_magnitudes(const Graph& graph, const Replay& replay,
                                             const std::map<std::size_t, double>& norms);

}  // namespace plumbline
