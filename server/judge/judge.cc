#include "server/judge/judge.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace plumbline {
namespace {

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
}

std::string joined(const std::vector<std::string>& items, std::size_t most = 4) {
  std::string text;
  for (std::size_t i = 0; i < std::min(items.size(), most); ++i) text += (i == 0 ? "" : ", ") + items[i];
  if (items.size() > most) text += " and " + std::to_string(items.size() - most) + " more";
  return text;
}

std::string at(const Place& place) { return place.op + (place.source.empty() ? "" : " (" + place.source + ")"); }

// Sets what decided: outcome, grade, cause, the sentence, and the answer that the margin speaks of.
void decide(Verdict* verdict, Outcome outcome, Grade grade, Cause cause, std::string sentence,
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

const Answer& execution(const Finding& finding) { return finding.execution; }
const Answer& mathematics(const Finding& finding) { return finding.mathematics; }
const Answer& value(const Finding& finding) { return finding.value; }
bool failed(const Answer& answer) { return answer.failed(); }
bool disproved(const Answer& answer) { return answer.disproved(); }
bool asked(const Answer& answer) { return answer.asked; }
bool vacuous(const Answer& answer) { return answer.vacuous(); }
bool lost_in_replay(const Answer& answer) { return answer.vacuous() && answer.host == 0; }
bool lost_in_python(const Answer& answer) { return (answer.vacuous() || answer.failed()) && answer.host > 0; }

// Of an envelope that is not an enclosure.
Grade grade_of(const Answer& answer) { return answer.statistical() ? Grade::kStatistical : Grade::kFirstOrder; }

bool decide_invariants(const JudgeInput& input, Verdict* verdict) {
  if (input.changed_leaves.empty()) return false;
  decide(verdict, Outcome::kTypeII, Grade::kProven, Cause::kInvariant,
         "Between this step and the one before, something outside of the trace changed " +
             joined(input.changed_leaves) + ".");
  verdict->suspect = Place{"leaf " + input.changed_leaves.front(), "", "", ""};
  verdict->suspect_detail = "its bits differ from those that the last step left";
  return true;
}

NodeId update_of(const Graph& graph, const std::string& name) {
  for (const GraphTap& tap : graph.taps)
    if (tap.name == name) return tap.terms.front().node;
  return 0;
}

std::string names_of(const std::vector<Divergence>& diverged) {
  std::vector<std::string> names;
  for (const Divergence& one : diverged)
    if (std::find(names.begin(), names.end(), one.leaf) == names.end()) names.push_back(one.leaf);
  return joined(names);
}

bool decide_replicas(const JudgeInput& input, Verdict* verdict) {
  if (!input.replicated || input.diverged.empty()) return false;
  const Divergence& first = input.diverged.front();
  decide(verdict, Outcome::kTypeII, Grade::kProven, Cause::kInvariant,
         "The ranks do not hold the same parameters " + std::string(first.tap.empty() ? "before" : "after") +
             " the step: " + names_of(input.diverged) + ".");
  if (first.tap.empty()) {
    verdict->suspect = Place{"leaf " + first.leaf, "", "", ""};
    verdict->suspect_detail = "the ranks began the step with different bits of it";
  } else {
    verdict->suspect = place_of(*input.graph, update_of(*input.graph, first.tap));
    verdict->suspect_detail = "tap " + first.tap + " is not what rank 0 got";
  }
  return true;
}

// Where nobody said that the ranks hold the same parameters, though they did.
void add_replica_hazard(const JudgeInput& input, Verdict* verdict) {
  std::vector<Divergence> replicas;
  for (const Divergence& one : input.diverged)
    if (one.replica_before) replicas.push_back(one);
  if (input.replicated || replicas.empty()) return;
  const Place place = place_of(*input.graph, update_of(*input.graph, replicas.front().tap));
  verdict->hazards.push_back(
      {"replicas_diverged", place, static_cast<double>(replicas.size()) / static_cast<double>(input.graph->taps.size()),
       "reduce the gradients over the ranks before they update, or broadcast the parameters",
       "Parameters that were equal on all ranks before the step differ after it: " + names_of(replicas) + "."});
}

bool decide_illegal_values(const JudgeInput& input, Verdict* verdict) {
  if (input.bounds->illegal_values.empty()) return false;
  const IllegalValue& first = input.bounds->illegal_values.front();
  verdict->suspect = place_of(*input.graph, first.node);
  verdict->suspect_detail = std::to_string(first.elements) + " elements beyond what rounding allows; element " +
                            std::to_string(first.element) + " is off by " + number(first.deviation) + ", allowed " +
                            number(first.bound);
  if (first.out_of_range)
    verdict->suspect_detail += "; " + number(first.observed) + " is out of the range [" + number(first.low) + ", " +
                               number(first.high) + "] that the function keeps by the profile";
  decide(verdict, Outcome::kTypeII, Grade::kProven, Cause::kExecution,
         "The result of " + at(*verdict->suspect) + " is not a legal rounding of the function of its own inputs.");
  verdict->deviation = first.deviation;
  verdict->envelope = first.bound;
  verdict->margin = first.bound > 0 ? first.deviation / first.bound : HUGE_VAL;
  return true;
}

// A tap whose short segment from observed values is enclosed, and which lies outside: PROVEN.
bool decide_proven_execution(const JudgeInput& input, Verdict* verdict) {
  for (const Finding& finding : input.bounds->findings) {
    if (!finding.proven || !finding.execution.asked || finding.execution.deviation <= finding.execution.envelope)
      continue;
    const NodeId node = input.graph->taps[finding.taps.front()].terms.front().node;
    verdict->suspect = place_of(*input.graph, node);
    verdict->suspect_detail = "element " + std::to_string(finding.worst_element) + " is " + number(finding.observed) +
                              ", legal is [" + number(finding.low) + ", " + number(finding.high) + "]";
    decide(verdict, Outcome::kTypeII, Grade::kProven, Cause::kExecution,
           "Tap " + finding.name + " lies outside of what its inputs allow under any rounding.", &finding,
           &finding.execution);
    return true;
  }
  return false;
}

bool decide_range(const JudgeInput& input, Verdict* verdict) {
  const RangeFinding* undecided = nullptr;
  for (const RangeFinding& finding : input.bounds->range) {
    const Place place = place_of(*input.graph, *finding.first);
    verdict->deciding_tap = finding.tap;
    if (!finding.rounded_agrees && !finding.straddles) {
      if (!finding.exact_finite) {
        undecided = &finding;
        continue;
      }
      verdict->suspect = place;
      verdict->suspect_detail = "the declared formats hold every value on the way to this tap";
      decide(verdict, Outcome::kTypeII, Grade::kExplained, Cause::kRange,
             "Tap " + finding.tap + " is not finite, though a legal execution in the same formats is.");
      return true;
    }
    if (finding.rounded_agrees && finding.exact_finite && finding.reference_finite && !finding.borderline) {
      verdict->suspect = place;
      verdict->suspect_detail = "overflows its format, " + place.format + "; the reference stays finite";
      decide(verdict, Outcome::kTypeII, Grade::kExplained, Cause::kRange,
             "Tap " + finding.tap + " overflows at " + at(place) + ", where the reference stays finite.");
      return true;
    }
  }
  if (undecided != nullptr) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kRange,
           "Exact arithmetic is not finite at tap " + undecided->tap + ", and the execution differs from our replay.");
    return true;
  }
  return false;
}

