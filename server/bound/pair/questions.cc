#include "server/bound/pair/questions.h"

#include <algorithm>

#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

// Probes of the taps that are not finite all over, of which none was planned.
std::vector<Probe> unprobed(const Gap& gap, const std::vector<Probe>& probes,
                            const std::map<std::size_t, Answer>& updates, std::size_t taps) {
  std::vector<bool> probed(taps, false);
  for (const Probe& probe : probes)
    for (const Probe::Part& part : probe.parts) probed[part.tap] = true;
  std::vector<Probe> missing;
  for (const PairedTap& pair : gap.pairs()) {
    if (probed[pair.target] || updates.count(pair.target) != 0 || !gap.mask(pair)) continue;
    missing.push_back(gap.probe(pair));
    missing.back().of_mathematics = true;
  }
  return missing;
}

std::vector<std::size_t> taps_of(const Probe& probe) {
  std::vector<std::size_t> taps;
  for (const Probe::Part& part : probe.parts) taps.push_back(part.tap);
  return taps;
}

}  // namespace

PairedQuestions paired_questions(const BoundsInput& input, const Gap& gap, const std::map<std::size_t, Answer>& updates,
                                 const std::vector<Probe>& planned) {
  PairedQuestions questions;
  std::vector<Probe> others;
  for (std::size_t p = 0; p < planned.size(); ++p) {
    Probe probe = planned[p];
    std::erase_if(probe.parts, [&](const Probe::Part& part) { return gap.find(part.tap) == nullptr; });
    if (probe.parts.empty()) continue;
    if (probe.parts.size() == planned[p].parts.size() && gap.as_executed()) {
      questions.planned.push_back(p);
      questions.probes.push_back(std::move(probe));
    } else {
      others.push_back(std::move(probe));
    }
  }
  std::ranges::move(unprobed(gap, planned, updates, input.target->taps.size()), std::back_inserter(others));
  std::ranges::move(others, std::back_inserter(questions.probes));
  return questions;
}

bool beyond_few_roundings(const Graph& target, const Probe& probe, double deviation) {
  constexpr double kRoundings = 16;
  return deviation > kRoundings * unit_roundoff(tap_format(target.taps[probe.parts.front().tap]));
}

void ReferenceEnvelopes::sweep(const Gap& gap, const std::vector<Probe>& probes, const std::vector<bool>& executed) {
  std::vector<Probe> asked;
  std::vector<bool> of_execution;
  for (std::size_t p = 0; p < probes.size(); ++p) {
    const auto known = known_.find(probes[p].name);
    if (known != known_.end() && known->second.taps == taps_of(probes[p]) && (known->second.executed || !executed[p]))
      continue;
    asked.push_back(probes[p]);
    of_execution.push_back(executed[p]);
  }
  std::vector<Envelope> envelopes = gap.their_envelopes(asked, of_execution);
  for (std::size_t i = 0; i < asked.size(); ++i)
    known_[asked[i].name] = {taps_of(asked[i]), of_execution[i], std::move(envelopes[i])};
}

}  // namespace plumbline
