// Bare reference values: could a legal execution of the target's mathematics have given R?
//
// R was made by another program, of which nothing else is known: its order of sums, its formulas, its kernels. Two
// things are asked of |<x, R - M>|:
//
//   at most E          R is a legal rounding, by the envelope that any execution of the target's own trace keeps;
//   beyond kFormulas E it is not, under any reading of it that is legal: another mathematics.
//
// Between them R may come from another formula of the same mathematics: nothing is said. E counts one rounding of each
// operation of the target's trace, and sums in any order. A formula that rounds four times where the target rounds once
// (a product taken apart, a division by a rounded reciprocal, a fused operation taken in steps) has four times the
// squares, and so twice E. What that does not cover is tried by itself before anybody is accused (readings.h): other
// outcomes near ties, a variance in one pass, inputs that went through a narrower format, grids and overflows that the
// reference does not have, other draws (redrawn.h). Taps are compared as a whole, and in the patterns of questions.h.
#pragma once

#include "server/bound/input.h"
#include "server/bound/replay/decided.h"
#include "server/bound/value/readings.h"

namespace plumbline {

struct ValueSides {
  const std::vector<LeafValue>& leaves;
  const Replay& exact;     // It follows its own decisions.
  const Replay& followed;  // It follows the target's.
  const DecisionCheck& decisions;
  const Uncertainty& numbers;
};

bool has_values(const Graph& graph);

// Adds the answers `value` to bounds->findings, findings of the parts that are beyond their envelopes,
// bounds->value_patterns and bounds->value_reading.
void judge_values(const BoundsInput& input, const ValueSides& sides, Bounds* bounds);

}  // namespace plumbline
