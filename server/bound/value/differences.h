// R - M, element by element: a bare reference value against the exact mathematics of the target's trace.
//
// Infinities and NaNs are compared in their pattern, and what is finite on both sides by its difference. Where the
// patterns part, a legal execution may still give both: a result near the end of its format's range overflows or does
// not, and a mask may be -inf or the most negative number. What is not finite in exact arithmetic on the very numbers
// that the step was given, and stays so wherever replays that round otherwise (Precision::kJittered) go, no rounding
// makes finite.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

struct ValueDifference {
  std::size_t tap = 0;
  Array reference, exact;  // R and M, in the tap's shape; 0 where one of them is not finite.
  Array difference;        // R - M; 0 there.
  Array mask;              // 0 where one of them is not finite, otherwise 1. Empty: all are finite.
  double norm = 0;         // The norm of the finite part of M.

  double relative() const;  // Norm of the difference over it.
};

// Where infinities and NaNs of R and M part.
struct PatternFinding {
  std::string tap;
  std::uint64_t element = 0, elements = 0;  // The first, and how many.
  double reference = 0, exact = 0;
  bool certain = false;  // No legal execution has R's pattern there.
};

struct ValueDifferences {
  std::vector<ValueDifference> taps;  // Those that have a bare reference value.
  std::vector<PatternFinding> patterns;
};

// `exact`: a replay of `graph` on `leaves`.
ValueDifferences value_differences(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& exact);

}  // namespace plumbline
