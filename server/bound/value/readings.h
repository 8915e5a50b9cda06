// Other ways in which a reference of the same mathematics may have come to its values: exact replays of the target's
// trace under another reading of what it was given or decided. What R agrees with under one reading as a whole is
// rounding, or a policy of precision, and no bug.
//
//   its own decisions     where the target's rounding turned a comparison, exact arithmetic's outcome;
//   no overflow           what asked whether a format overflowed found none: the reference's formats are wider;
//   no grid               a quantiser's rounding to nearest, or by chance, is left out: the reference has none
//   (grids.h); narrow parameters     parameters, or all that the step was given, went through bf16 or fp16.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/bound/input.h"
#include "server/bound/replay/decided.h"

namespace plumbline {

struct Reading {
  std::string words;                   // "if its parameters went through bf16"
  bool policy = false;                 // It differs by what is rounded.
  Format format = Format::kUnknown;    // To which.
  std::function<Replay()> replayed;    // Empty: it changes nothing.
  std::shared_ptr<const Graph> graph;  // What it computes and rounds, where that is another graph than the target's.
};

// Those that apply to the graph, the most likely first. Replays when they are asked for; refers to everything.
std::vector<Reading> other_readings(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& exact,
                                    const DecisionCheck& decisions);

// What else may be the reason of a deviation that no formula explains. Each by itself.
struct Excuse {
  std::string words;
  Freedoms freedoms;              // What is added to the target's own roundings,
  std::optional<Graph> narrowed;  // or the target in the formats of the reference, as it may be.
};

// Open decisions: comparisons, roundings to integers and choices whose operands lie within rounding of a tie may come
// out otherwise in another program (match/decisions.h).
//
// One-pass variance: mean(x^2) - mean(x)^2 has the error of its terms, each at most (4 sqrt(n) + 4) u mean^2 beyond
// what sum((x - mean)^2) / n has (of the n roundings of a running sum in squares, four deviations), and moves r = 1 /
// sqrt(v + eps) by r^3 / 2 times that.
//
// Random numbers: a draw is a + (b - a) u or m + s z, and has the roundings of its largest values wherever it lies.
//
// Given digits: a leaf on the grid of bf16 or fp16 may have been rounded to it, and the reference given what it was.
//
// Narrower formats: where the target computes or is given anything in bf16, fp16 or fp32, or R holds nothing that these
// do not, the reference may hold in them what the target holds in a finer one.
std::vector<Excuse> excuses(const Graph& graph, const Replay& followed);

// Whether a tap that is no float (an index, a count) hangs on what floats decided.
bool decided_by_floats(const Graph& graph, const GraphTap& tap);
// Whether it goes on from what an operation that is not modelled gave in the target.
bool behind_opaque(const Graph& graph, const GraphTap& tap);

}  // namespace plumbline