// The largest relative uncertainty of a number that Python computed, and where it came in.
std::string host_numbers(const JudgeInput& input) {
  const auto relative = [](const UncertainNumber& number) { return number.uncertainty / std::fabs(number.value); };
  const UncertainNumber& first = *std::ranges::max_element(input.bounds->uncertain_numbers, {}, relative);
  const Graph& program = first.in_reference ? *input.reference : *input.graph;
  return number(first.value) + " for " + at(place_of(program, first.node)) +
         (first.in_reference ? " of the reference" : "") + ", known to " + number(relative(first));
}

// Mathematics, or a bare value, differs at a tap, and numbers that Python computed out of sight may be the reason.
void decide_host_numbers(const JudgeInput& input, const Finding& finding, const Answer& answer, Verdict* verdict) {
  decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
         "Target and reference differ at " + finding.name + " by " + number(answer.deviation) +
             ", where numbers come in that Python may have computed from what it read of tensors (.item()): " +
             host_numbers(input) + ". Whether it computed them alike is not known.",
         &finding, &answer);
}

// Not finite, as the declared formats have it.
bool explain_range(const JudgeInput& input, Verdict* verdict) {
  for (const RangeFinding& finding : input.bounds->range) {
    const Place place = place_of(*input.graph, *finding.first);
    if (finding.borderline) {
      decide(verdict, Outcome::kTypeI, Grade::kExplained, Cause::kRange,
             "Tap " + finding.tap + " overflows at " + at(place) + ", so close to the limit of " + place.format +
                 " that rounding alone decides.");
    } else if (finding.exact_finite) {
      decide(verdict, Outcome::kTypeI, Grade::kExplained, Cause::kPrecisionPolicy,
             "Tap " + finding.tap + " overflows because " + at(place) + " is held in " + place.format + ".");
    } else {
      decide(verdict, Outcome::kTypeI, Grade::kExplained, Cause::kRange,
             "Tap " + finding.tap + " is not finite in exact arithmetic either; first at " + at(place) + ".");
    }
    verdict->deciding_tap = finding.tap;
  }
  return !input.bounds->range.empty();
}

