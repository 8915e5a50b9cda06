// Results of opaque calls that reach no tap: memory that nobody wrote, which an operation then overwrites whole.
#pragma once

#include <set>

#include "server/bound/replay/replay.h"

namespace plumbline {

// The calls of which some output's element is handed on to a tap, as the replay's choices and indices go; those that
// take something count wherever a tap depends on them. What is computed from such an element counts as it, whatever it
// is multiplied with.
std::set<const OpaqueCall*> calls_that_reach_taps(const Graph& graph, const Replay& replay);

}  // namespace plumbline
