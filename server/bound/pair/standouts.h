// Elements and taps whose gap stands out from the noise of the replay itself.
//
// A functional of many elements hides a small one behind a large one, and one tap behind another. What a replay's own
// roundings make of each element is sampled by a second replay that rounds otherwise (Precision::kJittered): a gap far
// beyond that sample gets a probe of its own, whose bound is rigorous. The sample chooses what is asked; it accuses
// nobody.
#pragma once

#include <map>

#include "server/bound/pair/gap.h"

namespace plumbline {

struct Standouts {
  std::vector<Probe> probes;   // Of single taps and of single elements.
  std::uint64_t elements = 0;  // That were looked at.
};

// `compared`: by tap of the target, what was compared element by element already.
Standouts find_standouts(const BoundsInput& input, const Gap& gap, const std::map<std::size_t, Answer>& compared);

}  // namespace plumbline
