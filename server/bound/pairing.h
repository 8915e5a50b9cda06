// Q3, the matched gap: do target and reference compute the same mathematics? Both are replayed in exact arithmetic on
// one copy of everything that the traces did not compute, and taking their own decisions; what then differs by more
// than the two replays' own errors is mathematics.
#pragma once

#include "server/bound/bounds.h"
#include "server/bound/paired_taps.h"
#include "server/bound/transplant.h"

namespace plumbline {

struct MatchedReference {
  Cuts cuts;
  bool one_program = false;  // Both are one, on leaves of one content: the same mathematics, replayed with one error.
  Replay exact;              // Of the reference on the target's leaves; the target's own, of one program.
  std::vector<PairedTap> pairs;
  Uncertainty target_numbers, reference_numbers;
  std::map<std::size_t, Answer> updates;  // By tap of the target: mathematics, where it is settled (updates.h).
};

// Fills bounds->match, by which the reference is replayed. `enclosed`: by tap of the target, whether its execution was
// judged between observed values.
MatchedReference match_reference(const BoundsInput& input, const std::vector<LeafValue>& target_leaves,
                                 const Replay& target_exact, const std::vector<bool>& enclosed, Bounds* bounds);

// Adds the answers of mathematics to bounds->findings (made from `probes`, in order of name), and where one fails, the
// tap and operation at which the programs part.
void pair_with_reference(const BoundsInput& input, const MatchedReference& matched,
                         const std::vector<LeafValue>& target_leaves, const Replay& target_exact,
                         const std::vector<Probe>& probes, const std::vector<Envelope>& envelopes, Bounds* bounds);

}  // namespace plumbline
