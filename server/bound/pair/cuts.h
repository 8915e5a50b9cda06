// Operations that lowering does not model, in the two programs of a pair (match/transplant.h): do both hand them the
// same mathematics, and do they give the same?
#pragma once

#include "server/bound/match/transplant.h"
#include "server/bound/pair/gap.h"

namespace plumbline {

// Adds findings of the inputs that differ, bounds->indifferent_call and bounds->unequal_call.
void compare_cuts(const BoundsInput& input, const PairReplays& replays, const Cuts& cuts, Bounds* bounds);

// The same of the parameters of random draws that are one: their distribution is mathematics.
void compare_draws(const BoundsInput& input, const PairReplays& replays, Bounds* bounds);

}  // namespace plumbline
