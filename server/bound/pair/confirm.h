// A second look at what mathematics failed, or could not answer: both programs in at least 100 bits.
//
// The bound of our fp64 replays' error (rho) is one of first order. In wide arithmetic (replay/wide_replay.h) that
// error is 2^-59 of what it was, so that the gap of two wide replays is mathematics, but for what items without a
// counterpart and open decisions are free to do, and for constants, which programs form in fp64 in different ways: half
// a unit of each in its last place is freedom too. An accusation that rests on such a gap is PROVEN; one whose cone is
// too large to be confirmed is not. No bits tell where a program stands that hangs on what is zero by mathematics: how
// far that moves it (zeros.h) is freedom as well.
#pragma once

#include "server/bound/pair/gap.h"

namespace plumbline {

// Asks those of `answers` again, parallel to `probes`, that failed, or that were lost in our own replay.
void confirm(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes, std::vector<Answer>* answers);

}  // namespace plumbline
