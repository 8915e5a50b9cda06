#include "server/judge/judge.h"

#include <cmath>

#include "server/bound/replay/work.h"
#include "server/judge/rules.h"
#include "server/judge/surprise.h"

namespace plumbline {
namespace {

using namespace judging;

// Without a deviation there is nothing to accuse of, whatever else was found: that stands among the hazards.
bool decide_match(const JudgeInput& input, Verdict* verdict) {
  if (!input.bounds->all_taps_equal_reference || !input.bounds->missing_taps.empty() ||
      !input.bounds->told_otherwise.empty() || !input.bounds->unmoved.empty())
    return false;
  decide(verdict, Outcome::kTypeI, Grade::kMatch, Cause::kRounding, "Every tap equals the reference bit by bit.");
  verdict->margin = verdict->deviation = 0;
  return true;
}

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
    const Answer& execution = finding.execution;
    // An envelope whose numbers overflowed, as those of results beyond 1e170 do, accuses nobody.
    if (!finding.proven || !execution.asked || std::isnan(execution.envelope) ||
        execution.deviation <= execution.envelope)
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

// Whether the node is NaN because its formula does not know the result, as where several values are written to one
// place and which one stays is the kernel's affair.
bool leaves_open(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  if (node.primitive == Primitive::kConstant) return std::isnan(node.attributes.scalar);
  return traits(node.primitive).bitwise && std::ranges::any_of(node.inputs, [&](NodeId input) {
           return graph.nodes[input].origin == node.origin && leaves_open(graph, input);
         });
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
  if (undecided != nullptr && leaves_open(*input.graph, *undecided->first)) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Tap " + undecided->tap + " could not be compared: the result of " +
               at(place_of(*input.graph, *undecided->first)) +
               " is not defined there (several values written to one place), or not modelled.");
    return true;
  }
  if (undecided != nullptr) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kRange,
           "Exact arithmetic gives no finite number at tap " + undecided->tap +
               ", and the execution differs from our replay.");
    return true;
  }
  return false;
}

