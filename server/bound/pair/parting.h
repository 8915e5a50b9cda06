// Taps whose infinities and NaNs part in two programs by the signs of zeros alone: 1 / (0 - x) and 1 / -x where x is 0.
#pragma once

#include <set>

#include "server/bound/pair/gap.h"

namespace plumbline {

// Taps of the target, of those where the patterns are not one, which are one and agree in all elements when no -0 had
// been computed in either program (zeros.h).
std::set<std::size_t> parted_by_signs_of_zero(const BoundsInput& input, const Gap& gap);

}  // namespace plumbline
