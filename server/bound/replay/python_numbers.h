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
//   - before which Python read nothing but what it read in the other program too, bit by bit, or what is exact, unless
//     the number has no more digits than fp32, in which numpy may have computed it, and is none that was read;
//   - that the other program has too, bit by bit;
//   - of few decimal digits: written in the program's text, not computed from a tensor's element (of few binary digits,
//     too, they may come from an element of 16 bits);
//   - that are one of the other program's times a number of few digits: the part that was read is the same.
#pragma once

#include <map>
#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

// By how many numbers Python had read, the largest relative error of these reads against what the other program may
// have read in their place: 0 where it read the same bits, or what is exact.
std::vector<double> read_errors(const Graph& graph, const Replay& exact, const Graph* other);

// So far may a number lie from the mathematics of what was read, relative to it.
inline constexpr double kAmplification = 4;

using Uncertainty = std::map<NodeId, double>;  // How far off each constant, or a node's number, may be.

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

// Tells of each node whether one of those comes into it.
std::vector<bool> reached_by(const std::vector<NodeId>& from, const Graph& graph);

}  // namespace plumbline
