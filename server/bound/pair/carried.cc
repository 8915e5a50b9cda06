#include "server/bound/pair/carried.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/sums.h"
#include "server/bound/match/paired_taps.h"
#include "server/bound/match/readings.h"
#include "server/bound/match/transplant.h"
#include "server/bound/pair/confirm.h"
#include "server/bound/pair/drill.h"
#include "server/bound/pair/kept.h"
#include "server/bound/pair/left_gap.h"
#include "server/bound/pair/replays.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr double kReplayNoise = 1e-9;  // Far above the errors of two replays.

// The node whose elements this one hands on.
NodeId made_by(const Graph& graph, NodeId node) {
  while (reshapes(graph, graph.nodes[node])) node = graph.nodes[node].inputs[0];
  return node;
}

using Names = std::map<std::string, const GraphTap*>;

Names names_of(const std::vector<GraphTap>& taps) {
  Names names;
  for (const GraphTap& tap : taps) names[tap.name] = &tap;
  return names;
}

// Whether what is carried is the gradient that the step's own tap is of, and there is no other reading of that.
bool is_judged(const Graph& graph, const Names& taps, const GraphTap& carried) {
  const std::string_view leaf = carried.name, begin = "state:", end = ".grad";
  const std::string name(leaf.substr(begin.size(), leaf.size() - begin.size() - end.size()));
  const auto tap = taps.find("grad:" + name);
  if (tap == taps.end()) return false;
  for (const std::string& other : all_readings(tap->first))
    if (other != tap->first && taps.contains(other)) return false;
  const std::vector<GraphTap::Term>& terms = tap->second->terms;
  return terms.size() == 1 && terms[0].weight == 1 &&
         made_by(graph, terms[0].node) == made_by(graph, carried.terms[0].node);
}

// Those that both programs leave, but for what both judge as they leave it.
LeftPairs pair_carried(const Graph& target, const Graph& reference) {
  const Names left = names_of(reference.carried), ours = names_of(target.taps), theirs = names_of(reference.taps);
  LeftPairs pairs;
  for (const GraphTap& carried : target.carried) {
    const auto other = left.find(carried.name);
    if (other == left.end() || other->second->shape != carried.shape || count(carried.shape) == 0) continue;
    if (!is_judged(target, ours, carried) || !is_judged(reference, theirs, *other->second))
      pairs.emplace_back(&carried, other->second);
  }
  return pairs;
}

// What both programs carry and do not judge as they leave it.
LeftGap carried_gap(const BoundsInput& input, const PairReplays& replays) {
  return LeftGap(input, replays, pair_carried(*input.target, *input.reference));
}

bool is_loss(const GraphTap& tap) { return tap.kind == TapKind::kLoss && count(tap.shape) == 1; }

double factor(const Gap& gap, const PairedTap& loss) {
  return gap.of_target(loss).item() / gap.of_reference(loss).item();
}

// Whether gradients may be multiplied by it and divided again.
bool is_factor(double x) { return std::fabs(x) > 1e-100 && std::fabs(x) < 1e100; }
bool is_scale(double x) { return is_factor(x) && std::fabs(x - 1) > kReplayNoise; }

// What losses of the target, and their terms one by one, are times those of the reference, in any reading.
std::set<double> scales_of_losses(const BoundsInput& input, const PairReplays& replays) {
  const std::vector<GraphTap>&ours = input.target->taps, &theirs = input.reference->taps;
  std::set<double> scales;
  const auto add = [&](double scale) {
    const auto same = [&](double known) { return std::fabs(scale / known - 1) <= kReplayNoise; };
    if (is_scale(scale) && std::ranges::none_of(scales, same)) scales.insert(scale);
  };
  const auto term = [](const Replay& replay, const GraphTap::Term& term) {
    return term.weight * replay.value(term.node).materialize().item();
  };
  for (std::size_t t = 0; t < ours.size(); ++t)
    for (std::size_t r = 0; r < theirs.size(); ++r) {
      if (!is_loss(ours[t]) || !is_loss(theirs[r])) continue;
      add(factor(Gap(input, replays, {{t, r}}), {t, r}));
      if (ours[t].terms.size() != theirs[r].terms.size()) continue;
      for (std::size_t i = 0; i < ours[t].terms.size(); ++i)
        add(term(replays.target, ours[t].terms[i]) / term(replays.reference, theirs[r].terms[i]));
    }
  return scales;
}

// What the largest gradient is times the reference's, by projection: a loss may be zero, or what is left of terms that
// cancel. NaN: all are zero.
double scale_of_gradients(const Graph& target, const Gap& gap) {
  double largest = 0, scale = std::nan("");
  for (const PairedTap& pair : gap.pairs()) {
    if (target.taps[pair.target].kind != TapKind::kGradient) continue;
    const Array theirs = gap.of_reference(pair).materialize();
    const double squares = dot(theirs, theirs).get();
    if (!(squares > largest)) continue;
    largest = squares;
    scale = dot(theirs, gap.of_target(pair).materialize()).get() / squares;
  }
  return scale;
}

