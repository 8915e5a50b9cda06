#include "server/bound/pair/drill.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/sums.h"
#include "server/bound/pair/confirm.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr std::size_t kDrilledMax = 4;

NodeId position(const Graph& graph, std::size_t tap) {
  NodeId last = 0;
  for (const GraphTap::Term& term : graph.taps[tap].terms) last = std::max(last, term.node);
  return last;
}

// T = (1 + c) R elementwise, to a millionth of the gap: an error of scale.
std::optional<double> scale_error(const Array& target, const Array& reference) {
  const Array t = target.on_host(), r = reference.on_host();
  const double rr = dot(r, r);
  if (!(rr > 0) || t.count() == 1) return std::nullopt;
  const double factor = dot(r, t) / rr;
  double residual = 0;
  for (std::int64_t i = 0; i < t.count(); ++i) residual += std::pow(t.data()[i] - factor * r.data()[i], 2);
  if (!(std::sqrt(residual) <= 1e-6 * norm2_difference(t, r))) return std::nullopt;
  return factor - 1;
}

Finding* finding_of(const BoundsInput& input, const Probe& probe, std::size_t tap, Bounds* bounds) {
  for (Finding& known : bounds->findings)
    if (known.name == probe.name) return &known;
  Finding& finding = bounds->findings.emplace_back();
  finding.name = probe.name;
  finding.taps = {tap};
  finding.elements = static_cast<std::uint64_t>(count(input.target->taps[tap].shape));
  return &finding;
}

// Of each tap.
std::vector<bool> reached_by_any(const std::vector<NodeId>& from, const Graph& graph) {
  const std::vector<bool> reached = reached_by(from, graph);
  std::vector<bool> taps;
  for (const GraphTap& tap : graph.taps)
    taps.push_back(std::ranges::any_of(tap.terms, [&](const GraphTap::Term& term) { return reached[term.node]; }));
  return taps;
}

}  // namespace

std::vector<bool> taps_reached_by(const std::vector<NodeId>& ours, const std::vector<NodeId>& theirs,
                                  const BoundsInput& input, const std::vector<PairedTap>& pairs) {
  std::vector<bool> reached = reached_by_any(ours, *input.target);
  const std::vector<bool> reached_there = reached_by_any(theirs, *input.reference);
  for (const PairedTap& pair : pairs) reached[pair.target] = reached[pair.target] || reached_there[pair.reference];
  return reached;
}

void drill_down(const BoundsInput& input, const Gap& gap, const std::vector<std::size_t>& failing, Bounds* bounds) {
  const Graph &target = *input.target, &reference = *input.reference;
  const std::set<std::size_t> known_failing(failing.begin(), failing.end());
  double largest = 0;
  std::vector<double> gaps;
  for (const PairedTap& pair : gap.pairs()) {
    gaps.push_back(gap.relative(pair));
    largest = std::fmax(largest, gaps.back());
  }
  std::vector<const PairedTap*> candidates;
  for (std::size_t i = 0; i < gaps.size(); ++i)
    if ((gaps[i] >= 1e-3 * largest && gaps[i] > 0) || known_failing.count(gap.pairs()[i].target) != 0)
      candidates.push_back(&gap.pairs()[i]);
  // Taps that no uncertain number reaches come first: only they can prove anything.
  const std::vector<bool> uncertain = taps_reached_by(of_python(gap.replays().target_slack),
                                                      of_python(gap.replays().reference_slack), input, gap.pairs());
  const auto order = [&](const PairedTap* pair) {
    return std::pair<bool, std::size_t>(uncertain[pair->target], position(target, pair->target));
  };
  std::ranges::sort(candidates, {}, order);
  // Those that are known to fail are among them: the others may be what nothing can be said of.
  const auto fails = [&](const PairedTap* pair) { return known_failing.count(pair->target) != 0; };
  for (std::size_t i = kDrilledMax, kept = kDrilledMax; i < candidates.size() && kept < 2 * kDrilledMax; ++i)
    if (fails(candidates[i])) std::swap(candidates[kept++], candidates[i]);
  std::size_t drilled = std::min(candidates.size(), kDrilledMax);
  while (drilled < std::min(candidates.size(), 2 * kDrilledMax) && fails(candidates[drilled])) ++drilled;
  candidates.resize(drilled);

  std::vector<Probe> probes;
  probes.reserve(candidates.size());
  for (const PairedTap* pair : candidates) probes.push_back(gap.probe(*pair));
  std::vector<Answer> answers = gap.ask(probes);
  confirm(input, gap, probes, &answers);
  const auto suspect = [&](const PairedTap& pair) {
    if (!bounds->scale_error) bounds->scale_error = scale_error(gap.of_target(pair), gap.of_reference(pair));
    if (bounds->suspicion) return;
    bounds->suspicion = localize({target, gap.replays().target, nodes_of(target.taps[pair.target])},
                                 {reference, gap.replays().reference, nodes_of(reference.taps[pair.reference])});
  };
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!answers[i].failed()) continue;
    finding_of(input, probes[i], candidates[i]->target, bounds)->mathematics = answers[i];
    suspect(*candidates[i]);
  }
  // Taps of which single elements fail, not the whole.
  for (const PairedTap* pair : candidates)
    if (!bounds->suspicion && known_failing.count(pair->target) != 0) suspect(*pair);
}

}  // namespace plumbline
