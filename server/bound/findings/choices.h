// Choices among numbers (a largest element, places in an order) that the target's execution told.
#pragma once

#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

// Choices that no legal rounding explains, in the replay that follows the target's decisions. Looked at is, of each
// choice, the element whose number lies furthest from that which exact arithmetic chooses. Two numbers that lie
// further apart than rounding can hardly bridge (decided.h) may change places where a legal execution moves their
// difference that far: within its adjoint envelope, in the worst case or but for a probability of `alpha` over all
// choices. One sweep, where there are such.
std::vector<NodeId> illegal_choices(const Graph& graph, const Replay& followed, const Profile& profile, double alpha);

}  // namespace plumbline
