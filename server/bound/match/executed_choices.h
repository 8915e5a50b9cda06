// Choices that both executions made alike, and exact arithmetic makes otherwise: of equals, or of what a rounding to
// few bits made equal.
//
// What a program does next may have been written for the choice that was made: how many rows an expert takes is a shape
// of the trace, and the list of them a number that Python read. Both programs are compared on what both chose,
// whichever choice exact arithmetic would make; whether the choices were legal is asked of each execution by itself.
#pragma once

#include "server/bound/match/computed.h"

namespace plumbline {

// By program, the outcomes of its choices that the other's execution made too, whole or in parts. Empty where exact
// arithmetic makes all choices as the executions did, and where it makes one otherwise that only one of them made: then
// each program is left to its own exact choices. Choices that reach no tap do not count.
struct ExecutedChoices {
  Overrides target, reference;
};
ExecutedChoices executed_choices(const MatchSide& target, const MatchSide& reference);

}  // namespace plumbline
