// Exact results: functions by MPFR at 200 bits, sums and products by a superaccumulator.
#pragma once

#include <vector>

#include "tests/soundness/problem.h"
#include "tests/soundness/superaccumulator.h"

namespace plumbline::soundness {

// The exact result of every element, good to 2^-96 of itself. NaN outside of a function's domain. Throws
// std::logic_error for a primitive that has no oracle.
std::vector<Exact> exact(const Problem& problem);

// f(x) of one elementwise primitive of one or two inputs.
Exact exact_function(Primitive primitive, double x, double y = 0);

}  // namespace plumbline::soundness
