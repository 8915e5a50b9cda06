// Plain forward intervals of scalar taps. No verdict reads them, they only stand beside it for comparison.
#pragma once

#include "server/bound/bounds.h"
#include "server/bound/replay/replay.h"

namespace plumbline {

// Of the findings about one scalar whose value the replay has; steps of many elements do without.
void add_plain_intervals(const Graph& graph, const Replay& replay, const Profile& profile, Bounds* bounds);

}  // namespace plumbline
