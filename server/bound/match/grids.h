// Roundings to a grid of integers in the two programs of a pair (kernels/README.md, "Formats and grids").
//
// A grid that both programs have at one place, rounded in one way, is mathematics: its integer codes are decisions that
// both share (decisions.h). Where both round the same value, one to nearest and the other stochastically, the
// grid is a format: both are compared as if the value had not been rounded. So is a quantiser, which
// rounds to nearest or stochastically, of one program where the other has none at all; half a step, or a step if it is
// stochastic, is then freedom. Everything else is mathematics: another step, a floor that one program forgot.
#pragma once

#include "server/bound/match/computed.h"

namespace plumbline {

struct GridFormats {
  Passes target, reference;  // What is taken for formats hands on what was to be rounded.
  Freedoms target_freedoms, reference_freedoms;
};

// `settled`: nodes whose decisions the programs share, of either graph.
GridFormats match_grids(const MatchSide& target, const std::vector<bool>& target_settled, const MatchSide& reference,
                        const std::vector<bool>& reference_settled);

}  // namespace plumbline
