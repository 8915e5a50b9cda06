// Q3, the matched gap: do target and reference compute the same mathematics? Both are replayed in exact arithmetic on
// one copy of everything that they share; what then differs by more than the replays' own errors, and the freedoms of
// what they do not share, is mathematics.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "server/bound/match/transplant.h"
#include "server/bound/pair/gap.h"

namespace plumbline {

struct MatchedReference {
  Cuts cuts;
  Correspondence before;  // No item was taken for what the other program computes; where that is asked again.
  PairReplays replays;
  std::vector<PairedTap> pairs;
  // The answer in mathematics for each tap of the target where it is settled (updates.h).
  std::map<std::size_t, Answer> updates;
};

// Which unmodelled calls and taps are which, of programs whose leaves bounds->match tells. Where that says that
// something is missing nothing can be compared, and this and what follows do nothing.
MatchedReference match_programs(const BoundsInput& input, const std::vector<LeafValue>& target_leaves, Bounds* bounds);

// What the replays, each on the leaves alone, tell of items and decisions. `enclosed`: by tap of the target, whether
// its execution was judged between observed values.
void match_replays(const BoundsInput& input, const std::vector<LeafValue>& target_leaves, const Replay& target_exact,
                   Replay reference_exact, const std::vector<bool>& enclosed, MatchedReference* matched,
                   Bounds* bounds);

// Adds the answers of mathematics to bounds->findings (made from `probes`, in order of name), and where one fails, the
// tap and operation at which the programs part. `gap`: of `matched`. `followed`: the target's exact replay with its
// execution's decisions.
void pair_with_reference(const BoundsInput& input, const MatchedReference& matched, const Gap& gap,
                         const Replay& target_exact, const Replay& followed, const std::vector<Probe>& probes,
                         const std::vector<Envelope>& envelopes, Bounds* bounds);

}  // namespace plumbline