// Of the modules whose outputs are taps, the first in the target's order that is not explained; empty: none. Findings
// that were drilled down to come in that order.
std::string first_module(const Bounds& bounds) {
  constexpr std::string_view kOutput = "out:";
  for (const Finding& finding : bounds.findings)
    if (finding.mathematics.failed() && finding.name.starts_with(kOutput)) return finding.name.substr(kOutput.size());
  return {};
}

// Q3. False when the two programs compute the same mathematics, or there is no pair.
bool decide_mathematics(const JudgeInput& input, Verdict* verdict) {
  const Bounds& bounds = *input.bounds;
  if (!bounds.paired) return false;
  if (!bounds.shape_conflicts.empty()) {
    const std::string found = "Taps of different shapes: " + joined(bounds.shape_conflicts);
    if (input.ranks > 1)
      decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
             found + ". Whether the ranks hold parts of one tensor is known of DTensor alone.");
    else
      decide(verdict, Outcome::kTypeII, Grade::kProven, Cause::kMathematics, found + ".");
    return true;
  }
  if (!bounds.match.missing.empty()) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "The reference uses leaves that the target does not have: " + joined(bounds.match.missing) + ".");
    return true;
  }
  if (!bounds.unpaired_taps.empty() && bounds.skipped_taps.empty() && worst(bounds, mathematics, asked) == nullptr) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference have no tap in common: " + joined(bounds.unpaired_taps) + ".");
    return true;
  }
  if (const Finding* open = worst(bounds, mathematics, lost_in_replay)) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Mathematics could not be compared at " + open->name + ": our own replay is too uncertain there.", open,
           &open->mathematics);
    return true;
  }
  const Finding* broken = nullptr;  // the first tap that localisation looked at, otherwise the worst
  for (const Finding& finding : bounds.findings)
    if (finding.mathematics.disproved() && finding.elements == 1 && broken == nullptr) broken = &finding;
  if (broken == nullptr) broken = worst(bounds, mathematics, disproved);
  if (const Finding* open = worst(bounds, mathematics, lost_in_python); open != nullptr && broken == nullptr) {
    decide_host_numbers(input, *open, open->mathematics, verdict);
    return true;
  }
  if (broken == nullptr && bounds.indifferent_call) {
    const Origin& origin = input.graph->origins[*bounds.indifferent_call];
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference feed " + origin.op + ", which is not modelled, with different inputs, and it gives " +
               "nearly the same: whether they compute the same there is not known.");
    return true;
  }
  if (broken == nullptr || bounds.policy) return false;

  if (!bounds.cuts_complete) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference differ at " + broken->name +
               ", but operations that are not modelled, and have no counterpart, may lie before it.",
           broken, &broken->mathematics);
    return true;
  }
  if (!bounds.match.unpaired_inputs.empty()) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference differ at " + broken->name +
               ", but what came into the audited part of the reference has no counterpart in the target: " +
               joined(bounds.match.unpaired_inputs) + ".",
           broken, &broken->mathematics);
    return true;
  }
  if (bounds.suspicion) {
    const Graph& program = bounds.suspicion->in_reference ? *input.reference : *input.graph;
    verdict->suspect = place_of(program, bounds.suspicion->node);
    verdict->suspect_in_reference = bounds.suspicion->in_reference;
    verdict->suspect_detail = (bounds.suspicion->normalisation ? "normalisation: it " : "") + bounds.suspicion->detail;
  }
  if (!bounds.match.foreign_data.empty() && !bounds.match.foreign_reference_data.empty()) {
    verdict->suspect = place_of(*input.graph, bounds.match.foreign_data.front());
    verdict->suspect_in_reference = false;
    verdict->suspect_detail = "the two runs were fed different data";
    decide(verdict, Outcome::kTypeII, Grade::kProven, Cause::kLeafMismatch,
           "Target and reference were fed different data, and differ at " + broken->name + " by " +
               number(broken->mathematics.deviation) + ".",
           broken, &broken->mathematics);
    return true;
  }
  if (!bounds.match.apart.empty()) {
    verdict->suspect = place_of(*input.graph, bounds.match.apart.front());
    verdict->suspect_in_reference = false;
    verdict->suspect_detail = "rank 0 holds other content under this name, and the reference has but one";
    decide(verdict, Outcome::kTypeII, Grade::kProven, Cause::kLeafMismatch,
           "The ranks compute with different content of " +
               std::string(unranked(verdict->suspect->op.substr(std::string("leaf ").size()))) +
               ", and differ from the reference at " + broken->name + " by " + number(broken->mathematics.deviation) +
               ".",
           broken, &broken->mathematics);
    return true;
  }
  if (input.ranks > 1 && !bounds.match.foreign_reference_data.empty()) {
    verdict->suspect = place_of(*input.reference, bounds.match.foreign_reference_data.front());
    verdict->suspect_in_reference = true;
    verdict->suspect_detail = "no rank was fed this data of the reference";
    decide(verdict, Outcome::kTypeII, Grade::kProven, Cause::kLeafMismatch,
           "The reference was fed data that no rank of the target was, and they differ at " + broken->name + " by " +
               number(broken->mathematics.deviation) + ".",
           broken, &broken->mathematics);
    return true;
  }
  const std::string suspect = verdict->suspect ? "; suspect " + at(*verdict->suspect) : std::string();
  const std::string module = first_module(bounds);
  decide(verdict, Outcome::kTypeII, broken->mathematics.beyond_worst_case() ? Grade::kProven : Grade::kStatistical,
         Cause::kMathematics,
         "Target and reference compute different mathematics: on the same leaves " + broken->name + " differs by " +
             number(broken->mathematics.deviation) + " where " + number(broken->mathematics.envelope) + " is possible" +
             suspect + "." + (module.empty() ? "" : " The first module that is not explained is " + module + "."),
         broken, &broken->mathematics);
  return true;
}

