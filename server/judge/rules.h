// What the rules of a verdict share (judge.cc has their order): words, and how a rule decides.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "server/judge/judge.h"

namespace plumbline::judging {

inline std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
}
// A factor between programs, which may lie near 1.
inline std::string factor(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

inline std::string joined(const std::vector<std::string>& items, std::size_t most = 4) {
  std::string text;
  for (std::size_t i = 0; i < std::min(items.size(), most); ++i) text += (i == 0 ? "" : ", ") + items[i];
  if (items.size() > most) text += " and " + std::to_string(items.size() - most) + " more";
  return text;
}

inline std::string at(const Place& place) { return place.op + (place.source.empty() ? "" : " (" + place.source + ")"); }

// Sets what decided: outcome, grade, cause, the sentence, and the answer that the margin speaks of.
inline void decide(Verdict* verdict, Outcome outcome, Grade grade, Cause cause, std::string sentence,
                   const Finding* finding = nullptr, const Answer* answer = nullptr) {
  verdict->outcome = outcome;
  verdict->grade = grade;
  verdict->cause = cause;
  verdict->sentence = std::move(sentence);
  if (finding != nullptr) verdict->deciding_tap = finding->name;
  if (answer != nullptr) {
    verdict->deviation = answer->deviation;
    verdict->envelope = answer->envelope;
    verdict->margin = answer->margin();
  }
}

// The finding with the largest margin among those whose answer `pick` satisfies `when`; null if none.
template <class Pick, class When>
const Finding* worst(const Bounds& bounds, Pick pick, When when) {
  const Finding* result = nullptr;
  for (const Finding& finding : bounds.findings)
    if (when(pick(finding)) && (result == nullptr || !(pick(finding).margin() <= pick(*result).margin())))
      result = &finding;
  return result;
}

inline const Answer& execution(const Finding& finding) { return finding.execution; }
inline const Answer& mathematics(const Finding& finding) { return finding.mathematics; }
inline const Answer& value(const Finding& finding) { return finding.value; }
inline bool failed(const Answer& answer) { return answer.failed(); }
inline bool disproved(const Answer& answer) { return answer.disproved(); }
inline bool asked(const Answer& answer) { return answer.asked; }
inline bool vacuous(const Answer& answer) { return answer.vacuous(); }
inline bool lost_in_replay(const Answer& answer) { return answer.vacuous() && answer.python == 0; }
inline bool turned(const Answer& answer) { return answer.passed() && answer.by_jumps; }
inline bool lost_in_python(const Answer& answer) { return (answer.vacuous() || answer.failed()) && answer.python > 0; }

// The grade of an answer whose envelope is not an enclosure.
inline Grade grade_of(const Answer& answer) { return answer.statistical() ? Grade::kStatistical : Grade::kFirstOrder; }

// mathematics.cc: what compares two programs. Each returns whether it decided.
bool decide_structure(const JudgeInput& input, Verdict* verdict);
bool decide_carried(const JudgeInput& input, Verdict* verdict);
std::string unmoved_names(const Bounds& bounds);  // Of the program that comes first.
bool decide_mathematics(const JudgeInput& input, Verdict* verdict);
// The reference was executed illegally, and the target was not.
bool decide_reference(const JudgeInput& input, Verdict* verdict);
bool decide_first_state(const JudgeInput& input, Verdict* verdict);
// INCONCLUSIVE: mathematics, or a bare value, differs at a tap, and numbers that Python computed out of sight may be
// the reason.
void decide_python_numbers(const JudgeInput& input, const Finding& finding, const Answer& answer, Verdict* verdict);
// The largest relative uncertainty of such a number, and where it came in.
std::string python_numbers(const JudgeInput& input);
// Two programs that are one but for a number: a hazard.
void add_other_number(const Graph& graph, const Graph& reference, Verdict* verdict);

// What rounding alone could move by so much that no execution can be told from another, beside taps that are answered:
// of a parameter's gradient that is zero by mathematics what Adam makes, for one. The loss is never among it.
struct OpenTaps {
  std::vector<const Finding*> findings;
  double share = 0;  // They are this share of the elements of all taps.
};
OpenTaps open_taps(const JudgeInput& input);
// They silence nothing that is answered: a verdict lists them.
inline constexpr double kOpenShareMax = 0.1;

// notes.cc
void add_notes(const JudgeInput& input, Verdict* verdict);

}  // namespace plumbline::judging
