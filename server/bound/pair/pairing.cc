#include "server/bound/pair/pairing.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>

#include "server/bound/findings/localize.h"
#include "server/bound/match/starts.h"
#include "server/bound/pair/carried.h"
#include "server/bound/pair/confirm.h"
#include "server/bound/pair/cuts.h"
#include "server/bound/pair/distances.h"
#include "server/bound/pair/drill.h"
#include "server/bound/pair/kept.h"
#include "server/bound/pair/parting.h"
#include "server/bound/pair/policy_of_reference.h"
#include "server/bound/pair/questions.h"
#include "server/bound/pair/reconcile.h"
#include "server/bound/pair/reference_execution.h"
#include "server/bound/pair/replays.h"
#include "server/bound/pair/updates.h"
#include "server/bound/replay/range.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

bool same_node(const Node& a, const Node& b) {
  return a.primitive == b.primitive && a.inputs == b.inputs && a.attributes == b.attributes && a.shape == b.shape &&
         a.result == b.result && a.compute == b.compute;
}

bool same_terms(const GraphTap& a, const GraphTap& b) {
  return a.name == b.name && std::equal(a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end(),
                                        [](const GraphTap::Term& x, const GraphTap::Term& y) {
                                          return x.node == y.node && x.weight == y.weight;
                                        });
}

bool same_program(const Graph& target, const std::vector<LeafValue>& target_leaves, const Graph& reference,
                  const std::vector<LeafValue>& reference_leaves) {
  const auto nodes = [](const Graph& graph) {
    return std::span(graph.nodes).first(graph.nodes.size() - graph.carried_nodes);
  };
  if (!std::ranges::equal(nodes(target), nodes(reference), same_node) ||
      !std::equal(target.taps.begin(), target.taps.end(), reference.taps.begin(), reference.taps.end(), same_terms) ||
      target.leaves.size() != reference.leaves.size())
    return false;
  for (std::size_t i = 0; i < target.leaves.size(); ++i) {
    if (target.leaves[i].node != reference.leaves[i].node || !target_leaves[i] != !reference_leaves[i]) return false;
    if (target_leaves[i] && !bitwise_equal(target_leaves[i], reference_leaves[i])) return false;
  }
  return true;
}

// Agreement that nothing but signs of zeros brings about.
Answer by_signs_of_zero() {
  Answer answer{true, 0, 0, 0};
  answer.by_freedom = answer.by_jumps = true;
  return answer;
}

// Taps where one program's mathematics is infinite or no number, and the other's is not, or where neither is known.
// `by_signs`: those where signs of zeros alone decide of that.
void note_patterns(const Gap& gap, const std::set<std::size_t>& by_signs, Bounds* bounds) {
  for (const PairedTap& pair : gap.pairs()) {
    const Gap::Parting parting = gap.parting(pair);
    if (parting == Gap::Parting::kNone) continue;
    Answer& answer = finding_named(gap.probe(pair), bounds).mathematics;
    if (by_signs.count(pair.target) != 0) {
      if (!answer.failed()) answer = by_signs_of_zero();
    } else if (parting == Gap::Parting::kOther)
      answer = Answer{true, HUGE_VAL, 0, 0};
    else if (!answer.failed())  // What its finite elements disprove stays so.
      answer = Answer{true, 0, HUGE_VAL, HUGE_VAL};
  }
}

// Of data that Python handed back, the largest number stands for all: each is known as far, relative to its size.
void note_data(const Replay& replay, const Freedoms& handed, bool in_reference, std::vector<UncertainNumber>* noted) {
  for (const auto& [node, width] : handed) {
    const Array values = replay.value(node).materialize().on_host(), known = width.on_host();
    const double* const largest = std::max_element(known.data(), known.data() + known.count());
    noted->push_back({node, values.data()[largest - known.data()], *largest, in_reference});
  }
}

// Finds, for taps that one program has alone, where it leaves what the other computes, as a branch does that was cut
// there.
void place_missing(const BoundsInput& input, const PairReplays& replays, Bounds* bounds) {
  if (bounds->missing_taps.empty() || bounds->missing_taps.front().unused) return;
  MissingTap& first = bounds->missing_taps.front();
  LocalizeSide target{*input.target, replays.target, {}}, reference{*input.reference, replays.reference, {}};
  LocalizeSide& with = first.in_reference ? reference : target;
  with.failing = {first.node};
  first.node = departure(with, first.in_reference ? target : reference).value_or(first.node);
}

}  // namespace

