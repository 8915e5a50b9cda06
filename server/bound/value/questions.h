// What is asked of R - M: functionals of the taps that have a bare reference value.
//
// Every tap is asked as a whole, by random signs (probe.h); of the taps that are furthest off, also what bugs look
// like: a common factor (weights M / |M|^2), a common shift, one row or column in random signs and by its own factor,
// single elements. A functional along a pattern sums the roundings of its n elements in squares, and the deviation
// itself whole, so that it tells a common factor that is sqrt(n) times smaller than random signs tell.
//
// Which functionals are asked is chosen by the difference itself, by its size alone. All that could have been chosen
// count as tests (Boole's inequality), so that the choice costs no soundness: if each functional of a finite family
// exceeds its envelope with a probability of at most alpha / N in legal executions, any choice among them does with at
// most alpha.
#pragma once

#include "server/bound/envelope/probe.h"
#include "server/bound/value/differences.h"

namespace plumbline {

struct ValueQuestion {
  Probe probe;
  std::string pattern;         // In words, of a part: "a common factor"; empty: the taps as a whole.
  double deviation = 0;        // <x, R - M>
  double storage = 0;          // What storing R in its format may have moved it: in the worst case,
  double storage_squares = 0;  // and by chance, one event an element.
};

struct ValueQuestions {
  std::vector<ValueQuestion> asked;
  double tests = 0;  // Among how many they were chosen.
};

// `seed`: of the signs; drawn after R is fixed.
ValueQuestions questions_of_taps(const Graph& graph, const Replay& exact, const std::vector<ValueDifference>& taps,
                                 std::uint64_t seed);
ValueQuestions questions_of_parts(const Graph& graph, const std::vector<ValueDifference>& taps, std::uint64_t seed);

// The same question of other differences of the same taps.
ValueQuestion asked_of(ValueQuestion question, const Graph& graph, const std::vector<ValueDifference>& taps);

}  // namespace plumbline