// Not finite, as the declared formats have it.
bool explain_range(const JudgeInput& input, Verdict* verdict) {
  for (const RangeFinding& finding : input.bounds->range) {
    Place place = place_of(*input.graph, *finding.first);
    const Format narrow = input.graph->nodes[*finding.first].attributes.narrow;  // Of parts of a sum.
    if (narrow != Format::kUnknown) place.format = traits(narrow).name;
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

std::string read_as(const Bounds& bounds) {
  return bounds.value_reading ? ", " + bounds.value_reading->words + "," : std::string();
}

// Infinities and NaNs of a bare reference value that part from those of exact arithmetic.
bool decide_value_patterns(const JudgeInput& input, Verdict* verdict) {
  const PatternFinding* found = nullptr;
  for (const PatternFinding& pattern : input.bounds->value_patterns)
    if (found == nullptr || (pattern.certain && !found->certain)) found = &pattern;
  if (found == nullptr) return false;
  const std::string what = "The reference value of " + found->tap + " is " + number(found->reference) + " at element " +
                           std::to_string(found->element) + ", where exact arithmetic gives " + number(found->exact);
  if (found->certain)
    decide(verdict, Outcome::kTypeII, Grade::kFirstOrder, Cause::kMathematics, what + ": no rounding is the reason.");
  else
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           what +
               ". Whether an overflow of another formula is the reason is not known: this needs the reference's "
               "trace.");
  verdict->deciding_tap = found->tap;
  return true;
}

bool decide_certain_patterns(const JudgeInput& input, Verdict* verdict) {
  const auto certain = [](const PatternFinding& pattern) { return pattern.certain; };
  return std::ranges::any_of(input.bounds->value_patterns, certain) && decide_value_patterns(input, verdict);
}

// Beyond what any formula of the same mathematics may round, and nothing else may be the reason.
bool accuses(const Answer& answer) {
  return answer.disproved() && answer.margin() > kValueFormulas && answer.excuse.empty();
}

bool decide_value(const JudgeInput& input, Verdict* verdict) {
  const Bounds& bounds = *input.bounds;
  const Finding* broken = worst(bounds, value, accuses);
  if (broken != nullptr) {
    decide(verdict, Outcome::kTypeII, broken->value.beyond_worst_case() ? Grade::kFirstOrder : Grade::kStatistical,
           Cause::kMathematics,
           "The reference value of " + broken->name + " lies " + number(broken->value.margin()) +
               " times further from the exact result" + read_as(bounds) + " than rounding could move it.",
           broken, &broken->value);
    return true;
  }
  if (const auto& patterns = bounds.value_patterns;
      std::ranges::any_of(patterns, [](const PatternFinding& pattern) { return !pattern.certain; }))
    return decide_value_patterns(input, verdict);
  broken = worst(bounds, value, disproved);
  if (broken == nullptr) broken = worst(bounds, value, failed);
  if (broken == nullptr) return false;
  if (!broken->value.disproved()) {
    decide_python_numbers(input, *broken, broken->value, verdict);
    return true;
  }
  const std::string open = broken->value.margin() > kValueFormulas
                               ? " lies outside of the envelope, and " + broken->value.excuse + ":"
                               : " lies just outside of the envelope:";
  decide(verdict, Outcome::kInconclusive, grade_of(broken->value), Cause::kUnanswered,
         "The reference value of " + broken->name + open + " this needs the reference's trace.", broken,
         &broken->value);
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
  const OpenTaps beside = open_taps(input);
  for (const Finding& finding : bounds.findings) {
    if (beside.share <= kOpenShareMax && std::ranges::find(beside.findings, &finding) != beside.findings.end())
      continue;
    const bool silent = finding.execution.vacuous() || finding.value.vacuous();
    if (silent && (open == nullptr || !(finding.execution.margin() <= open->execution.margin()))) open = &finding;
  }
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

// What would have been accused of, had a bit of a tap deviated.
void add_latent_difference(const JudgeInput& input, Verdict* verdict) {
  Verdict latent;
  if (!decide_invariants(input, &latent) && !decide_illegal_values(input, &latent) &&
      !decide_proven_execution(input, &latent) && !decide_replicas(input, &latent))
    decide_mathematics(input, &latent);
  if (latent.outcome != Outcome::kTypeII) {
    if (input.reference != nullptr) add_other_number(*input.graph, *input.reference, verdict);
    return;
  }
  verdict->hazards.push_back({"latent_difference", latent.suspect.value_or(Place{}), 1,
                              "look at the place named: on other data the taps may part",
                              "It did not show in any bit of the taps: " + latent.sentence});
}

// Whether the programs agree only as far as roundings of what they hold go: a change below that would not have shown.
bool agree_by_rounding(const JudgeInput& input) {
  const Bounds& bounds = *input.bounds;
  const auto weaker = [](const MatchedItem& item) {
    return item.evidence == Evidence::kComputed ||
           (item.evidence == Evidence::kRounding && item.format == Format::kUnknown);
  };
  // For two programs fp64 tells no more than that they agree to its own resolution, unless they do so in all bits.
  const auto to_resolution = [](const Finding& finding) {
    return finding.mathematics.asked && finding.mathematics.deviation > 0 && !finding.mathematics.confirmed;
  };
  const bool numbers = input.reference != nullptr && (input.graph->rounded_numbers || input.reference->rounded_numbers);
  return numbers || bounds.free_numbers != FreeNumbers::kNone || bounds.rounded_items != RoundedItems::kNone ||
         std::ranges::any_of(bounds.match.items, weaker) || std::ranges::any_of(bounds.findings, to_resolution);
}

// Where a larger share of the work is not modelled, nothing was said of the step.
constexpr double kUnseenMax = 0.5;

// The share of operations that are not modelled in the work on the way to the loss; where there is none, to the
// gradients, or to all taps. What lies behind the gradients, as a sparse update, silences none of these.
double unseen_work(const Graph& graph) {
  for (const TapKind kind : {TapKind::kLoss, TapKind::kGradient})
    if (std::ranges::any_of(graph.taps, [&](const GraphTap& tap) { return tap.kind == kind; }))
      return covered_work(graph, kind).opaque_share();
  return covered_work(graph).opaque_share();
}

void decide_type_i(const JudgeInput& input, Verdict* verdict) {
  const Bounds& bounds = *input.bounds;
  if (bounds.findings.empty()) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "No tap was there to judge: tap a result, or call backward and the optimizer inside of the step.");
    return;
  }
  const OpenTaps open = open_taps(input);
  if (const double unseen = unseen_work(*input.graph); !bounds.paired && unseen > kUnseenMax) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Rounding explains what could be audited, but " + number(100 * unseen) +
               " % of the work lies in operations that are not modelled.");
    return;
  }
  const double unseen = covered_work(*input.graph).opaque_share();
  // What an operation that is not modelled gave was taken as it came.
  const std::uint64_t opaque = input.graph->coverage.opaque;
  bool unanswered = false, proven = opaque == 0 && !agree_by_rounding(input), statistical = false;
  for (const Finding& finding : bounds.findings) {
    if (std::ranges::find(open.findings, &finding) != open.findings.end() && !bounds.explained.value_or(false)) {
      proven = false;
      continue;
    }
    unanswered = unanswered || finding.execution.vacuous() || finding.execution.failed();
    if (finding.execution.asked) proven = proven && finding.proven;
    if (finding.value.asked) proven = proven && finding.value.deviation == 0;  // It has no trace that could prove it.
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
                                    : "Rounding explains every deviation.";
  if (bounds.paired) sentence += " Target and reference compute the same mathematics.";
  if (opaque > 0)
    sentence += " Of " + std::to_string(input.graph->coverage.operations) + " operations " + std::to_string(opaque) +
                (unseen > 0 ? " (" + number(100 * unseen) + " % of the work)" : "") +
                " are not modelled, and were not audited.";
  // A format whose range one of them left, so that they do not do the same.
  const bool skipped = !bounds.skipped_taps.empty();
  Cause cause = bounds.policy || skipped ? Cause::kPrecisionPolicy : Cause::kRounding;
  if (skipped) sentence += " One of them left its format's range and skipped its update.";
  Format rounded = Format::kUnknown;
  for (const MatchedItem& item : bounds.match.items)
    if (item.evidence == Evidence::kRounding && item.format != Format::kUnknown) rounded = item.format;
  if (!bounds.match.target_grids.empty() || !bounds.match.reference_grids.empty()) {
    cause = Cause::kPrecisionPolicy;
    sentence += " They round to grids that they do not share.";
  }
  if (rounded != Format::kUnknown && !bounds.policy) {
    cause = Cause::kPrecisionPolicy;
    sentence +=
        " They agree once an input is taken as rounded to " + std::string(traits(rounded).name) + " on one side.";
  }
  if (bounds.policy)
    sentence += " They agree once an input is taken as rounded to " + std::string(traits(*bounds.policy).name) +
                " on one side.";
  if (bounds.value_reading) {
    if (bounds.value_reading->policy) cause = Cause::kPrecisionPolicy;
    sentence += " The reference is what the target computes " + bounds.value_reading->words + ".";
  }
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

// Each finding as the user sees it, judged by the same rule in small. `doubted`: what differs hangs on an item that may
// be half known.
TapVerdict tap_verdict(const Finding& finding, bool doubted) {
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
  const double replaced = finding.mathematics.replaced, envelope = finding.mathematics.envelope;
  tap.math_resolution = finding.mathematics.asked ? (replaced > envelope ? replaced : envelope)
                        : finding.value.asked     ? finding.value_resolution
                                                  : kNotAsked;
  tap.exec_resolution = finding.execution.envelope;
  const bool by_value = finding.value.asked && finding.value.deviation != 0;
  tap.grade =
      (finding.proven && !by_value) || (finding.mathematics.disproved() && finding.mathematics.beyond_worst_case() &&
                                        finding.mathematics.confirmed && !doubted)
          ? Grade::kProven
          : grade_of(shown);
  const bool proven_failure =
      finding.proven && finding.execution.asked && !(finding.execution.deviation <= finding.execution.envelope);
  if (finding.mathematics.disproved() || proven_failure || accuses(finding.value))
    tap.outcome = Outcome::kTypeII;
  else if (finding.execution.failed() || finding.execution.vacuous() || finding.mathematics.failed() ||
           finding.mathematics.vacuous() || finding.value.failed() || finding.value.vacuous())
    tap.outcome = Outcome::kInconclusive;
  else
    tap.outcome = Outcome::kTypeI;
  return tap;
}

// Outside of its steps, which nobody sees, a program may update what it leaves as it was within.
bool decide_unmoved(const JudgeInput& input, Verdict* verdict) {
  if (input.bounds->unmoved.empty()) return false;
  const bool in_reference = input.bounds->unmoved.front().in_reference;
  decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
         std::string(in_reference ? "The reference" : "The target") + " gives " + unmoved_names(*input.bounds) +
             ", and the " + (in_reference ? "target" : "reference") +
             ", which holds the same parameters, leaves them as they were: its updates were not compared.");
  verdict->advice.emplace_back("put the optimizer's step inside of the audited step, in both programs");
  return true;
}