// What two runs begin with must be equal: later it is carried drift.
bool decide_first_state(const JudgeInput& input, Verdict* verdict) {
  const std::vector<NodeId>& foreign = input.bounds->match.foreign_state;
  if (!input.first_step_of_run || foreign.empty() || input.bounds->all_taps_equal_reference) return false;
  verdict->suspect = place_of(*input.graph, foreign.front());
  verdict->suspect_detail = "the two runs began with different content of it";
  std::vector<std::string> leaves;
  leaves.reserve(foreign.size());
  for (NodeId node : foreign) leaves.push_back(place_of(*input.graph, node).op);
  decide(verdict, Outcome::kTypeII, Grade::kProven, Cause::kLeafMismatch,
         "Target and reference compute the same mathematics, but began with different state: " + joined(leaves) + ".");
  return true;
}

bool decide_value(const JudgeInput& input, Verdict* verdict) {
  const Finding* broken = worst(*input.bounds, value, disproved);
  if (broken == nullptr) broken = worst(*input.bounds, value, failed);
  if (broken == nullptr) return false;
  if (!broken->value.disproved()) {
    decide_host_numbers(input, *broken, broken->value, verdict);
  } else if (broken->value.margin() > 10) {
    decide(verdict, Outcome::kTypeII, broken->value.beyond_worst_case() ? Grade::kFirstOrder : Grade::kStatistical,
           Cause::kMathematics,
           "The reference value of " + broken->name + " lies " + number(broken->value.margin()) +
               " times further from the exact result than rounding could move it.",
           broken, &broken->value);
  } else {
    decide(verdict, Outcome::kInconclusive, grade_of(broken->value), Cause::kUnanswered,
           "The reference value of " + broken->name +
               " lies just outside of the envelope: this needs the "
               "reference's trace.",
           broken, &broken->value);
  }
  return true;
}

