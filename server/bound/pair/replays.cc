#include "server/bound/pair/replays.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/bound/match/decisions.h"
#include "server/bound/match/draws.h"
#include "server/bound/match/executed_choices.h"
#include "server/bound/match/grids.h"
#include "server/bound/match/handed.h"

namespace plumbline {
namespace {

// Each turn settles the decisions whose operands the turns before settled: grids one after the other in a network.
constexpr int kTurnsMax = 64;

Replay with_overrides(const Graph& graph, const std::vector<LeafValue>& leaves, const Overrides& overrides,
                      const Passes& passes, const Replay& base) {
  if (overrides.empty() && passes.empty()) return base;
  return replay(graph, leaves, Precision::kExact, overrides, &base, {.passes = passes});
}

void add(const Freedoms& more, Freedoms* freedoms) {
  for (const auto& [node, width] : more) (*freedoms)[node] = width;
}

// How far each item of one program lies from what stands for it.
Freedoms distances(const Overrides& computed, const Replay& exact) {
  Freedoms apart;
  for (const auto& [node, value] : computed) {
    const Array own = exact.value(node).materialize().on_host(),
                other = static_cast<Array>(value).materialize().on_host();
    Array distance = Array::uninitialized(own.shape());
    for (std::int64_t i = 0; i < own.count(); ++i) {
      const double x = own.data()[i], y = other.data()[i];
      distance.data()[i] = x == y ? 0 : std::fabs(x - y);  // Infinities of a mask too.
    }
    apart[node] = distance;
  }
  return apart;
}

}  // namespace

PairReplays replay_pair(const BoundsInput& input, const Replay& target_exact, Replay reference_exact,
                        Correspondence* found, std::uint64_t* shared_decisions) {
  const Graph &target = *input.target, &reference = *input.reference;
  const auto replay_reference = [&] {
    reference_exact = replay(reference, found->reference_values, Precision::kExact);
  };
  if (!reference_exact) replay_reference();
  const MatchSide exact_target{target, target_exact}, exact_reference{reference, reference_exact};
  if (match_draws_by_content(exact_target, exact_reference, found)) replay_reference();
  match_computed(exact_target, exact_reference, *input.profile, input.seed, input.alpha, found);
  if (match_draws_by_order(exact_target, exact_reference, found)) replay_reference();
  PairReplays pair;
  pair.target_leaves = found->target_values;
  pair.target_overrides = found->target_computed;
  pair.reference_overrides = found->reference_computed;
  ExecutedChoices choices = executed_choices(exact_target, exact_reference);
  pair.target_overrides.merge(choices.target);
  pair.reference_overrides.merge(choices.reference);

  Freedoms target_formats, reference_formats;
  Passes target_passes, reference_passes;
  SharedDecisions shared;
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    pair.target = with_overrides(target, found->target_values, pair.target_overrides, target_passes, target_exact);
    pair.reference =
        with_overrides(reference, found->reference_values, pair.reference_overrides, reference_passes, reference_exact);
    const MatchSide ours{target, pair.target, input.profile}, theirs{reference, pair.reference, input.profile};
    shared = share_decisions(ours, found->target_freedoms, theirs, found->reference_freedoms);
    *shared_decisions += shared.shared;
    for (const auto& [node, outcomes] : shared.target) pair.target_overrides[node] = outcomes;
    for (const auto& [node, outcomes] : shared.reference) pair.reference_overrides[node] = outcomes;
    if (!shared.reference.empty()) continue;
    for (const auto& [node, rounded] : target_passes) shared.target_settled[node] = true;
    for (const auto& [node, rounded] : reference_passes) shared.reference_settled[node] = true;
    const GridFormats formats = match_grids(ours, shared.target_settled, theirs, shared.reference_settled);
    if (formats.target.empty() && formats.reference.empty()) break;
    target_passes.insert(formats.target.begin(), formats.target.end());
    reference_passes.insert(formats.reference.begin(), formats.reference.end());
    add(formats.target_freedoms, &target_formats);
    add(formats.reference_freedoms, &reference_formats);
  }
  for (const auto& [node, rounded] : target_passes) {
    found->target_grids.push_back(node);
    pair.target_overrides[node] = pair.target.value(node);
  }
  for (const auto& [node, rounded] : reference_passes) {
    found->reference_grids.push_back(node);
    pair.reference_overrides[node] = pair.reference.value(node);
  }
  pair.target_shared = std::move(shared.target_settled);
  pair.reference_shared = std::move(shared.reference_settled);
  pair.reference_leaves = found->reference_values;
  pair.target_slack.replaced = distances(found->target_computed, target_exact);
  pair.reference_slack.replaced = distances(found->reference_computed, reference_exact);
  pair.target_slack.freedoms = found->target_freedoms;
  pair.reference_slack.freedoms = found->reference_freedoms;
  add(shared.target_jumps, &pair.target_slack.freedoms);
  add(shared.reference_jumps, &pair.reference_slack.freedoms);
  pair.target_jumps = shared.target_turned;
  pair.reference_jumps = shared.reference_turned;
  add(target_formats, &pair.target_slack.freedoms);
  add(reference_formats, &pair.reference_slack.freedoms);
  found->open_decisions = shared.open;
  pair.target_slack.numbers = uncertain_numbers(target, pair.target, &reference);
  pair.reference_slack.numbers = uncertain_numbers(reference, pair.reference, &target);
  pair.target_handed = handed_back({target, pair.target}, {reference, pair.reference}, found->target_computed);
  pair.reference_handed = handed_back({reference, pair.reference}, {target, pair.target}, found->reference_computed);
  const auto among = [](const std::vector<NodeId>& data, const std::vector<NodeId>& foreign) {
    return std::ranges::any_of(data, [&](NodeId id) { return std::ranges::find(foreign, id) != foreign.end(); });
  };
  found->handed = among(pair.target_handed.unknown, found->foreign_data) ||
                  among(pair.reference_handed.unknown, found->foreign_reference_data);
  pair.target_slack.handed = std::move(pair.target_handed.near);
  pair.reference_slack.handed = std::move(pair.reference_handed.near);
  return pair;
}

}  // namespace plumbline
