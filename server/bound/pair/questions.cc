#include "server/bound/pair/questions.h"

#include <algorithm>

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

}  // namespace plumbline
