#include "server/bound/pair/pairing.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>

#include "server/bound/findings/localize.h"
#include "server/bound/pair/carried.h"
#include "server/bound/pair/confirm.h"
#include "server/bound/pair/cuts.h"
#include "server/bound/pair/distances.h"
#include "server/bound/pair/draw_orders.h"
#include "server/bound/pair/drill.h"
#include "server/bound/pair/half_known.h"
#include "server/bound/pair/parting.h"
#include "server/bound/pair/policy_of_leaves.h"
#include "server/bound/pair/policy_of_reference.h"
#include "server/bound/pair/questions.h"
#include "server/bound/pair/reference_execution.h"
#include "server/bound/pair/replays.h"
#include "server/bound/pair/shared_items.h"
#include "server/bound/pair/standouts.h"
#include "server/bound/pair/updates.h"
#include "server/bound/replay/constants.h"
#include "server/bound/replay/range.h"
#include "server/bound/replay/taps.h"
#include "server/lower/emit.h"

namespace plumbline {
namespace {

constexpr std::size_t kAskedTogether = 8;  // Functionals of single taps that one sweep holds.

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

// Sets the answers of the taps that were enclosed.
void set_mathematics(const std::map<std::size_t, Answer>& answers, Bounds* bounds) {
  for (Finding& finding : bounds->findings) {
    if (!finding.proven || finding.taps.size() != 1) continue;
    if (const auto found = answers.find(finding.taps[0]); found != answers.end()) finding.mathematics = found->second;
  }
}

// Answers of mathematics at updates and state, by tap of the target that `asked` tells.
template <class Asked>
std::map<std::size_t, Answer> updates_of(const std::vector<PairedTap>& pairs, const PairedSide& target,
                                         const PairedSide& reference, const Asked& asked) {
  std::vector<std::size_t> updates;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::size_t tap = pairs[i].target;
    if (outlives_step(target.graph.taps[tap].kind) && asked(tap)) updates.push_back(i);
  }
  std::map<std::size_t, Answer> answers;
  for (const auto& [pair, answer] : compare_updates(target, reference, pairs, updates))
    answers[pairs[pair].target] = answer;
  return answers;
}

// What was asked of mathematics under one correspondence, and answered.
struct Asked {
  std::vector<Probe> probes;
  std::vector<Answer> answers;
  std::size_t planned = 0;                // So many of them were, the others stood out.
  std::map<std::size_t, Answer> updates;  // The key is a tap of the target.

