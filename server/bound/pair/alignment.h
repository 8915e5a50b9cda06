// Both programs of a pair along the graph: for people who read a verdict. No verdict rests on it.
//
// Each operation's result is compared with its counterpart's in exact arithmetic, on one copy of what the programs
// share. What our own replays' roundings, and items that are free, may make of a result is enclosed forwards
// (enclose/interval.h) at u = 2^-53: rigorous at every element, and though it grows along a network, still far below
// what a difference of mathematics makes.
#pragma once

#include "server/bound/pair/gap.h"

namespace plumbline {

// Fills bounds->alignment, where something of the pair was found that rounding does not explain; otherwise nothing is
// done. Comes after all that compares the two programs.
void align_programs(const BoundsInput& input, const PairReplays& replays, Bounds* bounds);

}  // namespace plumbline