MatchedReference match_programs(const BoundsInput& input, const std::vector<LeafValue>& target_leaves, Bounds* bounds) {
  const Graph &target = *input.target, &reference = *input.reference;
  if (!bounds->match.missing.empty()) return {};
  if (const double scale = input.carried_scale.value_or(1); scale != 1)
    unscale_carried(scale, target, reference, &bounds->match);

  std::vector<LeafValue>& leaves = bounds->match.reference_values;
  MatchedReference matched;
  matched.cuts = match_opaque_calls(target, target_leaves, reference, leaves);
  transplant(matched.cuts, target, target_leaves, reference, &leaves);
  share_starts(target, target_leaves, reference, &leaves);
  bounds->cuts_complete = matched.cuts.complete;
  bounds->transplanted = matched.cuts.calls.size();
  matched.pairs = pair_taps(target, reference, bounds);
  matched.replays.one_program = same_program(target, target_leaves, reference, leaves);
  return matched;
}

void match_replays(const BoundsInput& input, const std::vector<LeafValue>& target_leaves, const Replay& target_exact,
                   Replay reference_exact, const std::vector<bool>& enclosed, MatchedReference* found, Bounds* bounds) {
  if (!bounds->match.missing.empty()) return;
  const Graph &target = *input.target, &reference = *input.reference;
  MatchedReference& matched = *found;
  if (matched.replays.one_program) {
    matched.replays.target = matched.replays.reference = target_exact;
    matched.replays.target_leaves = matched.replays.reference_leaves = target_leaves;
    return;
  }
  matched.before = bounds->match;
  matched.replays =
      replay_pair(input, target_exact, std::move(reference_exact), &bounds->match, &bounds->shared_decisions);
  const PairReplays& replays = matched.replays;
  const MatchSide target_side{target, replays.target}, reference_side{reference, replays.reference};
  settle_readings(target_side, reference_side, &matched.pairs);
  bounds->loss_scale = leave_out_scaled_losses(target_side, reference_side, &matched.pairs);
  if (!bounds->cuts_complete)
    bounds->cuts_complete =
        complete_but_for_overwritten(matched.cuts, target, replays.target, reference, replays.reference);
  place_missing(input, replays, bounds);
  note_numbers(target, replays.target_slack.numbers, false, &bounds->uncertain_numbers);
  note_numbers(reference, replays.reference_slack.numbers, true, &bounds->uncertain_numbers);
  note_data(replays.target, replays.target_slack.handed, false, &bounds->uncertain_numbers);
  note_data(replays.reference, replays.reference_slack.handed, true, &bounds->uncertain_numbers);
  if (replays.target_handed.tie) bounds->uncertain_numbers.push_back(*replays.target_handed.tie);
  if (replays.reference_handed.tie) {
    bounds->uncertain_numbers.push_back(*replays.reference_handed.tie);
    bounds->uncertain_numbers.back().in_reference = true;
  }
  const auto loose = [](const Slack& slack, const HandedBack& handed) {
    std::vector<NodeId> nodes = of_python(slack);
    nodes.insert(nodes.end(), handed.unknown.begin(), handed.unknown.end());
    nodes.insert(nodes.end(), handed.after_a_tie.begin(), handed.after_a_tie.end());
    for (const auto& [node, width] : slack.freedoms) nodes.push_back(node);
    return nodes;
  };
  const std::vector<bool> uncertain =
      taps_reached_by(loose(replays.target_slack, replays.target_handed),
                      loose(replays.reference_slack, replays.reference_handed), input, matched.pairs);
  matched.updates = updates_of(matched.pairs, {target, replays.target, target_leaves},
                               {reference, replays.reference, bounds->match.reference_values},
                               [&](std::size_t tap) { return enclosed[tap] && !uncertain[tap]; });
}

