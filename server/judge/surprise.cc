#include "server/judge/surprise.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace plumbline {
namespace {

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", x);
  return text;
}

// The surprise of a probability that is given by its natural logarithm.
double surprise_of(double log_probability) { return std::fmax(0, -log_probability / std::log(10)); }

// The largest surprise of several questions, as one of so many.
class Questions {
 public:
  void add(double surprise) {
    largest_ = std::fmax(largest_, surprise);
    ++count_;
  }
  void add(const Questions& others) {
    largest_ = std::fmax(largest_, others.largest_);
    count_ += others.count_;
  }
  double surprise() const { return count_ > 0 ? std::fmax(0, largest_ - std::log10(count_)) : kNotAsked; }

 private:
  double largest_ = 0, count_ = 0;
};

// A deviation that our own rounded replay reproduces is legal, whatever an envelope of first order says. A gap between
// two programs is their own difference only where the verdict says so: otherwise something else may be the reason.
Questions questions_of(const Finding& finding, const Bounds& bounds, Outcome outcome) {
  Questions questions;
  const auto ask = [&](const Answer& answer, bool excused) {
    if (!answer.asked || (answer.vacuous() && std::isnan(answer.least_chance))) return;
    questions.add(excused ? 0 : surprise(answer, finding.elements, bounds.alpha));
  };
  const bool reproduced = bounds.explained.value_or(false) && !finding.proven && finding.execution.failed();
  ask(finding.execution, reproduced);
  ask(finding.value, outcome != Outcome::kTypeII && finding.value.margin() > 1);
  ask(finding.mathematics, outcome != Outcome::kTypeII);
  return questions;
}

std::string in_words(double surprise) {
  if (surprise == 0) return " Legal rounding often deviates as much (surprise 0).";
  return " Legal rounding deviates as much somewhere with a probability of at most " + number(std::pow(10, -surprise)) +
         " (surprise " + number(surprise) + ").";
}

}  // namespace

double surprise(const Answer& answer, std::uint64_t elements, double alpha) {
  if (answer.deviation == 0 || answer.python > 0) return 0;
  if (!std::isnan(answer.least_chance)) {
    if (!(answer.deviation <= answer.envelope)) return HUGE_VAL;
    return surprise_of(std::log(static_cast<double>(elements)) + std::log(answer.least_chance));
  }
  if (std::isnan(answer.bias)) {
    if (answer.deviation <= answer.envelope) return 0;
    if (answer.beyond_worst_case()) return HUGE_VAL;
    return surprise_of(std::log(2) + answer.margin() * answer.margin() * std::log(alpha / 2));
  }
  if (answer.beyond_worst_case()) return HUGE_VAL;
  const double beyond = answer.deviation - answer.bias;
  if (!(beyond > 0)) return 0;
  const double x = beyond / answer.spread;
  return surprise_of(std::log(2 * answer.tests) - x * x / 2);
}

void add_surprise(const Bounds& bounds, Verdict* verdict) {
  Questions all;
  for (std::size_t i = 0; i < bounds.findings.size(); ++i) {
    TapVerdict& tap = verdict->taps[i];
    const Finding& finding = bounds.findings[i];
    tap.surprise = questions_of(finding, bounds, tap.outcome).surprise();
    all.add(questions_of(finding, bounds, verdict->outcome));
  }
  verdict->surprise = all.surprise();
  if (verdict->grade == Grade::kMatch) verdict->surprise = 0;
  // What is proven to be illegal has no probability.
  if (verdict->outcome == Outcome::kTypeII && verdict->grade != Grade::kStatistical) verdict->surprise = HUGE_VAL;

  const double surprise = verdict->surprise;
  if (verdict->outcome != Outcome::kTypeI || verdict->grade == Grade::kMatch || verdict->grade == Grade::kExplained ||
      std::isnan(surprise))
    return;
  verdict->sentence += in_words(surprise);
  const double alarm = -std::log10(bounds.alpha);
  if (surprise > alarm)
    verdict->notes.push_back("surprise " + number(surprise) + " is beyond " + number(alarm) +
                             ", which a legal step reaches with the probability that it may spend on false alarms");
}

}  // namespace plumbline
