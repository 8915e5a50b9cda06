// Random draws that are not equal bit by bit: by content where one generator gave both, moved and scaled; what then no
// content settled by order. Both among those of one family and size.
//
// What a draw was drawn from is mathematics. Two normal draws are one, moved and scaled, and so are two uniform ones:
// the reference's takes the target's numbers at its own mean and deviation, or between its own ends, so that another
// distribution shows in what is computed from it, and 0.1 randn() is normal(0, 0.1).
#pragma once

#include "server/bound/match/computed.h"

namespace plumbline {

// Each returns whether there were any. `reference`'s replay is stale then.
bool match_draws_by_content(const MatchSide& target, const MatchSide& reference, Correspondence* found);
bool match_draws_by_order(const MatchSide& target, const MatchSide& reference, Correspondence* found);

}  // namespace plumbline
