#include "server/bound/pair/confirm.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/wide/compare.h"
#include "server/bound/replay/taps.h"
#include "server/bound/replay/wide_replay.h"

namespace plumbline {
namespace {

// The share of the fp64 replays' error that is left in wide arithmetic: 2^-53 against 2^-100, with six bits in hand.
constexpr double kWideError = 0x1p-41;
constexpr double kWorkMax = 6e9;  // Some seconds, for each program.

Freedoms constants_of(const Graph& graph) {
  Freedoms freedoms;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.primitive != Primitive::kConstant || !std::isfinite(node.attributes.scalar)) continue;
    const double width = 0x1p-53 * std::fabs(node.attributes.scalar);
    if (width > 0 && node.attributes.scalar != std::trunc(node.attributes.scalar))
      freedoms[id] = Array::full(node.shape, width);
  }
  return freedoms;
}

WideReplay widely(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& replay,
                  const Overrides& overrides, const std::vector<NodeId>& wanted) {
  Overrides given = shared_decisions(graph, replay, wanted);
  for (const auto& [node, value] : overrides) given[node] = value;
  WideLimits limits;
  limits.work = kWorkMax;
  return wide_replay(graph, leaves, given, wanted, limits);
}

std::vector<NodeId> wanted_of(const Graph& graph, const std::vector<Probe>& probes) {
  std::set<NodeId> nodes;
  for (const Probe& probe : probes)
    for (const Probe::Part& part : probe.parts)
      for (NodeId node : nodes_of(graph.taps[part.tap])) nodes.insert(node);
  return {nodes.begin(), nodes.end()};
}

}  // namespace

void confirm(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes, std::vector<Answer>* answers) {
  const Graph &target = *input.target, &reference = *input.reference;
  std::vector<Probe> asked, other;
  std::vector<Answer*> open;
  for (std::size_t p = 0; p < probes.size(); ++p) {
    Answer& answer = (*answers)[p];
    if (!answer.failed() && !(answer.vacuous() && answer.python == 0)) continue;
    asked.push_back(probes[p]);
    other.push_back(gap.reindexed(probes[p]));
    open.push_back(&answer);
  }
  if (asked.empty()) return;
  const PairReplays& replays = gap.replays();
  const WideReplay ours =
      widely(target, replays.target_leaves, replays.target, replays.target_overrides, wanted_of(target, asked));
  if (!ours) return;
  const WideReplay theirs = widely(reference, replays.reference_leaves, replays.reference, replays.reference_overrides,
                                   wanted_of(reference, other));
  if (!theirs) return;

  const std::vector<Envelope> our_constants =
      adjoint_envelopes(target, replays.target, asked, *input.profile, Executions::kOwn, {{}, constants_of(target)});
  const std::vector<Envelope> their_constants = adjoint_envelopes(reference, replays.reference, other, *input.profile,
                                                                  Executions::kOwn, {{}, constants_of(reference)});
  for (std::size_t p = 0; p < asked.size(); ++p) {
    double difference = 0;
    for (std::size_t i = 0; i < asked[p].parts.size(); ++i)
      difference += wide::dot_difference(asked[p].parts[i].weights.array(),
                                         replayed_value(target.taps[asked[p].parts[i].tap], ours),
                                         replayed_value(reference.taps[other[p].parts[i].tap], theirs));
    const double scale = gap.scale(asked[p]);
    const double known = 2 * (our_constants[p].freedom + their_constants[p].freedom) +
                         kWideError * (our_constants[p].rho + their_constants[p].rho);
    // An infinite slope, whose share is 0 times infinity: more bits know no more.
    if (std::isnan(known) || std::isnan(difference)) continue;
    Answer& answer = *open[p];
    const double rest = answer.freedom + answer.python;
    answer.deviation = std::fabs(difference) / scale;
    answer.envelope = answer.worst_case = known / scale + rest;
    answer.confirmed = true;
  }
}

}  // namespace plumbline
