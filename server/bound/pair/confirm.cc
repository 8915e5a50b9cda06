#include "server/bound/pair/confirm.h"

#include <algorithm>
#include <cmath>

#include "kernels/wide/compare.h"
#include "server/bound/match/decisions.h"
#include "server/bound/match/exact_elements.h"
#include "server/bound/pair/drill.h"
#include "server/bound/pair/zeros.h"
#include "server/bound/replay/taps.h"
#include "server/bound/replay/wide_replay.h"

namespace plumbline {
namespace {

// The share of the fp64 replays' error that is left in wide arithmetic: 2^-53 against 2^-100, with six bits in hand.
constexpr double kWideError = 0x1p-41;
constexpr double kWorkMax = 6e9;  // Some seconds, for each program.
// A few tries tell how far a functional may jump to within this factor.
constexpr double kTries = 16;
// Below fp64's own roundings of a value no two programs differ, whatever our first order says at a point that fp64 may
// not hold.
constexpr double kLeast = 0x1p-52;
// Where fp64 is off by so much of a value, its first order is that of another point: it says nothing of more bits.
constexpr double kOff = 0x1p-10;

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
                  const Overrides& overrides, const std::vector<NodeId>& wanted, WideValues* kept) {
  Overrides given = shared_decisions(graph, replay, wanted);
  for (const auto& [node, value] : overrides) given[node] = value;
  WideLimits limits;
  limits.work = kWorkMax;
  return wide_replay(graph, leaves, given, wanted, limits, kept);
}

// Answers again, in wide arithmetic, what failed or was lost in our own replay.
void confirm_in_wide(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes,
                     std::vector<Answer>* answers) {
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
  const WideReplay ours = widely(target, replays.target_leaves, replays.target, replays.target_overrides,
                                 probed_nodes(target, asked), &gap.wide().target);
  if (!ours) return;
  const WideReplay theirs = widely(reference, replays.reference_leaves, replays.reference, replays.reference_overrides,
                                   probed_nodes(reference, other), &gap.wide().reference);
  if (!theirs) return;

  const auto sweep = [&](const Graph& graph, const Replay& replay, const std::vector<Probe>& probes) {
    return adjoint_envelopes(
        graph, replay, probes, *input.profile, Executions::kOwn, {{}, constants_of(graph)}, false, {},
        {.unmoved = unmoved_elements({graph, replay, input.profile}, probed_nodes(graph, probes))});
  };
  const std::vector<Envelope> our_constants = sweep(target, replays.target, asked);
  const std::vector<Envelope> their_constants = sweep(reference, replays.reference, other);
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
    const double rest = answer.freedom + answer.python, apart = std::fabs(difference) / scale;
    const double off = std::fabs(answer.deviation - apart);
    answer.deviation = apart;
    answer.envelope = answer.worst_case = known / scale + rest + kLeast;
    answer.confirmed = true;
    if (answer.failed() && off > kOff) answer.envelope = answer.worst_case = HUGE_VAL;
  }
}

// Takes for freedom what functionals jump by, of those that fail, when zeros take other signs.
void allow_zeros(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes,
                 std::vector<Answer>* answers) {
  std::vector<Probe> failing, other;
  std::vector<Answer*> of;
  for (std::size_t p = 0; p < probes.size(); ++p) {
    if (!(*answers)[p].failed()) continue;
    failing.push_back(probes[p]);
    other.push_back(gap.reindexed(probes[p]));
    of.push_back(&(*answers)[p]);
  }
  if (failing.empty()) return;
  const PairReplays& replays = gap.replays();
  const auto moved = [&](auto by) {
    return std::pair(by(*input.target, replays.target, replays.target_leaves, replays.target_overrides,
                        replays.target_shared, failing),
                     by(*input.reference, replays.reference, replays.reference_leaves, replays.reference_overrides,
                        replays.reference_shared, other));
  };
  const auto [ours, theirs] = moved(moved_by_zeros);
  const auto [our_negative, their_negative] = moved(moved_by_negative_zeros);
  for (std::size_t p = 0; p < failing.size(); ++p) {
    Answer& answer = *of[p];
    const double scale = gap.scale(failing[p]);
    double jump = kTries * (ours[p] + theirs[p]) / scale;
    // Without a -0 the programs may agree; a bug beside it stays.
    const double apart = std::fabs(our_negative[p] - their_negative[p]) / scale, off = kReplayError * apart;
    if (std::fabs(answer.deviation - apart) <= answer.envelope + off) jump = std::fmax(jump, apart + off);
    if (answer.deviation > answer.envelope + jump) continue;
    if (std::isnan(answer.doubt)) answer.doubt = answer.envelope;
    answer.freedom += jump;
    answer.envelope = answer.worst_case = answer.envelope + jump;
    answer.by_freedom = answer.by_jumps = true;
  }
}

// Nothing that hangs on data of which nothing is known is proven, and nothing that Python called after a tie is
// decided.
void withhold(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes,
              std::vector<Answer>* answers) {
  const PairReplays& replays = gap.replays();
  const auto reached = [&](std::vector<NodeId> HandedBack::*which) {
    return taps_reached_by(replays.target_handed.*which, replays.reference_handed.*which, input, gap.pairs());
  };
  const std::vector<bool> unknown = reached(&HandedBack::unknown), tied = reached(&HandedBack::after_a_tie);
  for (std::size_t p = 0; p < probes.size(); ++p) {
    Answer& answer = (*answers)[p];
    for (const Probe::Part& part : probes[p].parts) {
      if (unknown[part.tap]) answer.confirmed = false;
      if (tied[part.tap] && answer.failed()) answer.python = answer.deviation;
    }
  }
}

}  // namespace

void confirm(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes, std::vector<Answer>* answers) {
  confirm_in_wide(input, gap, probes, answers);
  allow_zeros(input, gap, probes, answers);
  withhold(input, gap, probes, answers);
}

}  // namespace plumbline