bool decide_execution(const JudgeInput& input, Verdict* verdict) {
  const Bounds& bounds = *input.bounds;
  const Finding* broken = nullptr;
  for (const Finding& finding : bounds.findings)
    if (!finding.proven && finding.execution.failed() &&
        (broken == nullptr || finding.execution.margin() > broken->execution.margin()))
      broken = &finding;
  if (broken != nullptr && !bounds.explained.value_or(false)) {
    decide(verdict, Outcome::kInconclusive, grade_of(broken->execution), Cause::kExecution,
           "Tap " + broken->name + " lies outside of its " +
               (broken->execution.statistical() ? "statistical" : "first-order") +
               " envelope; not confirmed by an operation's own "
               "audit.",
           broken, &broken->execution);
    return true;
  }
  if (!bounds.illegal_decisions.empty()) {
    verdict->suspect = place_of(*input.graph, bounds.illegal_decisions.front());
    verdict->suspect_detail = "a comparison came out on a side that rounding can hardly have turned";
    decide(verdict, Outcome::kInconclusive, Grade::kFirstOrder, Cause::kExecution,
           "A decision of " + at(*verdict->suspect) + " contradicts exact arithmetic by a wide margin.");
    return true;
  }
  const Finding* open = nullptr;
  for (const auto& pick : {execution, value})
    if (open == nullptr) open = worst(bounds, pick, vacuous);
  if (open != nullptr && !(bounds.explained.value_or(false) && !open->value.vacuous())) {
    const Answer& answer = open->execution.vacuous() ? open->execution : open->value;
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "At " + open->name + " rounding alone could move the result by " + number(answer.envelope) +
               " of its size: legal and illegal executions cannot be told apart there.",
           open, &answer);
    return true;
  }
  return false;
}

