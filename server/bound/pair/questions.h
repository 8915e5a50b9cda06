// What is asked of the mathematics of two programs, and what the reference's replay may be off in it. The reference's
// sweep needs nothing of the target's: both go on at once (kernels/cpu/parallel.h).
#pragma once

#include <map>
#include <string>
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

// Whether the target deviates from its own exact value by more than a few roundings of the tap itself, which no policy
// explains: `deviation` relative to the probe's scale. What the reference's formats and operations allow is then asked.
bool beyond_few_roundings(const Graph& target, const Probe& probe, double deviation);

// Envelopes of the reference's side, by name of the probe.
class ReferenceEnvelopes {
 public:
  // Sweeps for those that are not known yet, or whose execution is asked for now (`executed`, for each probe) and was
  // not. It reads the reference's replay alone. Not for one program twice.
  void sweep(const Gap& gap, const std::vector<Probe>& probes, const std::vector<bool>& executed);
  const Envelope& of(const Probe& probe) const { return known_.at(probe.name).envelope; }

 private:
  struct Known {
    std::vector<std::size_t> taps;
    bool executed;
    Envelope envelope;
  };
  std::map<std::string, Known> known_;
};

}  // namespace plumbline
