#include "server/bound/pair/carried.h"
#include "server/judge/rules.h"

namespace plumbline::judging {
namespace {

// The first module in the target's order whose output is a tap and is not explained; it is empty where all are.
// Findings that were drilled down to come in that order.
std::string first_module(const Bounds& bounds) {
  constexpr std::string_view kOutput = "out:";
  for (const Finding& finding : bounds.findings)
    if (finding.mathematics.failed() && finding.name.starts_with(kOutput)) return finding.name.substr(kOutput.size());
  return {};
}

std::int64_t calls_of(const Graph* program, const std::string& op) {
  if (program == nullptr) return 0;
  return std::ranges::count_if(program->opaque,
                               [&](const OpaqueCall& call) { return program->origins[call.origin].op == op; });
}

// Names one of them, with its line: one that the other program does not call as often, or else the first.
std::string first_unmodelled(const JudgeInput& input) {
  for (const bool uneven : {true, false})
    for (const Graph* program : {input.graph, input.reference}) {
      if (program == nullptr) continue;
      for (const OpaqueCall& call : program->opaque) {
        const Origin& origin = program->origins[call.origin];
        if (uneven && calls_of(input.graph, origin.op) == calls_of(input.reference, origin.op)) continue;
        return ": " + origin.op + (origin.source.empty() ? "" : " (" + origin.source + ")") + " in the " +
               (program == input.graph ? "target" : "reference");
      }
    }
  return "";
}

// Whether one may be fed for the other: rows of one kind, more or fewer, or the same elements laid out otherwise.
bool stand_for(const Node& a, const Node& b) {
  if (is_float(a.result) != is_float(b.result)) return false;
  const std::int64_t m = count(a.shape), n = count(b.shape);
  if (m == 0 || n == 0 || m % n == 0 || n % m == 0) return true;
  return a.shape.size() > 1 && a.shape.size() == b.shape.size() &&
         std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
}

// Data that the target alone was fed, where the reference alone was fed what it may stand for. What two forms of one
// program hold besides, as offsets for numbers of segments, is no other data.
std::optional<NodeId> fed_otherwise(const JudgeInput& input) {
  const Correspondence& match = input.bounds->match;
  for (const NodeId id : match.foreign_data) {
    const Node& ours = input.graph->nodes[id];
    const bool found = std::ranges::any_of(
        match.foreign_reference_data, [&](NodeId other) { return stand_for(ours, input.reference->nodes[other]); });
    if (found) return id;
  }
  return std::nullopt;
}

}  // namespace

// The largest relative uncertainty of a number that Python computed, and where it came in.
std::string python_numbers(const JudgeInput& input) {
  if (input.bounds->uncertain_numbers.empty()) return "a number of the golden run, which does not tell it";
  const auto relative = [](const UncertainNumber& number) { return number.uncertainty / std::fabs(number.value); };
  const UncertainNumber& first = *std::ranges::max_element(input.bounds->uncertain_numbers, {}, relative);
  const Graph& program = first.in_reference ? *input.reference : *input.graph;
  return number(first.value) + " for " + at(place_of(program, first.node)) +
         (first.in_reference ? " of the reference" : "") + ", known to " + number(relative(first));
}

// Mathematics, or a bare value, differs at a tap, and numbers that Python computed out of sight may be the reason.
void decide_python_numbers(const JudgeInput& input, const Finding& finding, const Answer& answer, Verdict* verdict) {
  decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
         "Target and reference differ at " + finding.name + " by " + number(answer.deviation) +
             ", where numbers come in that Python may have computed, or decided by, from what it read of tensors " +
             "(.item()): " + python_numbers(input) + ". Whether it computed them alike is not known.",
         &finding, &answer);
}

std::string unmoved_names(const Bounds& bounds) {
  std::vector<std::string> names;
  for (const MissingTap& tap : bounds.unmoved)
    if (tap.in_reference == bounds.unmoved.front().in_reference) names.push_back(tap.tap);
  return joined(names);
}