bool decide_told_otherwise(const JudgeInput& input, Verdict* verdict) {
  if (input.bounds->told_otherwise.empty()) return false;
  decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
         "The programs do not tell alike what the step makes of " + joined(input.bounds->told_otherwise) +
             ": that was not compared.");
  return true;
}

// Gradients are the reference's but for one factor.
bool decide_scale(const JudgeInput& input, Verdict* verdict) {
  const Bounds& bounds = *input.bounds;
  if (bounds.supposed_scale)
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference agree only if the gradients that earlier steps left, which were not audited, are " +
               factor(*bounds.supposed_scale) + " times the reference's: audit those steps, too.");
  else if (bounds.common_scale)
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "The loss and all gradients that this step leaves are " + factor(*bounds.common_scale) +
               " times the reference's. The step whose optimizer takes them tells whether that is taken out.");
  else if (bounds.absorbed_scale)
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           (*bounds.absorbed_scale == 1
                ? "The loss differs from the reference's, and nothing that the step trains does: either "
                : "The loss and gradients are " + factor(*bounds.absorbed_scale) +
                      " times the reference's, and nothing that the step trains differs: either ") +
               "what weighs the loss is taken out later, by a clip or the learning rate, or the loss is wrong and "
               "nothing comes of it.");
  return bounds.supposed_scale || bounds.common_scale || bounds.absorbed_scale;
}

