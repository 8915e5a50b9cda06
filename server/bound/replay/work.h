// What a replay takes, before it is begun.
#pragma once

#include "server/lower/graph.h"

namespace plumbline {

// Multiplications, or operations as cheap, that one replay takes at least.
double replay_work(const Graph& graph);

}  // namespace plumbline