// Whether one program moves what the other, in this step, leaves as it was, and does not move elsewhere: a target that
// nothing moved since the step before, which is known, or a reference that moved it itself in its step before.
bool stands_still(const JudgeInput& input) {
  const std::vector<MissingTap>& unmoved = input.bounds->unmoved;
  return input.follows && !unmoved.empty() && std::ranges::all_of(unmoved, [&](const MissingTap& tap) {
           return !tap.by_python && (tap.in_reference || input.reference_updates.contains(tap.tap));
         });
}

// A parameter's gradient, update or state that arrives in one program only.
bool decide_structure(const JudgeInput& input, Verdict* verdict) {
  const std::vector<MissingTap>& missing =
      input.bounds->missing_taps.empty() && stands_still(input) ? input.bounds->unmoved : input.bounds->missing_taps;
  if (missing.empty()) return false;
  const MissingTap& first = missing.front();
  std::vector<std::string> names;
  for (const MissingTap& tap : missing)
    if (tap.in_reference == first.in_reference && tap.held == first.held) names.push_back(tap.tap);
  verdict->suspect = place_of(first.in_reference ? *input.reference : *input.graph, first.node);
  verdict->suspect_in_reference = first.in_reference;
  verdict->suspect_detail = first.unused ? "the parameter's first use, which has no counterpart"
                                         : "on the way to " + first.tap + " the first without a counterpart";
  // What a reference that stands still does between its steps is not seen.
  const bool seen = first.in_reference || !input.bounds->missing_taps.empty();
  decide(verdict, Outcome::kTypeII, seen ? Grade::kProven : Grade::kFirstOrder, Cause::kStructure,
         std::string(first.in_reference ? "The reference" : "The target") + " gives " + joined(names) + ", and the " +
             (first.in_reference ? "target" : "reference") +
             (first.held ? ", which holds it too, leaves it as it was."
                         : ", which has the same parameters, does not: a branch was cut, or a parameter left out."));
  verdict->deciding_tap = first.tap;
  return true;
}

