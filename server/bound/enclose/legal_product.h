// The first question to an observed product that is held in few bits: nearly all of its elements lie where the rounding
// of the result alone takes them, and |A||B|, a product of its own, need not be known of these.
#pragma once

#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

// Whether every element is within `slack` times its bound (local_error of kMatmul). No bound is below a part of the
// exact value, as |A||B| >= |AB|; elements beyond that are held against their own bounds, if they are few. False: that
// is not known, or something is illegal. `in`: the operands, on the host, which hold no patches.
bool legal_product(const Node& node, const Arithmetic& arithmetic, const std::vector<Array>& in, const Array& exact,
                   const LeafValue& observed, double slack);

}  // namespace plumbline
