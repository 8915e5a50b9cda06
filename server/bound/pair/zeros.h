// What of a program hangs on values that are zero by mathematics.
//
// Such a value, a sum whose terms cancel entirely, comes out as what the roundings of its terms leave, in fp64 and in
// any number of bits. Where a function is continuous that is nothing. Where one jumps (an order of elements, a sign
// that is copied, a remainder, an angle at its cut, a quotient by its own magnitude) the program's result is not given
// by its mathematics, and two executions of one program may differ by the whole jump. Decisions that both programs take
// are matched (match/decisions.h); this is for whatever jumps, whether we know of it or not: an accusation asks whether
// it would stand had these values come out with other signs.
//
// What is exactly zero has one sign in mathematics and two in floating point: -(a - b) is b - a. Where something tells
// them apart (an angle at its cut, the infinity that a quotient is), two programs are compared as if no -0 had been
// computed.
#pragma once

#include "server/bound/input.h"
#include "server/bound/pair/gap.h"

namespace plumbline {

// How far the functionals go, of those that were tried, when values that are zero by mathematics take other signs: by
// probe, absolute. The probes are of the graph's taps, `overrides` those that `replay` was made with, `shared`
// decisions that stay as they are, by node.
std::vector<double> moved_by_zeros(const Graph& graph, const Replay& replay, const std::vector<LeafValue>& leaves,
                                   const Overrides& overrides, const std::vector<bool>& shared,
                                   const std::vector<Probe>& probes);

// How far the functionals go, signed, when what was computed as -0 comes out as 0 wherever something tells these apart.
std::vector<double> moved_by_negative_zeros(const Graph& graph, const Replay& replay,
                                            const std::vector<LeafValue>& leaves, const Overrides& overrides,
                                            const std::vector<bool>& shared, const std::vector<Probe>& probes);

// What the replay has for -0 wherever something tells it from 0, with 0 in its place.
Overrides without_negative_zeros(const Graph& graph, const Replay& replay);

}  // namespace plumbline