void decide_type_i(const JudgeInput& input, Verdict* verdict) {
  const Bounds& bounds = *input.bounds;
  if (bounds.findings.empty()) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "No tap was there to judge: tap a result, or call backward and the optimizer inside of the step.");
    return;
  }
  if (bounds.all_taps_equal_reference) {
    decide(verdict, Outcome::kTypeI, Grade::kMatch, Cause::kRounding, "Every tap equals the reference bit by bit.");
    verdict->margin = verdict->deviation = 0;
    return;
  }
  bool unanswered = false, proven = true, statistical = false;
  for (const Finding& finding : bounds.findings) {
    unanswered = unanswered || finding.execution.vacuous() || finding.execution.failed();
    if (finding.execution.asked || finding.value.asked) proven = proven && finding.proven;
    for (const Answer& answer : {finding.execution, finding.value})
      statistical = statistical || (answer.asked && answer.statistical());
  }
  const Finding* largest = worst(bounds, value, asked);
  const Answer* answer = largest == nullptr ? nullptr : &largest->value;
  if (largest == nullptr && (largest = worst(bounds, execution, asked)) != nullptr) answer = &largest->execution;
  if (largest == nullptr && (largest = worst(bounds, mathematics, asked)) != nullptr) answer = &largest->mathematics;
  const Grade grade = unanswered    ? Grade::kExplained
                      : proven      ? Grade::kProven
                      : statistical ? Grade::kStatistical
                                    : Grade::kFirstOrder;
  std::string sentence = unanswered ? "Rounding explains the deviation: our own rounded execution reproduces it."
                                    : "Rounding explains every deviation: the largest is " +
                                          (answer == nullptr ? std::string("zero") : number(answer->margin())) +
                                          " of what it could be.";
  if (bounds.paired) sentence += " Target and reference compute the same mathematics.";
  // A format whose range one of them left, so that they do not do the same.
  const bool skipped = !bounds.skipped_taps.empty();
  Cause cause = bounds.policy || skipped ? Cause::kPrecisionPolicy : Cause::kRounding;
  if (skipped) sentence += " One of them left its format's range and skipped its update.";
  if (bounds.policy)
    sentence += " They agree once an input is taken as rounded to " + std::string(traits(*bounds.policy).name) +
                " on one side.";
  if (!bounds.policy_casts.empty()) {
    cause = Cause::kPrecisionPolicy;
    std::vector<std::string> casts;
    for (NodeId node : bounds.policy_casts) {
      const Place place = place_of(*input.graph, node);
      casts.push_back(at(place) + " in " + place.format);
    }
    sentence += " They differ by what they round: " + joined(casts) + ".";
  }
  decide(verdict, Outcome::kTypeI, grade, cause, std::move(sentence), largest, answer);
}

// Each finding as the user sees it, judged by the same rule in small.
TapVerdict tap_verdict(const Finding& finding) {
  TapVerdict tap;
  tap.name = finding.name;
  tap.elements = finding.elements;
  tap.low = finding.low;
  tap.high = finding.high;
  tap.observed = finding.observed;
  tap.worst_element = finding.worst_element;
  tap.reference = finding.reference;
  tap.interval_radius = finding.interval_radius;
  tap.drift = finding.drift;
  tap.worst_case = finding.proven ? finding.execution.envelope : finding.execution.worst_case;
  tap.explained = finding.explained;
  const Answer& shown = finding.mathematics.failed() ? finding.mathematics
                        : finding.value.asked        ? finding.value
                        : finding.execution.asked    ? finding.execution
                                                     : finding.mathematics;
  tap.deviation = shown.deviation;
  tap.envelope = shown.envelope;
  tap.margin = shown.margin();
  tap.math_resolution = finding.mathematics.asked ? finding.mathematics.envelope
                        : finding.value.asked     ? finding.value.envelope
                                                  : kNotAsked;
  tap.exec_resolution = finding.execution.envelope;
  tap.grade = finding.proven || (finding.mathematics.disproved() && finding.mathematics.beyond_worst_case())
                  ? Grade::kProven
                  : grade_of(shown);
  const bool proven_failure =
      finding.proven && finding.execution.asked && !(finding.execution.deviation <= finding.execution.envelope);
  if (finding.mathematics.disproved() || proven_failure || (finding.value.disproved() && finding.value.margin() > 10))
    tap.outcome = Outcome::kTypeII;
  else if (finding.execution.failed() || finding.execution.vacuous() || finding.mathematics.failed() ||
           finding.mathematics.vacuous() || finding.value.failed() || finding.value.vacuous())
    tap.outcome = Outcome::kInconclusive;
  else
    tap.outcome = Outcome::kTypeI;
  return tap;
}