WantedOutputs wanted_outputs(const JudgeInput& input, const Verdict& verdict) {
  if (!input.outputs && verdict.outcome == Outcome::kInconclusive && verdict.cause == Cause::kExecution)
    return WantedOutputs::kNext;
  const bool open = std::ranges::any_of(
      input.bounds->findings, [](const Finding& finding) { return !finding.proven && finding.execution.vacuous(); });
  return open ? WantedOutputs::kAlways : WantedOutputs::kNone;
}

}  // namespace

Verdict judge(const JudgeInput& input) {
  const Bounds& bounds = *input.bounds;
  Verdict verdict;
  verdict.reference = !input.reference_name.empty() ? input.reference_name : "exact";
  for (const GraphTap& tap : input.graph->taps)
    if (tap.reference && !bounds.paired) verdict.reference = "value";

  // The order matters: what is proven first, then what compares programs, then what only bounds.
  if (!decide_match(input, &verdict) && !decide_invariants(input, &verdict) &&
      !decide_illegal_values(input, &verdict) && !decide_proven_execution(input, &verdict) &&
      !decide_replicas(input, &verdict) && !decide_certain_patterns(input, &verdict) &&
      !decide_range(input, &verdict) && !decide_structure(input, &verdict) && !decide_carried(input, &verdict) &&
      !decide_mathematics(input, &verdict) && !decide_first_state(input, &verdict) &&
      !decide_reference(input, &verdict) && !decide_value(input, &verdict) && !decide_execution(input, &verdict) &&
      !decide_told_otherwise(input, &verdict) && !decide_scale(input, &verdict) && !decide_unmoved(input, &verdict) &&
      !explain_range(input, &verdict))
    decide_type_i(input, &verdict);

  for (const Finding& finding : bounds.findings)
    verdict.taps.push_back(tap_verdict(finding, bounds.hangs_on.has_value()));
  const Finding* loss = nullptr;
  for (const Finding& finding : bounds.findings)
    if (finding.taps.size() == 1 && input.graph->taps[finding.taps[0]].kind == TapKind::kLoss &&
        (finding.mathematics.asked || !bounds.paired))
      loss = &finding;
  for (const TapVerdict& tap : verdict.taps) {
    if (loss != nullptr && tap.name != loss->name) continue;
    // The coarsest; fmax takes the other number where one was not asked.
    verdict.math_resolution = std::fmax(verdict.math_resolution, tap.math_resolution);
    verdict.exec_resolution = std::fmax(verdict.exec_resolution, tap.exec_resolution);
  }
  // What was taken for a rounding, at any tap, is not told apart.
  for (const Finding& finding : bounds.findings) {
    const Answer& answer = finding.mathematics;
    const double taken = std::fmax(answer.replaced, answer.by_freedom && answer.passed() ? answer.envelope : 0);
    if (taken > 0) verdict.math_resolution = std::fmax(verdict.math_resolution, taken);
  }
  for (const Finding& finding : bounds.findings)
    if (finding.name == verdict.deciding_tap) {
      verdict.contributors = contributors(*input.graph, finding);
      verdict.explained = finding.explained;
    }
  verdict.coverage.operations = input.graph->coverage.operations;
  verdict.coverage.opaque = input.graph->coverage.opaque;
  const CoveredWork work = covered_work(*input.graph);
  verdict.coverage.work = work.audited + work.opaque;
  verdict.coverage.work_audited = work.audited;
  verdict.coverage.audited = input.graph->coverage.operations - input.graph->coverage.opaque;
  for (const auto& [name, times] : input.graph->coverage.opaque_names)
    if (verdict.coverage.opaque_names.size() < 16) verdict.coverage.opaque_names.push_back(name);
  verdict.coverage.decisions = bounds.decisions;
  verdict.coverage.unstable = bounds.unstable;
  verdict.coverage.compared = bounds.compared_elements;
  for (const GraphTap& tap : input.graph->taps)
    verdict.coverage.elements += static_cast<std::uint64_t>(count(tap.shape));
  verdict.hazards = hazards(*input.graph, bounds);
  add_replica_hazard(input, &verdict);
  if (verdict.grade == Grade::kMatch) add_latent_difference(input, &verdict);
  if (verdict.outcome != Outcome::kTypeI) verdict.alignment = alignment(input);
  add_notes(input, &verdict);
  add_surprise(bounds, &verdict);
  verdict.outputs = wanted_outputs(input, verdict);
  verdict.advice = advice(input, verdict);
  verdict.phase_seconds = bounds.seconds;
  return verdict;
}

}  // namespace plumbline
