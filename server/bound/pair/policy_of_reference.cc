#include "server/bound/pair/policy_of_reference.h"

#include <algorithm>
#include <cmath>

#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr double kFewRoundings = 16;

struct Deviating {
  const Finding* finding;
  double deviation;    // Absolute.
  Probe of_reference;  // The same probe of the reference.
};

// What deviates by more than a few roundings.
std::vector<Deviating> deviating(const Graph& target, const Gap& gap, const std::vector<Probe>& probes,
                                 const Bounds& bounds) {
  std::vector<Deviating> found;
  for (const Probe& probe : probes) {
    const double roundings = kFewRoundings * unit_roundoff(tap_format(target.taps[probe.parts.front().tap]));
    const auto finding = std::ranges::find_if(bounds.findings, [&](const Finding& one) {
      return one.name == probe.name && one.execution.asked && !one.execution.failed() &&
             one.execution.deviation > roundings && !one.by_origin.empty();
    });
    if (finding != bounds.findings.end())
      found.push_back({&*finding, finding->execution.deviation * probe.scale, gap.reindexed(probe)});
  }
  return found;
}

}  // namespace

void judge_by_reference_policy(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes,
                               Bounds* bounds) {
  const Graph &target = *input.target, &reference = *input.reference;
  const std::vector<Deviating> all = deviating(target, gap, probes, *bounds);
  const double lambda = hoeffding_lambda(static_cast<double>(all.size()), input.alpha);
  const PairReplays& replays = gap.replays();
  double worst = 1;
  for (const Deviating& one : all) {
    double allowed = 0;
    // What is allowed only grows on the sweep's way.
    const auto enough = [&](const Envelope& theirs) {
      allowed = std::fmin(theirs.error, statistical(theirs.noise, lambda)) + theirs.rho;
      return one.deviation <= allowed;
    };
    enough(adjoint_envelope_until(enough, reference, replays.reference, one.of_reference, *input.profile,
                                  executions_of(reference), replays.reference_slack));
    if (!(one.deviation > worst * allowed)) continue;
    worst = one.deviation / allowed;
    const std::vector<double>& parts = one.finding->by_origin;
    const auto origin = static_cast<std::uint32_t>(std::max_element(parts.begin(), parts.end()) - parts.begin());
    for (NodeId id = 0; id < target.nodes.size(); ++id)
      if (target.nodes[id].origin == origin) bounds->policy_casts = {id};
  }
}

}  // namespace plumbline