void add_notes(const JudgeInput& input, Verdict* verdict) {
  const Bounds& bounds = *input.bounds;
  if (!bounds.match.drifted.empty())
    verdict->notes.push_back("carried drift: " + std::to_string(bounds.match.drifted.size()) +
                             " leaves differ between the runs (" + joined(bounds.match.drifted, 2) +
                             "); both were judged on the target's");
  if (!bounds.unpaired_taps.empty())
    verdict->notes.push_back("taps without counterpart: " + joined(bounds.unpaired_taps));
  if (bounds.transplanted > 0)
    verdict->notes.push_back(std::to_string(bounds.transplanted) +
                             " operations that are not modelled were compared by their inputs; what they gave in the "
                             "target was taken for both");
  if (!bounds.skipped_taps.empty())
    verdict->notes.push_back("one side found an overflow and skipped its update; not compared: " +
                             joined(bounds.skipped_taps));
  if (std::ranges::any_of(bounds.findings, [](const Finding& f) { return f.mathematics.host > 0 || f.value.host > 0; }))
    verdict->notes.push_back(std::to_string(bounds.uncertain_numbers.size()) +
                             " numbers that Python may have computed from what it read of tensors (.item()) are not "
                             "known exactly; the worst is " +
                             host_numbers(input));
  if (bounds.products_by_rows > 0)
    verdict->notes.push_back("large products checked by projections of their rows and by all elements of some: " +
                             std::to_string(bounds.products_by_rows) + "; a replay checks every element");
  if (bounds.unstable > 0)
    verdict->notes.push_back(std::to_string(bounds.unstable) + " decisions of " + std::to_string(bounds.decisions) +
                             " came out otherwise than in exact arithmetic; the audit followed the target's");
}

}  // namespace

Verdict judge(const JudgeInput& input) {
  const Bounds& bounds = *input.bounds;
  Verdict verdict;
  verdict.reference = !input.reference_name.empty() ? input.reference_name : "exact";
  for (const GraphTap& tap : input.graph->taps)
    if (tap.reference && !bounds.paired) verdict.reference = "value";

  // The order matters: what is proven first, then what compares programs, then what only bounds.
  if (!decide_invariants(input, &verdict) && !decide_illegal_values(input, &verdict) &&
      !decide_proven_execution(input, &verdict) && !decide_replicas(input, &verdict) &&
      !decide_range(input, &verdict) && !decide_mathematics(input, &verdict) && !decide_first_state(input, &verdict) &&
      !explain_range(input, &verdict) && !decide_value(input, &verdict) && !decide_execution(input, &verdict))
    decide_type_i(input, &verdict);

  for (const Finding& finding : bounds.findings) verdict.taps.push_back(tap_verdict(finding));
  const Finding* loss = nullptr;
  for (const Finding& finding : bounds.findings)
    if (finding.taps.size() == 1 && input.graph->taps[finding.taps[0]].kind == TapKind::kLoss &&
        (finding.mathematics.asked || !bounds.paired))
      loss = &finding;
  for (const TapVerdict& tap : verdict.taps) {
    if (loss != nullptr && tap.name != loss->name) continue;
    if (!(tap.math_resolution <= verdict.math_resolution)) verdict.math_resolution = tap.math_resolution;
    if (!(tap.exec_resolution <= verdict.exec_resolution)) verdict.exec_resolution = tap.exec_resolution;
  }
  for (const Finding& finding : bounds.findings)
    if (finding.name == verdict.deciding_tap) {
      verdict.contributors = contributors(*input.graph, finding);
      verdict.explained = finding.explained;
    }
  verdict.coverage.operations = input.graph->coverage.operations;
  verdict.coverage.opaque = input.graph->coverage.opaque;
  verdict.coverage.audited = input.graph->coverage.operations - input.graph->coverage.opaque;
  for (const auto& [name, times] : input.graph->coverage.opaque_names)
    if (verdict.coverage.opaque_names.size() < 16) verdict.coverage.opaque_names.push_back(name);
  verdict.coverage.decisions = bounds.decisions;
  verdict.coverage.unstable = bounds.unstable;
  for (const GraphTap& tap : input.graph->taps)
    verdict.coverage.elements += static_cast<std::uint64_t>(count(tap.shape));
  verdict.hazards = hazards(*input.graph, bounds);
  add_replica_hazard(input, &verdict);
  add_notes(input, &verdict);
  verdict.advice = advice(*input.graph, bounds, verdict);
  verdict.phase_seconds = bounds.seconds;
  return verdict;
}

}  // namespace plumbline