  bool failed() const {
    return std::ranges::any_of(answers, &Answer::failed) ||
           std::ranges::any_of(updates, [](const auto& update) { return update.second.failed(); });
  }
  bool passed() const {
    return std::ranges::all_of(answers, &Answer::passed) &&
           std::ranges::all_of(updates, [](const auto& update) { return update.second.passed(); });
  }
};

void add_answers(const Gap& gap, const std::vector<Probe>& probes, Asked* asked) {
  std::vector<Answer> answers = gap.ask(probes);
  asked->probes.insert(asked->probes.end(), probes.begin(), probes.end());
  asked->answers.insert(asked->answers.end(), answers.begin(), answers.end());
}

// Asks what stands out from the replay's noise; what lies within its bound all the same is no question any more.
void add_standouts(const BoundsInput& input, const Gap& gap, const Replay* followed, Asked* asked,
                   std::uint64_t* elements) {
  const Standouts standouts = find_standouts(input, gap, asked->updates, followed);
  *elements = standouts.elements;
  std::vector<Answer> answers = gap.ask(standouts.probes);
  for (std::size_t p = 0; p < answers.size(); ++p) {
    if (answers[p].deviation <= answers[p].envelope) continue;
    asked->probes.push_back(standouts.probes[p]);
    asked->answers.push_back(answers[p]);
  }
}

// Notes of what agrees by freedom alone whether it does so only by that of open decisions: which way they went is known
// of our replays, and that they went otherwise in the executions is not.
void note_jumps(const BoundsInput& input, const PairReplays& replays, const Correspondence& match,
                const std::vector<PairedTap>& pairs, const std::vector<Probe>& probes, std::vector<Answer>* answers) {
  if (replays.target_jumps.empty() && replays.reference_jumps.empty()) return;
  // Grids that were taken for formats are rounded in any way.
  if (!match.target_grids.empty() || !match.reference_grids.empty()) return;
  std::vector<std::size_t> asked;
  std::vector<Probe> again;
  for (std::size_t p = 0; p < probes.size(); ++p) {
    if (!(*answers)[p].by_freedom || !(*answers)[p].passed()) continue;
    asked.push_back(p);
    again.push_back(probes[p]);
  }
  if (again.empty()) return;
  PairReplays settled = replays;
  for (NodeId node : replays.target_jumps) settled.target_slack.freedoms.erase(node);
  for (NodeId node : replays.reference_jumps) settled.reference_slack.freedoms.erase(node);
  const std::vector<Answer> found = Gap(input, settled, pairs).ask(again);
  for (std::size_t i = 0; i < asked.size(); ++i) (*answers)[asked[i]].by_jumps = !found[i].passed();
}

// The same questions under another correspondence, with its own stand-outs.
Asked asked_again(const BoundsInput& input, const Gap& gap, const Correspondence& match, const Asked& before) {
  Asked asked;
  add_answers(gap, before.probes, &asked);
  asked.planned = before.planned;
  if (!before.updates.empty()) {
    const PairReplays& replays = gap.replays();
    asked.updates = updates_of(gap.pairs(), {*input.target, replays.target, replays.target_leaves},
                               {*input.reference, replays.reference, replays.reference_leaves},
                               [&](std::size_t tap) { return before.updates.count(tap) != 0; });
    // What its radii, which count no freedom, say nothing of any more or refuse is asked as a functional.
    const bool free =
        replays.shared_items.has_value() || !replays.target_slack.empty() || !replays.reference_slack.empty();
    std::vector<std::pair<double, std::size_t>> left;
    for (const auto& [tap, answer] : before.updates) {
      const auto found = asked.updates.find(tap);
      if (found != asked.updates.end() && !(free && found->second.failed())) continue;
      const double margin = answer.margin();
      left.emplace_back(margin <= HUGE_VAL ? -margin : -HUGE_VAL, tap);  // NaN has no place in an order.
      asked.updates.erase(tap);
    }
    std::ranges::sort(left);  // A few at a time, the worst first, whose failure is enough.
    for (std::size_t i = 0; i < left.size() && !asked.failed(); i += kAskedTogether) {
      std::vector<Probe> probes;
      for (const auto& [margin, tap] : std::span(left).subspan(i, std::min(kAskedTogether, left.size() - i)))
        probes.push_back(gap.probe(*gap.find(tap)));
      add_answers(gap, probes, &asked);
    }
  }
  std::uint64_t elements = 0;
  add_standouts(input, gap, nullptr, &asked, &elements);
  note_jumps(input, gap.replays(), match, gap.pairs(), asked.probes, &asked.answers);
  confirm(input, gap, asked.probes, &asked.answers);
  return asked;
}

// Confirms of updates and state that differ beyond their radii, which count no freedom of constants, the one that does
// most, by a functional of it; where what is confirmed says so already, none.
void confirm_updates(const BoundsInput& input, const Gap& gap, Asked* asked) {
  const auto sure = [](const Answer& answer) { return answer.failed() && answer.confirmed; };
  if (std::ranges::any_of(asked->answers, sure)) return;
  std::pair<const std::size_t, Answer>* worst = nullptr;
  for (auto& update : asked->updates)
    if (update.second.failed() && (worst == nullptr || !(update.second.margin() <= worst->second.margin())))
      worst = &update;
  if (worst == nullptr) return;
  const std::vector<Probe> probe{gap.probe(*gap.find(worst->first))};
  std::vector<Answer> answer = gap.ask(probe);
  confirm(input, gap, probe, &answer);
  worst->second.confirmed = sure(answer.front());
}

Finding& finding_named(const Probe& probe, Bounds* bounds) {
  for (Finding& finding : bounds->findings)
    if (finding.name == probe.name) return finding;
  Finding& finding = bounds->findings.emplace_back();
  finding.name = probe.name;
  for (const Probe::Part& part : probe.parts) {
    finding.taps.push_back(part.tap);
    finding.elements += static_cast<std::uint64_t>(part.elements);
  }
  return finding;
}

// Findings of what was planned; of what stood out beside that, where it is not passed.
void set_answers(const Asked& asked, Bounds* bounds) {
  for (std::size_t p = 0; p < asked.probes.size(); ++p)
    if (p < asked.planned || !asked.answers[p].passed())
      finding_named(asked.probes[p], bounds).mathematics = asked.answers[p];
  set_mathematics(asked.updates, bounds);
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

// The number that a tensor of one element holds, but for a parameter.
std::optional<double> held_number(const Graph& graph, const GraphLeaf& leaf) {
  const Shape& shape = graph.nodes[leaf.node].shape;
  if (count(shape) != 1 || !leaf.bytes || !is_float(leaf.format) || leaf.role == LeafRole::kParameter) return {};
  return Array(LeafValue(leaf.format, leaf.bytes, shape)).item();
}

// The numbers that the program gave to its operations and the other did not are free by half a unit in the last place
// of the format in which a kernel takes them. Numbers that both have are one, whoever gave them (replay/constants.h).
// Those that only one program holds in a tensor or a buffer are free as it holds them: 0.999 in fp32, from which it
// makes 1 - 0.999, is not what the other's Python has.
Freedoms free_numbers(const Graph& graph, const Graph& other) {
  SetOfNumbers shared;
  for (const Node& node : other.nodes)
    if (node.primitive == Primitive::kConstant) shared.insert(node.attributes.scalar);
  for (const Draw& draw : other.draws)
    for (const Draw::Parameter& parameter : draw.place)
      if (!parameter.node) shared.insert(parameter.number);
  Freedoms freedoms;
  for (NodeId id : graph.arguments) {
    const Node& node = graph.nodes[id];
    if (node.primitive != Primitive::kConstant || shared.count(node.attributes.scalar) != 0) continue;
    if (const Array free = freedom_of(compute_format(node.compute), Array::scalar(node.attributes.scalar)))
      freedoms[id] = Array::full(node.shape, free.item() / 2);  // Doubled where it is charged (gap.cc).
  }
  SetOfNumbers held;
  for (const GraphLeaf& leaf : other.leaves)
    if (const std::optional<double> number = held_number(other, leaf)) held.insert(*number);
  for (const GraphLeaf& leaf : graph.leaves) {
    const std::optional<double> number = held_number(graph, leaf);
    if (!number || held.count(*number) != 0) continue;
    if (const Array free = freedom_of(leaf.format, Array::scalar(*number)))
      freedoms[leaf.node] = Array::full(graph.nodes[leaf.node].shape, free.item() / 2);
  }
  return freedoms;
}

// The functional that fails by most, if one does.
std::optional<std::size_t> worst_of(const Asked& asked) {
  std::optional<std::size_t> worst;
  for (std::size_t p = 0; p < asked.answers.size(); ++p)
    if (asked.answers[p].failed() && (!worst || !(asked.answers[p].margin() <= asked.answers[*worst].margin())))
      worst = p;
  return worst;
}

// Takes what both programs hold for roundings: of items that they exchange, by which they agree; then of all, which
// decides nothing, and nothing either where roundings move much.
bool round_shared_items(const BoundsInput& input, const MatchedReference& matched, const Asked& before,
                        Bounds* bounds) {
  constexpr double kExchanged = 0.25, kMuch = 0x1p-10;  // Relative to what is compared.
  // Where the worst of it is no rounding of these, nothing else need be asked.
  const std::optional<std::size_t> worst = worst_of(before);
  PairReplays replays = matched.replays;
  for (const double share : {kExchanged, 0.0}) {
    replays.shared_items = SharedItems{share, /*half_known=*/false};
    const Gap gap(input, replays, matched.pairs);
    if (worst && !gap.ask({before.probes[*worst]}).front().passed()) continue;
    const Asked asked = asked_again(input, gap, bounds->match, before);
    if (!asked.passed()) continue;
    const auto much = [&](const Answer& answer) { return answer.by_freedom && !(answer.freedom <= kMuch); };
    const bool told = share > 0 && std::ranges::none_of(asked.answers, much);
    set_answers(asked, bounds);
    bounds->rounded_items = told ? RoundedItems::kExchanged : RoundedItems::kOpen;
    return true;
  }
  return false;
}

// The functional that fails by most, or that of an update that fails.
std::optional<Probe> failing_probe(const Asked& asked, const Gap& gap) {
  if (const std::optional<std::size_t> worst = worst_of(asked)) return asked.probes[*worst];
  for (const auto& [tap, answer] : asked.updates)
    if (answer.failed()) return gap.probe(*gap.find(tap));
  return std::nullopt;
}

// An item that would explain the accusation if it, and others like it, were no more than half known: one that one
// program alone holds, or one of which the programs make different use. What says nothing then is no accusation either.
std::optional<MatchedItem> doubted_item(const BoundsInput& input, const MatchedReference& matched, const Asked& before,
                                        const Bounds& bounds) {
  constexpr double kOtherwise = 0x1p-6;  // One of many layers that makes a table again uses it otherwise.
  const Freedoms ours = half_known(*input.target, bounds.match, false),
                 theirs = half_known(*input.reference, bounds.match, true);
  PairReplays replays = matched.replays;
  for (const auto& [node, free] : ours) replays.target_slack.freedoms[node] = free;
  for (const auto& [node, free] : theirs) replays.reference_slack.freedoms[node] = free;
  // One that fails by itself is asked first: in most cases that is all.
  const std::optional<Probe> failing = failing_probe(before, Gap(input, replays, matched.pairs));
  if (!failing) return std::nullopt;
  const auto fails = [&] {
    const Gap gap(input, replays, matched.pairs);
    return gap.ask({*failing}).front().failed() || asked_again(input, gap, bounds.match, before).failed();
  };
  if (!(ours.empty() && theirs.empty()) && !fails()) {
    const bool in_reference = ours.empty();
    return MatchedItem{Evidence::kNone, in_reference, (in_reference ? theirs : ours).begin()->first, std::nullopt};
  }
  replays.shared_items = SharedItems{kOtherwise, /*half_known=*/true};
  if (fails()) return std::nullopt;
  const Probe theirs_of_it = Gap(input, replays, matched.pairs).reindexed(*failing);
  const Moved moved = moved_by_shared_items(*replays.shared_items, input, replays, {*failing}, {theirs_of_it}).front();
  if (!moved.most_by) return std::nullopt;
  return MatchedItem{Evidence::kIdentical, false, *moved.most_by, std::nullopt};
}

// Reads items as their own content, where they were taken for what the other program computes by less than what is
// beyond doubt; then as what it computes, where there is no evidence of that. Own content that cannot be told to differ
// proves nothing.
bool read_items_otherwise(const BoundsInput& input, const Replay& target_exact, const MatchedReference& matched,
                          const Asked& before, Bounds* bounds) {
  for (const Computed reading : {Computed::kNever, Computed::kEver}) {
    const bool never = reading == Computed::kNever;
    if (never ? !bounds->match.doubtful : bounds->match.weak.empty()) continue;
    Correspondence read = matched.before;
    read.computed = reading;
    std::uint64_t shared = 0;
    const PairReplays replays = replay_pair(input, target_exact, {}, &read, &shared);
    if (read.open_decisions > bounds->match.open_decisions) continue;
    const Gap gap(input, replays, matched.pairs);
    const Asked asked = asked_again(input, gap, read, before);
    if (never ? asked.failed() : !asked.passed()) continue;
    set_answers(asked, bounds);
    bounds->match = std::move(read);
    if (!never) bounds->taken_for = bounds->match.weak.front();
    return true;
  }
  return false;
}

// Another correspondence that the programs may have, under which everything agrees: an accusation must survive the most
// favourable reading.
bool reconcile(const BoundsInput& input, const Replay& target_exact, const std::vector<LeafValue>& target_leaves,
               const std::vector<LeafValue>& own_reference_leaves, const MatchedReference& matched, const Asked& before,
               Bounds* bounds) {
  const std::vector<PairedTap>& pairs = matched.pairs;
  const PairReplays& strict = matched.replays;
  PairReplays with_numbers = strict;
  with_numbers.target_slack.freedoms.merge(free_numbers(*input.target, *input.reference));
  with_numbers.reference_slack.freedoms.merge(free_numbers(*input.reference, *input.target));
  if (with_numbers.target_slack.freedoms.size() + with_numbers.reference_slack.freedoms.size() >
      strict.target_slack.freedoms.size() + strict.reference_slack.freedoms.size()) {
    const Gap gap(input, with_numbers, pairs);
    const Asked asked = asked_again(input, gap, bounds->match, before);
    if (asked.passed()) {
      set_answers(asked, bounds);
      bounds->free_numbers = true;
      return true;
    }
  }
  const WidePair wide = with_master_copies(input, bounds->match, own_reference_leaves);
  if (wide.format != Format::kUnknown) {
    const Gap gap(input, wide.replays, pairs);
    const Asked asked = asked_again(input, gap, bounds->match, before);
    if (asked.passed()) {
      set_answers(asked, bounds);
      bounds->policy = wide.format;
      return true;
    }
  }
  for (std::vector<LeafValue>& order : other_draw_orders(*input.reference, bounds->match.reference_values)) {
    Correspondence exchanged = bounds->match;
    exchanged.reference_values = std::move(order);
    exchanged.reference_computed.clear();
    std::uint64_t shared = 0;
    const PairReplays replays = replay_pair(input, target_exact, {}, &exchanged, &shared);
    // The draws' own order brings decisions together; one that parts them frees what they decide, and explains nothing.
    if (exchanged.open_decisions > bounds->match.open_decisions) continue;
    const Gap gap(input, replays, pairs);
    const Asked asked = asked_again(input, gap, exchanged, before);
    if (!asked.passed()) continue;
    set_answers(asked, bounds);
    bounds->match = std::move(exchanged);
    return true;
  }
  if (read_items_otherwise(input, target_exact, matched, before, bounds)) return true;
  // Earlier steps' roundings excuse nothing where the leaves are known to be one thing in two formats.
  if (bounds->match.drifted.empty() || wide.tells_all_drift) return false;
  Correspondence own =
      correspond(*input.target, target_leaves, *input.reference, own_reference_leaves, Matching::kOwnContent);
  if (!own.missing.empty()) return false;
  std::uint64_t shared = 0;
  const PairReplays replays = replay_pair(input, target_exact, {}, &own, &shared);
  const Gap gap(input, replays, pairs);
  const Asked asked = asked_again(input, gap, own, before);
  if (!asked.passed()) return false;
  set_answers(asked, bounds);
  own.drifted.clear();
  own.foreign_state.clear();
  bounds->match = std::move(own);
  return true;
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
  bounds->paired = true;
  bounds->match = correspond(target, target_leaves, reference, leaf_values(reference));
  if (!bounds->match.missing.empty()) return {};
  if (const double scale = input.carried_scale.value_or(1); scale != 1)
    unscale_carried(scale, target, reference, &bounds->match);

  std::vector<LeafValue>& leaves = bounds->match.reference_values;
  MatchedReference matched;
  matched.cuts = match_opaque_calls(target, target_leaves, reference, leaves);
  transplant(matched.cuts, target, target_leaves, reference, &leaves);
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
  if (!bounds->match.doubtful && bounds->match.weak.empty()) matched.before = {};
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
  const auto loose = [](const Graph& graph, const Slack& slack, const HandedBack& handed) {
    std::vector<NodeId> nodes = of_python(slack);
    nodes.insert(nodes.end(), handed.unknown.begin(), handed.unknown.end());
    nodes.insert(nodes.end(), handed.after_a_tie.begin(), handed.after_a_tie.end());
    for (const auto& [node, width] : slack.freedoms) nodes.push_back(node);
    return taps_reached_by(nodes, graph);
  };
  const std::vector<bool> ours = loose(target, replays.target_slack, replays.target_handed),
                          theirs = loose(reference, replays.reference_slack, replays.reference_handed);
  std::vector<bool> uncertain = ours;
  for (const PairedTap& pair : matched.pairs) uncertain[pair.target] = ours[pair.target] || theirs[pair.reference];
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
    bounds->supposed_scale = supposed_scale(input, target_exact, matched, bounds->match, &common);
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
  if (bounds->absorbed_scale = failed ? absorbed_scale(input, gap) : std::nullopt; bounds->absorbed_scale) {
    bounds->apart.scale = content_scale(*input.target, *input.reference);
    compare_carried(input, replays, bounds);
    if (!bounds->apart.leaf.empty()) bounds->apart = {"", 0, 0};  // Some may be scaled, for another optimizer.
    return;
  }
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