// Whether losses and gradients of the target are so many times the reference's, what outlives the step is the same, and
// other values are either; `some`: gradients, too.
bool differ_by(double factor, const BoundsInput& input, const Gap& gap, bool some = false) {
  constexpr std::size_t kOpenMax = 64;  // A sweep each; such are gradients of what cancels, as before a normalisation.
  const auto parts = [&](const PairedTap& pair) { return gap.parting(pair) != Gap::Parting::kNone; };
  if (std::ranges::any_of(gap.pairs(), parts)) return false;
  Graph reference = *input.reference;
  for (const PairedTap& pair : gap.pairs()) {
    const TapKind kind = input.target->taps[pair.target].kind;
    const bool either = kind == TapKind::kValue || (some && kind == TapKind::kGradient);
    if (outlives_step(kind) || (either && gap.relative(pair) <= kReplayNoise)) continue;
    for (GraphTap::Term& term : reference.taps[pair.reference].terms) term.weight *= factor;
  }
  BoundsInput sides = input;
  sides.reference = &reference;
  const Gap scaled(sides, gap.replays(), gap.pairs());
  std::vector<Probe> open;
  for (const PairedTap& pair : gap.pairs())
    if (scaled.relative(pair) > kReplayNoise) open.push_back(scaled.probe(pair));
  if (open.size() > kOpenMax) return false;
  return open.empty() || std::ranges::all_of(scaled.ask(open), [](const Answer& answer) { return answer.passed(); });
}

const GraphLeaf* leaf_named(const Graph& graph, const std::string& name) {
  const auto found = std::ranges::find(graph.leaves, name, &GraphLeaf::name);
  return found == graph.leaves.end() ? nullptr : &*found;
}

}  // namespace

double content_scale(const Graph& target, const Graph& reference) {
  const Names left = names_of(reference.carried);
  for (const GraphTap& carried : target.carried)
    if (const auto other = left.find(carried.name); other != left.end())
      if (const double scale = other->second->terms[0].weight / carried.terms[0].weight; is_factor(scale)) return scale;
  return 1;
}

std::optional<double> supposed_scale(const BoundsInput& input, const Replay& target_exact,
                                     const MatchedReference& matched, const Correspondence& match,
                                     const std::vector<Probe>& probes, bool* common) {
  const Graph &target = *input.target, &reference = *input.reference;
  const std::vector<bool> used = used_by_taps(reference);
  if (std::ranges::none_of(reference.leaves, [&](const GraphLeaf& leaf) {
        return carried_gradient(leaf.role, leaf.name) && used[leaf.node] && leaf_named(target, leaf.name) != nullptr;
      }))
    return {};
  for (const double scale : scales_of_losses(input, matched.replays)) {
    Correspondence scaled = match;
    scaled.reference_computed.clear();
    unscale_carried(scale * content_scale(target, reference), target, reference, &scaled);
    std::uint64_t shared = 0;
    const PairReplays replays = replay_pair(input, target_exact, {}, &scaled, &shared);
    std::vector<PairedTap> pairs = matched.pairs;
    settle_readings({target, replays.target}, {reference, replays.reference}, &pairs);
    const Gap gap(input, replays, std::move(pairs));
    *common = !differ_by(1, input, gap);
    if (!*common || common_scale(input, gap) || absorbed_scale(input, gap, probes)) return scale;
  }
  return {};
}

std::optional<double> common_scale(const BoundsInput& input, const Gap& gap) {
  const Graph &target = *input.target, &reference = *input.reference;
  const auto named_alike = [](const GraphTap& a, const GraphTap& b) { return a.name == b.name; };
  if (target.carried.empty() || !std::ranges::is_permutation(target.carried, reference.carried, named_alike)) return {};
  const auto updates = [](const GraphTap& tap) { return tap.kind == TapKind::kUpdate; };
  if (std::ranges::any_of(target.taps, updates) || std::ranges::any_of(reference.taps, updates)) return {};
  const double scale = scale_of_gradients(target, gap);
  if (!is_scale(scale) || !differ_by(scale, input, gap)) return {};
  const LeftGap carried = carried_gap(input, gap.replays());
  return differ_by(scale, carried.sides(), carried.gap()) ? std::optional(scale) : std::nullopt;
}

