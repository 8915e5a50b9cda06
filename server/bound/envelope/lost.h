// Taps of which no functional can say anything.
#pragma once

#include <cstddef>

#include "server/bound/envelope/probe.h"
#include "server/bound/replay/replay.h"

namespace plumbline {

// Whether the rounding of the tap's own result can move it by more than a tenth of its magnitude, whatever came before:
// an update that its weight swallows, a square that the format cannot hold. An envelope holds that rounding and others,
// so that no probe of this tap alone says anything at this `lambda` (Answer::vacuous). `replay` holds what the tap is
// computed from.
bool lost_in_own_rounding(const Graph& graph, const Replay& replay, const ProbeTap& tap, const Profile& profile,
                          double lambda);

}  // namespace plumbline
