#include "server/bound/pair/reconcile.h"

#include "server/bound/pair/draw_orders.h"
#include "server/bound/pair/half_known.h"
#include "server/bound/pair/kept.h"
#include "server/bound/pair/policy_of_leaves.h"
#include "server/bound/pair/replays.h"
#include "server/bound/pair/shared_items.h"
#include "server/bound/replay/constants.h"
#include "server/lower/emit.h"

namespace plumbline {
namespace {

// The number that a tensor of one element holds, but for a parameter.
std::optional<double> held_number(const Graph& graph, const GraphLeaf& leaf) {
  const Shape& shape = graph.nodes[leaf.node].shape;
  if (count(shape) != 1 || !leaf.bytes || !is_float(leaf.format) || leaf.role == LeafRole::kParameter) return {};
  return Array(LeafValue(leaf.format, leaf.bytes, shape)).item();
}

// How far a number may lie elsewhere that somebody rounded, or made of a number that was. What lies close to 1 and has
// more digits than the format is 1 - x of a small x, as lr * decay, and known to as many digits as that; `close`: not
// null where that is asked for, set where such a number is found. Half of it, since it is doubled where it is charged
// (gap.cc).
double freedom_of_number(Format format, double number, bool* close) {
  constexpr double kClose = 0x1p-8, kOfPython = 0x1p-53;  // Of a difference that Python computed.
  const Array free = freedom_of(format, Array::scalar(number));
  if (!free) return 0;
  const double x = std::fabs(1 - std::fabs(number));
  if (close == nullptr || x >= kClose || round_to(format, number) == number) return free.item() / 2;
  *close = true;
  return free.item() / 2 * x + kOfPython;
}

// The numbers that the program gave to its operations and the other did not are free by half a unit in the last place
// of the format in which a kernel takes them. Numbers that both have are one, whoever gave them (replay/constants.h).
// Those that only one program holds in a tensor or a buffer are free as it holds them: 0.999 in fp32, from which it
// makes 1 - 0.999, is not what the other's Python has.
Freedoms free_numbers(const Graph& graph, const Graph& other, bool* close) {
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
    if (const double free = freedom_of_number(compute_format(node.compute), node.attributes.scalar, close); free > 0)
      freedoms[id] = Array::full(node.shape, free);
  }
  SetOfNumbers held;
  for (const GraphLeaf& leaf : other.leaves)
    if (const std::optional<double> number = held_number(other, leaf)) held.insert(*number);
  for (const GraphLeaf& leaf : graph.leaves) {
    const std::optional<double> number = held_number(graph, leaf);
    if (!number || held.count(*number) != 0) continue;
    if (const double free = freedom_of_number(leaf.format, *number, close); free > 0)
      freedoms[leaf.node] = Array::full(graph.nodes[leaf.node].shape, free);
  }
  return freedoms;
}

// Takes numbers that one program alone is given for rounded ones; those close to 1 for as far as they are known, then
// for any.
bool round_numbers(const BoundsInput& input, const MatchedReference& matched, const Asked& before, Bounds* bounds) {
  bool close = false;
  for (bool* const known : {&close, static_cast<bool*>(nullptr)}) {
    PairReplays replays = matched.replays;
    const std::size_t fixed = replays.target_slack.freedoms.size() + replays.reference_slack.freedoms.size();
    replays.target_slack.freedoms.merge(free_numbers(*input.target, *input.reference, known));
    replays.reference_slack.freedoms.merge(free_numbers(*input.reference, *input.target, known));
    if (replays.target_slack.freedoms.size() + replays.reference_slack.freedoms.size() == fixed) return false;
    const Gap gap(input, replays, matched.pairs);
    const Asked asked = asked_again(input, gap, bounds->match, before);
    if (asked.passed()) {
      set_answers(asked, bounds);
      bounds->free_numbers = known != nullptr ? FreeNumbers::kRounded : FreeNumbers::kOpen;
      return true;
    }
    if (!close) return false;
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

// Takes what differs between the runs as each program's own, with its freedom.
bool read_own_content(const BoundsInput& input, const Replay& target_exact, const std::vector<LeafValue>& target_leaves,
                      const std::vector<LeafValue>& own_reference_leaves, const std::vector<PairedTap>& pairs,
                      const Asked& before, Bounds* bounds) {
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

// Takes what both programs keep between steps under no name for one thing. `told`: where what they leave tells that it
// is; or where nothing does.
bool share_kept(bool told, const BoundsInput& input, const Replay& target_exact, const MatchedReference& matched,
                const Asked& before, Bounds* bounds) {
  std::optional<KeptMatch> kept = match_kept(input, matched.before, {});
  if (!kept || kept->told != told) return false;
  std::uint64_t shared = 0;
  const PairReplays replays = replay_pair(input, target_exact, {}, &kept->match, &shared);
  const Gap gap(input, replays, matched.pairs);
  const Asked asked = asked_again(input, gap, kept->match, before);
  if (!asked.passed() || !leave_alike(input, replays, kept->items)) return false;
  set_answers(asked, bounds);
  bounds->match = std::move(kept->match);
  if (told) return true;
  const auto untold = std::ranges::find_if_not(kept->items, &KeptItem::told);
  const KeptItem& item = untold == kept->items.end() ? kept->items.front() : *untold;
  bounds->taken_for = MatchedItem{Evidence::kKept, false, item.target, item.reference};
  if (untold != kept->items.end()) bounds->kept_left = KeptLeft::kUntold;
  return true;
}

}  // namespace

bool reconcile(const BoundsInput& input, const Replay& target_exact, const std::vector<LeafValue>& target_leaves,
               const std::vector<LeafValue>& own_reference_leaves, const MatchedReference& matched, const Asked& before,
               Bounds* bounds) {
  const std::vector<PairedTap>& pairs = matched.pairs;
  if (round_numbers(input, matched, before, bounds)) return true;
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
  if (share_kept(true, input, target_exact, matched, before, bounds)) return true;
  if (read_items_otherwise(input, target_exact, matched, before, bounds)) return true;
  // Earlier steps' roundings excuse nothing where the leaves are known to be one thing in two formats.
  if (!bounds->match.drifted.empty() && !wide.tells_all_drift &&
      read_own_content(input, target_exact, target_leaves, own_reference_leaves, pairs, before, bounds))
    return true;
  return share_kept(false, input, target_exact, matched, before, bounds);
}

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

}  // namespace plumbline
