// Elements and taps whose gap stands out from the noise of the replay itself.
//
// A functional of many elements hides a small one behind a large one, and one tap behind another. What a replay's own
// roundings make of each element is sampled by what rounds otherwise: the execution itself, which in fp32 does so 2^29
// times as coarsely, where it rounds everything in one format; otherwise a second replay (Precision::kJittered). A gap
// far beyond that sample gets a probe of its own, whose bound is rigorous; where items are free, one along the gap too.
// The sample chooses what is asked; it accuses nobody.
#pragma once

#include <map>

#include "server/bound/pair/gap.h"

namespace plumbline {

struct Standouts {
  std::vector<Probe> probes;   // They ask of single taps and of single elements.
  std::uint64_t elements = 0;  // That were looked at.
};

// `compared`: by tap of the target, what was compared element by element already. `followed`: the replay that the
// execution rounds, where the target's is on its own leaves; null: it is not.
Standouts find_standouts(const BoundsInput& input, const Gap& gap, const std::map<std::size_t, Answer>& compared,
                         const Replay* followed);

}  // namespace plumbline
