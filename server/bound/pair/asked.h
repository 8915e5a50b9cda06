// What is asked of the mathematics of two programs under one correspondence, and answered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "server/bound/pair/gap.h"
#include "server/bound/pair/updates.h"

namespace plumbline {

// Answers of mathematics at updates and state, by tap of the target that `asked` tells.
template <class Asked>
std::map<std::size_t, Answer> updates_of(const std::vector<PairedTap>& pairs, const PairedSide& target,
                                         const PairedSide& reference, const Asked& asked) {
  std::vector<std::size_t> updates;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::size_t tap = pairs[i].target;
    if (outlives_step(target.graph.taps[tap].kind) && asked(tap)) updates.push_back(i);
  }
  std::map<std::size_t, Answer> answers;
  for (const auto& [pair, answer] : compare_updates(target, reference, pairs, updates))
    answers[pairs[pair].target] = answer;
  return answers;
}

struct Asked {
  std::vector<Probe> probes;
  std::vector<Answer> answers;
  std::size_t planned = 0;                // So many of them were, the others stood out.
  std::map<std::size_t, Answer> updates;  // The key is a tap of the target.

  bool failed() const {
    return std::ranges::any_of(answers, &Answer::failed) ||
           std::ranges::any_of(updates, [](const auto& update) { return update.second.failed(); });
  }
  bool passed() const {
    return std::ranges::all_of(answers, &Answer::passed) &&
           std::ranges::all_of(updates, [](const auto& update) { return update.second.passed(); });
  }
};

// Adds what stands out from the replay's noise; what lies within its bound all the same is no question any more.
// `elements`: how many were compared.
void add_standouts(const BoundsInput& input, const Gap& gap, const Replay* followed, Asked* asked,
                   std::uint64_t* elements);

// Notes of what agrees by freedom alone whether it does so only by that of open decisions: which way they went is known
// of our replays, and that they went otherwise in the executions is not.
void note_jumps(const BoundsInput& input, const PairReplays& replays, const Correspondence& match,
                const std::vector<PairedTap>& pairs, const std::vector<Probe>& probes, std::vector<Answer>* answers);

// The same questions under another correspondence, with its own stand-outs; some of them alone where they fail.
Asked asked_again(const BoundsInput& input, const Gap& gap, const Correspondence& match, const Asked& before);

// Confirms of updates and state that differ beyond their radii, which count no freedom of constants, the one that does
// most, by a functional of it; where what is confirmed says so already, none.
void confirm_updates(const BoundsInput& input, const Gap& gap, Asked* asked);

// That of the probe's name, made where there is none.
Finding& finding_named(const Probe& probe, Bounds* bounds);

// Findings of what was planned; of what stood out beside that, where it is not passed.
void set_answers(const Asked& asked, Bounds* bounds);

// The functional that fails by most, if one does.
std::optional<std::size_t> worst_of(const Asked& asked);

}  // namespace plumbline
