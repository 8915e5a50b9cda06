// What a replay takes, before it is begun.
#pragma once

#include <optional>

#include "server/lower/graph.h"

namespace plumbline {

// Multiplications, or operations as cheap, that one replay takes at least.
double replay_work(const Graph& graph);

// The work on the way to the taps that lies in operations that are modelled, and in others. For the others it is an
// estimate by their operands: a product of the two largest, or an elementwise operation where the shapes fit one.
struct CoveredWork {
  double audited = 0, opaque = 0;

  // In [0, 1]; 0 where there is no work.
  double opaque_share() const { return opaque > 0 ? opaque / (audited + opaque) : 0; }
};

// `kind`: of these taps alone.
CoveredWork covered_work(const Graph& graph, std::optional<TapKind> kind = std::nullopt);

}  // namespace plumbline