namespace {

// Whether those of the probes pass that are of what outlives the step.
bool lasting_pass(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes) {
  std::vector<Probe> lasting;
  std::ranges::copy_if(probes, std::back_inserter(lasting), [&](const Probe& probe) {
    return std::ranges::all_of(probe.parts,
                               [&](const auto& part) { return outlives_step(input.target->taps[part.tap].kind); });
  });
  return std::ranges::all_of(gap.ask(lasting), &Answer::passed);
}

// Whether optimizers moved parameters, all to the same place, compared to the way, since of a short one little shows in
// what they are then, and left the same state. Bounds that are wide explain nothing here, but for what hangs on a
// number whose last digits only Python knows, as a clip's factor: that may lie a little further apart if it passes.
bool move_alike(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes) {
  constexpr double kReplayRounding = 1e-15, kSeen = 1e-6;  // Of the value; of the way, which must be more than that.
  constexpr double kLastDigits = 0x1p-5;                   // Of a number that was read in 16 bits.
  const std::vector<bool> by_python = taps_reached_by(of_python(gap.replays().target_slack),
                                                      of_python(gap.replays().reference_slack), input, gap.pairs());
  bool moved = false, further = false;
  for (const PairedTap& pair : gap.pairs()) {
    const GraphTap& tap = input.target->taps[pair.target];
    if (!outlives_step(tap.kind)) continue;
    if (gap.parting(pair) != Gap::Parting::kNone) return false;
    double way = 1, by = gap.relative(pair), noise = 0;
    if (tap.kind == TapKind::kUpdate) {
      const GraphLeaf* const leaf = leaf_named(*input.target, "param:" + tap.name.substr(tap.name.find(':') + 1));
      if (leaf == nullptr || !leaf->bytes) return false;
      const Array ours = gap.of_target(pair).materialize(), before = LeafValue(leaf->format, leaf->bytes, tap.shape);
      // "update:NAME" tells what was added, "param:NAME" what came of it.
      way = tap.name.starts_with("param:") ? apart(ours, before).get().difference : norm2(ours).get();
      by = apart(ours, gap.of_reference(pair).materialize()).get().difference;
      noise = kReplayRounding * norm2(before).get();
      moved = moved || way > 0;
    }
    const double most = by_python[pair.target] ? kLastDigits : kReplayNoise;
    if (by > most * way + noise || (way > 0 && noise > kSeen * way)) return false;
    further = further || by > kReplayNoise * way + noise;
  }
  return moved && (!further || lasting_pass(input, gap, probes));
}

// The gap of some of its taps.
Gap only(const BoundsInput& input, const Gap& gap, const auto& wanted) {
  std::vector<PairedTap> pairs;
  std::ranges::copy_if(gap.pairs(), std::back_inserter(pairs), wanted);
  return Gap(input, gap.replays(), std::move(pairs));
}

}  // namespace

std::optional<double> absorbed_scale(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes) {
  if (!move_alike(input, gap, probes)) return {};
  const auto in_step = [&](const PairedTap& pair) { return !outlives_step(input.target->taps[pair.target].kind); };
  const auto of_loss = [&](const PairedTap& pair) { return is_loss(input.target->taps[pair.target]); };
  const auto of_others = [&](const PairedTap& pair) { return in_step(pair) && !of_loss(pair); };
  const auto differs = [&](const PairedTap& pair) { return of_loss(pair) && gap.relative(pair) > kReplayNoise; };
  if (std::ranges::any_of(gap.pairs(), differs) && differ_by(1, input, only(input, gap, of_others))) return 1;
  // As backward left them: what was given may be clipped.
  std::vector<PairedTap> pairs = gap.pairs();
  std::erase_if(pairs, std::not_fn(in_step));
  for (PairedTap& pair : pairs) pair = first_readings(*input.target, *input.reference, pair);
  std::ranges::sort(pairs, {}, &PairedTap::target);
  const Gap left(input, gap.replays(), std::move(pairs));
  std::set<double> scales = scales_of_losses(input, gap.replays());
  scales.insert(scale_of_gradients(
      *input.target, only(input, left, [&](const PairedTap& pair) { return left.relative(pair) > kReplayNoise; })));
  for (const double scale : scales)
    if (is_scale(scale) && differ_by(scale, input, left, true)) return scale;
  return {};
}

std::optional<double> absorbed_scale_of_kept(const BoundsInput& input, const Replay& target_exact,
                                             const MatchedReference& matched, const Gap& gap,
                                             const std::vector<Probe>& probes, Bounds* bounds) {
  std::optional<KeptMatch> kept = match_kept(input, matched.before, scales_of_losses(input, gap.replays()));
  if (!kept) return {};
  std::uint64_t shared = 0;
  const PairReplays replays = replay_pair(input, target_exact, {}, &kept->match, &shared);
  const std::optional<double> scale = absorbed_scale(input, Gap(input, replays, gap.pairs()), probes);
  if (!scale || !leave_alike(input, replays, kept->items)) return {};
  bounds->match = std::move(kept->match);
  return scale;
}

