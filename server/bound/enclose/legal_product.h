// The first question to an observed product that is held in few bits: nearly all of its elements lie where the rounding
// of the result alone takes them, and |A||B|, a product of its own, need not be known of these.
#pragma once

#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

// Whether every element is within `slack` times its bound (local_error of kMatmul). No bound is below a part of the
// exact value, as |A||B| >= |AB|; elements beyond that are held against their own bounds, if they are few. False: that
// is not known, or something is illegal. `in`: the operands, on the host, which hold no patches. `exact`: the product,
// whose sums may lie `off` |A||B| from exact ones, where that is more than fp64 loses.
//
// With S = |A||B| for one element, F S + u (F S + |t|) its bound at the exact value t, and m = t + e, |e| <= off S: the
// observed x is legal if |x - m| + off S <= s ((1 + u) F S + u (|m| - off S)), hence if |x - m| <= s u |m| + C S with
// C = s (1 + u) F - off (1 + s u). Where C >= 0 this is least for the least S, and S >= |m| / (1 + off).
bool legal_product(const Node& node, const Arithmetic& arithmetic, const std::vector<Array>& in, const Array& exact,
                   double off, const LeafValue& observed, double slack);

}  // namespace plumbline
