#include "server/judge/rules.h"

namespace plumbline::judging {
namespace {

std::string evidence_of(const MatchedItem& item) {
  switch (item.evidence) {
    case Evidence::kIdentical:
      return "identical";
    case Evidence::kRounding:
      return item.format == Format::kUnknown ? "rounding" : "rounding to " + std::string(traits(item.format).name);
    case Evidence::kComputed:
      return "computed by the other program";
    case Evidence::kNamed:
      return "named alike";
    case Evidence::kKept:
      return "kept from step to step";
    case Evidence::kNone:
      return "no counterpart: its own rounding is free";
  }
  return {};
}

// What was matched by less than its bits.
void add_match_notes(const JudgeInput& input, Verdict* verdict) {
  const Correspondence& match = input.bounds->match;
  constexpr std::size_t kNotesMax = 8;
  std::size_t noted = 0, more = 0;
  for (const MatchedItem& item : match.items) {
    if (item.evidence == Evidence::kNamed) continue;  // Drift, which has its own note.
    if (noted == kNotesMax) {
      ++more;
      continue;
    }
    const Graph& own = item.in_reference ? *input.reference : *input.graph;
    const Graph& other = item.in_reference ? *input.graph : *input.reference;
    std::string note = std::string(item.in_reference ? "reference's " : "target's ") + at(place_of(own, item.item)) +
                       ": " + evidence_of(item);
    if (item.counterpart) note += ", " + at(place_of(other, *item.counterpart));
    verdict->notes.push_back(note);
    ++noted;
  }
  if (more > 0) verdict->notes.push_back(std::to_string(more) + " more items were matched by less than their bits");
  if (input.bounds->free_numbers == FreeNumbers::kRounded)
    verdict->notes.push_back(
        "numbers that only one program is given agree with the other's as far as their kernels round "
        "them");
  if (input.bounds->rounded_items == RoundedItems::kExchanged)
    verdict->notes.push_back(
        "data or buffers that both programs hold, and use for one another, agree as far as they are rounded "
        "themselves");
  if (input.bounds->shared_decisions > 0)
    verdict->notes.push_back(
        std::to_string(input.bounds->shared_decisions) +
        " decisions lie so near to a tie that either outcome is legal; both programs were compared "
        "on the target's");
  if (match.open_decisions > 0)
    verdict->notes.push_back(std::to_string(match.open_decisions) +
                             " decisions near a tie have no counterpart; either outcome was allowed");
  if (!match.target_grids.empty() || !match.reference_grids.empty())
    verdict->notes.push_back("roundings to a grid that the programs do not share were taken for formats: " +
                             std::to_string(match.target_grids.size() + match.reference_grids.size()));
}

}  // namespace

OpenTaps open_taps(const JudgeInput& input) {
  OpenTaps open;
  double elements = 0, of_open = 0;
  for (const Finding& finding : input.bounds->findings) {
    if (!finding.execution.asked && !finding.value.asked) continue;
    elements += static_cast<double>(finding.elements);
    const bool loss = finding.taps.size() == 1 && input.graph->taps[finding.taps[0]].kind == TapKind::kLoss;
    const auto contradicted = [](const Answer& answer) {
      return answer.vacuous() && !(answer.deviation <= answer.envelope);
    };
    if (!(finding.execution.vacuous() || finding.value.vacuous()) || contradicted(finding.execution) ||
        contradicted(finding.value) || loss)
      continue;
    of_open += static_cast<double>(finding.elements);
    open.findings.push_back(&finding);
  }
  if (of_open > 0) open.share = of_open / elements;
  return open;
}

void add_notes(const JudgeInput& input, Verdict* verdict) {
  const Bounds& bounds = *input.bounds;
  if (const OpenTaps open = open_taps(input); !open.findings.empty()) {
    std::vector<std::string> names;
    for (const Finding* finding : open.findings)
      names.push_back(finding->name + " (by " +
                      number(finding->execution.vacuous() ? finding->execution.envelope : finding->value.envelope) +
                      " of its size)");
    verdict->notes.push_back(
        number(100 * open.share) +
        " % of the elements are open, since rounding alone could move them that far: " + joined(names));
  }
  if (!bounds.match.drifted.empty())
    verdict->notes.push_back("carried drift: " + std::to_string(bounds.match.drifted.size()) +
                             " leaves differ between the runs (" + joined(bounds.match.drifted, 2) +
                             "); both were judged on the target's");
  if (bounds.value_reading && verdict->outcome == Outcome::kInconclusive)
    verdict->notes.push_back("the reference's other values are what the target computes " +
                             bounds.value_reading->words);
  add_match_notes(input, verdict);
  if (!bounds.unpaired_taps.empty())
    verdict->notes.push_back("taps without counterpart: " + joined(bounds.unpaired_taps));
  if (bounds.loss_scale)
    verdict->notes.push_back("the loss is " + factor(*bounds.loss_scale) +
                             " times the reference's, as all gradients are before one of the programs takes that out");
  if (bounds.transplanted > 0)
    verdict->notes.push_back(std::to_string(bounds.transplanted) +
                             " operations that are not modelled were compared by their inputs; what they gave in the "
                             "target was taken for both");
  if (!bounds.skipped_taps.empty())
    verdict->notes.push_back("one side found an overflow and skipped its update; not compared: " +
                             joined(bounds.skipped_taps));
  if (std::ranges::any_of(bounds.findings,
                          [](const Finding& f) { return f.mathematics.python > 0 || f.value.python > 0; }))
    verdict->notes.push_back(
        "numbers that Python may have computed from what it read of tensors (.item()) are not "
        "known exactly: " +
        std::to_string(bounds.uncertain_numbers.size()) + "; the worst is " + python_numbers(input));
  if (bounds.products_by_rows > 0)
    verdict->notes.push_back("large products checked by projections of their rows and by all elements of some: " +
                             std::to_string(bounds.products_by_rows) + "; a replay checks every element");
  if (bounds.unstable > 0)
    verdict->notes.push_back(std::to_string(bounds.unstable) + " decisions of " + std::to_string(bounds.decisions) +
                             " came out otherwise than in exact arithmetic; the audit followed the target's");
}

}  // namespace plumbline::judging