void unscale_carried(double scale, const Graph& target, const Graph& reference, Correspondence* match) {
  for (std::size_t i = 0; i < reference.leaves.size(); ++i) {
    const GraphLeaf& leaf = reference.leaves[i];
    const LeafValue value = match->reference_values[i];
    if (!carried_gradient(leaf.role, leaf.name) || leaf_named(target, leaf.name) == nullptr || !value) continue;
    give_scaled(value, scale, i, reference, match);
  }
}

namespace {

// What the target makes of gradients that the reference, in whose step they have no part, leaves as both found them.
GradientApart changed_alone(const BoundsInput& input, const PairReplays& replays) {
  const Graph& target = *input.target;
  const Names theirs = names_of(input.reference->carried);
  LeftPairs alone;
  for (const GraphTap& carried : target.carried)
    if (!theirs.contains(carried.name) && leaf_named(*input.reference, carried.name) == nullptr &&
        leaf_named(target, carried.name) != nullptr)
      alone.emplace_back(&carried, &carried);
  GradientApart farthest;
  if (alone.empty() || !input.carried_scale) return farthest;
  const Graph changing = with_taps(target, alone, &LeftPairs::value_type::first);
  const Replay replay = replay_taps(changing, replays.target_leaves, replays.target_overrides, replays.target);
  for (const GraphTap& carried : changing.taps) {
    const GraphLeaf& leaf = *leaf_named(target, carried.name);
    if (!leaf.bytes) continue;
    const Array found = LeafValue(leaf.format, leaf.bytes, carried.shape);
    const Array left = replayed_value(carried, replay);
    const double by = apart(left, weighted(found, 1 / *input.carried_scale)).get().relative();
    if (by > std::max(farthest.by, kReplayNoise) && norm2(left).get() > 0) farthest = {carried.name, by};
  }
  return farthest;
}

}  // namespace

void compare_carried(const BoundsInput& input, const PairReplays& replays, Bounds* bounds) {
  if (replays.one_program) return;
  if (GradientApart alone = changed_alone(input, replays); !alone.leaf.empty()) bounds->apart = std::move(alone);
  const LeftGap carried = carried_gap(input, replays);
  const Gap& gap = carried.gap();
  const PairedTap* farthest = nullptr;
  double most = kReplayNoise;
  for (const PairedTap& pair : gap.pairs()) {
    if (gap.parting(pair) != Gap::Parting::kNone) continue;  // Not finite: that shows in the taps of the step.
    if (const double by = gap.relative(pair); by > most) {
      most = by;
      farthest = &pair;
    }
  }
  if (farthest == nullptr) return;
  const std::vector<Probe> probe{gap.probe(*farthest)};
  std::vector<Answer> answer = gap.ask(probe);
  confirm(carried.sides(), gap, probe, &answer);
  if (!answer.front().failed() || !answer.front().confirmed) return;
  bounds->apart = {carried.sides().target->taps[farthest->target].name, most};
  // What another optimizer takes later may be scaled until then.
  if (gap.pairs().size() != input.target->carried.size()) return;
  const double content = content_scale(*input.target, *input.reference);
  std::set<double> scales = scales_of_losses(input, replays);
  scales.insert(input.carried_scale.value_or(1) / content);
  for (const double scale : scales)
    if (is_scale(scale) && differ_by(scale, carried.sides(), gap)) bounds->apart = {"", 0, scale * content};
}

void forget_cleared(const Graph& graph, std::vector<std::string>* leaves) {
  if (leaves->empty()) return;
  const std::vector<bool> used = used_by_taps(graph);
  std::erase_if(*leaves, [&](const std::string& name) {
    const GraphLeaf* const leaf = leaf_named(graph, name);
    if (leaf == nullptr || !carried_gradient(leaf->role, leaf->name)) return false;
    if (!used[leaf->node]) return true;
    const Array content = LeafValue(leaf->format, leaf->bytes, graph.nodes[leaf->node].shape);
    return std::all_of(content.data(), content.data() + content.count(), [](double x) { return x == 0; });
  });
}

bool still_apart(const GradientApart& apart, const Graph& target, const Graph& reference) {
  const GraphLeaf *ours = leaf_named(target, apart.leaf), *theirs = leaf_named(reference, apart.leaf);
  if (ours == nullptr || theirs == nullptr || !ours->bytes || !theirs->bytes) return false;
  if (!used_by_taps(target)[ours->node] || !used_by_taps(reference)[theirs->node]) return false;
  const Shape& shape = target.nodes[ours->node].shape;
  if (count(shape) != count(reference.nodes[theirs->node].shape)) return false;
  // In part, since what lies between the steps, or their own roundings, may have moved both.
  return plumbline::apart(LeafValue(ours->format, ours->bytes, shape), LeafValue(theirs->format, theirs->bytes, shape))
             .get()
             .relative() > std::fmin(1, apart.by) / 2;
}

}  // namespace plumbline
