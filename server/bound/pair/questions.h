// What is asked of the mathematics of two programs.
#pragma once

#include <map>
#include <vector>

#include "server/bound/pair/gap.h"

namespace plumbline {

struct PairedQuestions {
  // First those that are planned for the target and that both programs have whole, then others.
  std::vector<Probe> probes;
  std::vector<std::size_t> planned;  // Of the first, by their places among the planned ones.
  // What of the target's own envelopes cannot be taken for those of its side of the pair.
  std::vector<Probe> others() const { return {probes.begin() + std::ssize(planned), probes.end()}; }
};

// Of what is planned for the target, and of taps that are not finite all over, which have no plan. `updates`: what is
// settled, by tap of the target.
PairedQuestions paired_questions(const BoundsInput& input, const Gap& gap, const std::map<std::size_t, Answer>& updates,
                                 const std::vector<Probe>& planned);

}  // namespace plumbline