void pair_with_reference(const BoundsInput& input, const MatchedReference& matched, const Gap& gap,
                         const Replay& target_exact, const Replay& followed, const std::vector<Probe>& probes,
                         const std::vector<Envelope>& envelopes, Bounds* bounds) {
  const PairReplays& replays = matched.replays;
  PairedQuestions questions = paired_questions(input, gap, matched.updates, probes);
  std::vector<Envelope> own;
  for (std::size_t p : questions.planned) own.push_back(envelopes[p]);
  for (Envelope& envelope : gap.own_envelopes(questions.others())) own.push_back(std::move(envelope));
  Asked asked;
  asked.updates = matched.updates;
  asked.probes = std::move(questions.probes);
  asked.answers = gap.ask(asked.probes, own);
  const std::vector<Probe> planned = asked.probes;
  asked.planned = planned.size();
  if (!replays.one_program) {
    add_standouts(input, gap, gap.as_executed() ? &followed : nullptr, &asked, &bounds->compared_elements);
  } else {
    for (const PairedTap& pair : matched.pairs)
      bounds->compared_elements += static_cast<std::uint64_t>(count(input.target->taps[pair.target].shape));
  }
  bounds->kept_left = compare_kept(input, replays, bounds->loss_scale.value_or(1));
  const bool tell = distances_tell(bounds->match);
  const std::optional<Distances> distances = compare_observed(input, matched.pairs, tell ? &replays : nullptr, bounds);
  note_jumps(input, replays, bounds->match, matched.pairs, asked.probes, &asked.answers);
  confirm(input, gap, asked.probes, &asked.answers);
  confirm_updates(input, gap, &asked);
  const std::set<std::size_t> by_signs = parted_by_signs_of_zero(input, gap);
  const auto parts = [&](const PairedTap& pair) {
    return gap.parting(pair) == Gap::Parting::kOther && by_signs.count(pair.target) == 0;
  };
  const bool other_pattern = std::ranges::any_of(matched.pairs, parts);
  const bool failed = asked.failed() || other_pattern;
  if (const std::optional<double> scale = failed ? common_scale(input, gap) : std::nullopt) {
    bounds->common_scale = scale;
    bounds->apart.scale = *scale * content_scale(*input.target, *input.reference);
    return;
  }
  if (failed && !input.carried_scale) {
    bool common = false;
    bounds->supposed_scale = supposed_scale(input, target_exact, matched, bounds->match, asked.probes, &common);
    if (bounds->supposed_scale) {
      if (common) bounds->apart.scale = 0;  // What is left now is not known, either.
      return;
    }
  }
  if (failed && !other_pattern &&
      (reconcile(input, target_exact, bounds->match.target_values, leaf_values(*input.reference), matched, asked,
                 bounds) ||
       round_shared_items(input, matched, asked, bounds))) {
    if (!by_signs.empty()) note_patterns(gap, by_signs, bounds);
    return;
  }
  if (failed) bounds->absorbed_scale = absorbed_scale(input, gap, asked.probes);
  if (failed && !bounds->absorbed_scale)
    bounds->absorbed_scale = absorbed_scale_of_kept(input, target_exact, matched, gap, asked.probes, bounds);
  if (bounds->absorbed_scale) {
    bounds->kept_left = compare_kept(input, replays, *bounds->absorbed_scale);
    bounds->apart.scale = content_scale(*input.target, *input.reference);
    compare_carried(input, replays, bounds);
    if (!bounds->apart.leaf.empty()) bounds->apart = {"", 0, 0};  // Some may be scaled, for another optimizer.
    return;
  }
  if (failed && !other_pattern) bounds->hangs_on_kept = hangs_on_kept(input, matched, asked);
  if (failed && !other_pattern) bounds->hangs_on = doubted_item(input, matched, asked, *bounds);
  set_answers(asked, bounds);
  note_patterns(gap, by_signs, bounds);
  compare_draws(input, replays, bounds);
  bounds->apart.scale = content_scale(*input.target, *input.reference);
  compare_carried(input, replays, bounds);
  if (!matched.cuts.calls.empty()) compare_cuts(input, replays, matched.cuts, bounds);
  if (!failed) {
    if (!replays.one_program) judge_by_reference_policy(input, gap, planned, bounds);
    if (distances) compare_errors(input, replays, *distances, bounds);
    return;
  }
  std::vector<std::size_t> failing;
  for (std::size_t p = 0; p < asked.probes.size(); ++p)
    if (asked.answers[p].failed() && asked.probes[p].parts.size() == 1)
      failing.push_back(asked.probes[p].parts.front().tap);
  for (const PairedTap& pair : matched.pairs)
    if (parts(pair)) failing.push_back(pair.target);
  drill_down(input, gap, failing, bounds);
}

}  // namespace plumbline
