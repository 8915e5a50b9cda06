#include "server/bound/pair/common_values.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "server/bound/pair/missing_state.h"

namespace plumbline {

ExactReplays replay_both(const BoundsInput& input, const std::vector<LeafValue>& target_leaves,
                         const std::function<Replay(Congruence*)>& replay_target,
                         std::optional<MatchedReference>* matched, Bounds* bounds) {
  const Graph &target = *input.target, &reference = *input.reference;
  const std::vector<LeafValue>& leaves = bounds->match.reference_values;
  ExactReplays found;
  bounds->paired = true;
  bounds->match = correspond(target, target_leaves, reference, leaf_values(reference));
  if (!bounds->match.missing.empty()) {
    found.target = replay_target(nullptr);
    const std::optional<MatchedItem> one = stand_for_missing(input, found.target, &bounds->match);
    if (one && input.kept_before != KeptLeft::kAlike) bounds->taken_for = one;
    if (!one) bounds->kept_left = KeptLeft::kUntold;
  }
  *matched = match_programs(input, target_leaves, bounds);
  const auto replay_reference = [&](Congruence* congruence) {
    found.reference =
        replay(reference, leaves, Precision::kExact, {}, nullptr, {.for_sweeps = true, .congruence = congruence});
  };
  if (!bounds->match.missing.empty() || (*matched)->replays.one_program) {
    if (!found.target) found.target = replay_target(nullptr);
  } else if (found.target || target.nodes.size() <= reference.nodes.size()) {
    if (!found.target) found.target = replay_target(nullptr);
    Congruence congruence(target, target_leaves, found.target, reference, leaves);
    replay_reference(&congruence);
    found.common = congruence.common_of_known();
  } else {
    replay_reference(nullptr);
    Congruence congruence(reference, leaves, found.reference, target, target_leaves);
    found.target = replay_target(&congruence);
    found.common = congruence.common();
  }
  return found;
}

std::vector<Envelope> envelopes_of_what_differs(
    const Gap& gap, const ExactReplays& exact,
    const std::function<std::vector<Envelope>(const std::vector<Probe>&)>& sweep, std::vector<Probe>* probes) {
  const PairReplays& compared = gap.replays();
  if (!compared.target.is(exact.target) || !compared.reference.is(exact.reference)) return sweep(*probes);
  const auto given = std::make_shared<const std::vector<bool>>(exact.common);
  const auto paired = [&](const Probe::Part& part) { return gap.find(part.tap) != nullptr; };
  for (Probe& probe : *probes)
    if (probe.of_mathematics && std::ranges::all_of(probe.parts, paired)) probe.given = given;
  std::vector<Envelope> envelopes = sweep(*probes);
  std::vector<Probe> open;
  std::vector<Envelope*> of;
  for (std::size_t p = 0; p < probes->size(); ++p) {
    Probe& probe = (*probes)[p];
    if (!std::exchange(probe.given, nullptr)) continue;
    const double least = 0x1p-53 * probe.scale;  // Its own value is held in fp64.
    envelopes[p].rho = std::max(envelopes[p].rho, least);
    envelopes[p].own_noise.bias = std::max(envelopes[p].own_noise.bias, least);
    if (gap.agree(probe, envelopes[p])) continue;
    open.push_back(probe);
    of.push_back(&envelopes[p]);
  }
  if (open.empty()) return envelopes;
  std::vector<Envelope> whole = sweep(open);
  for (std::size_t i = 0; i < whole.size(); ++i) *of[i] = std::move(whole[i]);
  return envelopes;
}

}  // namespace plumbline
