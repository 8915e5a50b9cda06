// Numbers that Python computed out of sight, after it had read some of the step's tensors (`x.item()`, float(x),
// `x.tolist()`), or numpy, which goes on in the format of the tensor that it read.
//
// The other program reads other roundings of the same values, and its Python then computes other numbers, without any
// difference of mathematics. From which reads a number was computed is not known. It is taken as known up to
// kAmplification times the largest relative error of the reads before it, against exact arithmetic on the leaves that
// both programs share: so far go products and quotients of four numbers that were read, and of squares of two. Where
// programs differ by more, at taps that such a number reaches, nothing is decided: Python may have branched, or
// subtracted what was nearly equal.
//
// Certain, and compared as mathematics, are numbers
//   - before which Python read nothing but what it read in the other program too, bit by bit, or what is exact;
//   - that the other program has too, bit by bit;
//   - of few decimal digits: written in the program's text, not computed from a tensor's element (of few binary digits,
//     too, they may come from an element of 16 bits);
//   - that are one of the other program's times a number of few digits: the part that was read is the same.
#pragma once

#include <map>

#include "server/bound/replay/replay.h"

namespace plumbline {

using Uncertainty = std::map<NodeId, double>;  // How far off the value of each constant may be.

// `exact`: a replay of `graph`. `other`: the program that it is compared with; null: a bare value's, of which nothing
// is known.
Uncertainty uncertain_numbers(const Graph& graph, const Replay& exact, const Graph* other);

// A number that Python computed out of sight, from other roundings than in the program that it is compared with.
struct UncertainNumber {
  NodeId node = 0;
  double value = 0, uncertainty = 0;
  bool in_reference = false;
};

void note_numbers(const Graph& graph, const Uncertainty& numbers, bool in_reference,
                  std::vector<UncertainNumber>* noted);

// Tells of each node whether an uncertain number reaches it.
std::vector<bool> reached_by(const Uncertainty& numbers, const Graph& graph);

}  // namespace plumbline