// What both programs carry into the step, and the step before left apart, is not the same gradient.
bool decide_carried(const JudgeInput& input, Verdict* verdict) {
  const GradientApart& apart = input.apart;
  if (apart.leaf.empty() || input.reference == nullptr || !still_apart(apart, *input.graph, *input.reference))
    return false;
  const auto leaf = std::ranges::find(input.graph->leaves, apart.leaf, &GraphLeaf::name);
  verdict->suspect = place_of(*input.graph, leaf->node);
  verdict->suspect_in_reference = false;
  verdict->suspect_detail = "what the step before made of it after backward, or where it was to be cleared";
  decide(verdict, Outcome::kTypeII, Grade::kProven, Cause::kLeafMismatch,
         "The gradients that the step before left, and this one adds to, are not the same: on the same leaves " +
             apart.leaf + " differs by " + number(apart.by) + ".");
  return true;
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
           "The reference uses leaves that the target does not have, or use: " + joined(bounds.match.missing) +
               (bounds.match.missing.front().starts_with("state:")
                    ? "; if it keeps the like under no name, name that with audit.state()."
                    : "."));
    return true;
  }
  if (!bounds.unpaired_taps.empty() && bounds.skipped_taps.empty() && worst(bounds, mathematics, asked) == nullptr) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference have no tap in common: " + joined(bounds.unpaired_taps) + ".");
    return true;
  }
  const Finding* broken = nullptr;  // the first tap that localisation looked at, otherwise the worst
  for (const Finding& finding : bounds.findings)
    if (finding.mathematics.disproved() && finding.elements == 1 && broken == nullptr) broken = &finding;
  // What is proven comes before what lies further apart: which of two taps does is a matter of roundings.
  const auto confirmed = [](const Answer& answer) { return answer.disproved() && answer.confirmed; };
  if (broken == nullptr) broken = worst(bounds, mathematics, confirmed);
  if (broken == nullptr) broken = worst(bounds, mathematics, disproved);
  // A tap that cannot be answered silences none that is.
  if (const Finding* open = worst(bounds, mathematics, lost_in_replay); open != nullptr && broken == nullptr) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Mathematics could not be compared at " + open->name + ": our own replay is too uncertain there.", open,
           &open->mathematics);
    return true;
  }
  if (const Finding* open = worst(bounds, mathematics, lost_in_python); open != nullptr && broken == nullptr) {
    decide_python_numbers(input, *open, open->mathematics, verdict);
    return true;
  }
  if (const Finding* open = worst(bounds, mathematics, turned); open != nullptr && broken == nullptr) {
    decide(
        verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
        "Target and reference agree at " + open->name +
            " only if what rounding alone decides, decisions near a tie without a counterpart and signs of what is " +
            "zero by mathematics, came out otherwise than in exact arithmetic.",
        open, &open->mathematics);
    return true;
  }
  if (broken == nullptr && bounds.taken_for) {
    const MatchedItem& item = *bounds.taken_for;
    const Graph &own = item.in_reference ? *input.reference : *input.graph,
                &other = item.in_reference ? *input.graph : *input.reference;
    if (item.evidence == Evidence::kKept)
      decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
             "Target and reference agree only if what they keep between steps under no name is one thing, " +
                 at(place_of(own, item.item)) + " and the reference's " + at(place_of(other, *item.counterpart)) +
                 ": name it with audit.state().");
    else
      decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
             "Target and reference agree only if " + at(place_of(own, item.item)) +
                 (item.in_reference ? " of the reference" : " of the target") +
                 " is what the other program computes: " + at(place_of(other, *item.counterpart)) +
                 ". It lies near that, and no more is known of it.");
    return true;
  }
  if (broken == nullptr && bounds.free_numbers == FreeNumbers::kOpen) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference agree only if a number next to 1 that one of them is given, as 1 - lr * weight_decay, "
           "was rounded before: they differ by no more than its last digit in a kernel's format.");
    return true;
  }
  if (broken == nullptr && bounds.rounded_items == RoundedItems::kOpen) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference agree only if data or buffers that both hold are roundings themselves, which move "
           "them by as much as they differ.");
    return true;
  }
  if (broken == nullptr && bounds.indifferent_call) {
    const Origin& origin = input.graph->origins[*bounds.indifferent_call];
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference feed " + origin.op + ", which is not modelled, with different inputs, and it gives " +
               "nearly the same: whether they compute the same there is not known.");
    return true;
  }
  if (broken == nullptr && bounds.unequal_call) {
    const Origin& origin = input.graph->origins[*bounds.unequal_call];
    verdict->suspect = Place{origin.op, origin.source, origin.module, ""};
    verdict->suspect_detail = "equal inputs, other results";
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference feed " + origin.op +
               ", which is not modelled, with equal inputs, and it gives other " +
               "results: plumbline.define() can tell what it is to compute.");
    return true;
  }
  if (broken == nullptr || bounds.policy) return false;
  if (bounds.hangs_on_kept) {
    const MatchedItem& item = *bounds.hangs_on_kept;
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference differ at " + broken->name + " by " + number(broken->mathematics.deviation) +
               ", which hangs on what " + (item.in_reference ? "the reference" : "the target") +
               " keeps between steps under no name, " +
               at(place_of(item.in_reference ? *input.reference : *input.graph, item.item)) +
               ", and what the other has in its place is not known: name it with audit.state().");
    return true;
  }

  if (!bounds.cuts_complete) {
    decide(verdict, Outcome::kInconclusive, Grade::kUnspecified, Cause::kUnanswered,
           "Target and reference differ at " + broken->name +
               ", but operations that are not modelled, and have no counterpart, may lie before it" +
               first_unmodelled(input) + ".",
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
  const Grade of_data = bounds.match.handed || bounds.hangs_on ? Grade::kFirstOrder : Grade::kProven;
  std::string doubt;
  if (bounds.hangs_on) {
    const MatchedItem& item = *bounds.hangs_on;
    doubt = " It would be explained if " +
            at(place_of(item.in_reference ? *input.reference : *input.graph, item.item)) +
            (item.in_reference ? " of the reference" : " of the target") +
            (item.evidence == Evidence::kIdentical ? ", which both programs hold,"
                                                   : ", which the other program does not hold,") +
            " was made with a loss of digits.";
  }
  if (const std::optional<NodeId> fed = fed_otherwise(input)) {
    verdict->suspect = place_of(*input.graph, *fed);
    verdict->suspect_in_reference = false;
    verdict->suspect_detail = "the two runs were fed different data";
    decide(verdict, Outcome::kTypeII, of_data, Cause::kLeafMismatch,
           "Target and reference were fed different data, and differ at " + broken->name + " by " +
               number(broken->mathematics.deviation) + "." + doubt,
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
    decide(verdict, Outcome::kTypeII, of_data, Cause::kLeafMismatch,
           "The reference was fed data that no rank of the target was, and they differ at " + broken->name + " by " +
               number(broken->mathematics.deviation) + "." + doubt,
           broken, &broken->mathematics);
    return true;
  }
  const std::string suspect = verdict->suspect ? "; suspect " + at(*verdict->suspect) : std::string();
  const std::string module = first_module(bounds);
  const Grade grade = !broken->mathematics.beyond_worst_case()            ? Grade::kStatistical
                      : broken->mathematics.confirmed && !bounds.hangs_on ? Grade::kProven
                                                                          : Grade::kFirstOrder;
  decide(verdict, Outcome::kTypeII, grade, Cause::kMathematics,
         "Target and reference compute different mathematics: on the same leaves " + broken->name + " differs by " +
             number(broken->mathematics.deviation) + " where " + number(broken->mathematics.envelope) + " is possible" +
             suspect + "." + (module.empty() ? "" : " The first module that is not explained is " + module + ".") +
             doubt,
         broken, &broken->mathematics);
  return true;
}

bool decide_reference(const JudgeInput& input, Verdict* verdict) {
  const std::optional<ReferenceFault>& fault = input.bounds->reference_fault;
  if (!fault) return false;
  verdict->suspect = place_of(*input.reference, fault->node);
  verdict->suspect_in_reference = true;
  verdict->suspect_detail = "off by " + number(fault->deviation) + ", allowed " + number(fault->bound);
  decide(verdict, Outcome::kTypeII, Grade::kProven, Cause::kReferenceAtFault,
         "Target and reference compute the same mathematics, but the reference's " +
             (fault->tap.empty() ? "result of " + at(*verdict->suspect) : "tap " + fault->tap) +
             " lies outside of what its inputs allow under any rounding.");
  verdict->deciding_tap = fault->tap;
  verdict->deviation = fault->deviation;
  verdict->envelope = fault->bound;
  verdict->margin = fault->bound > 0 ? fault->deviation / fault->bound : HUGE_VAL;
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

// Two programs that are one but for a number, which did not show even in our replays.
void add_other_number(const Graph& graph, const Graph& reference, Verdict* verdict) {
  if (graph.nodes.size() != reference.nodes.size()) return;
  std::optional<NodeId> other;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node &a = graph.nodes[id], &b = reference.nodes[id];
    if (a.primitive != b.primitive || a.inputs != b.inputs || a.shape != b.shape) return;
    const double ours = a.attributes.scalar, theirs = b.attributes.scalar;
    const bool same = ours == theirs || (std::isnan(ours) && std::isnan(theirs));
    if (!other && a.primitive == Primitive::kConstant && !same) other = id;
  }
  if (!other) return;
  const Place place = place_of(graph, *other);
  verdict->hazards.push_back({"latent_difference", place, 1, "look at the place named: on other data the taps may part",
                              "It did not show in any bit of the taps: " + at(place) + " takes " +
                                  number(graph.nodes[*other].attributes.scalar) + ", and in the reference " +
                                  number(reference.nodes[*other].attributes.scalar) + "."});
}

}  // namespace plumbline::judging
