// Surprise (kernels/README.md, "Surprise") is minus log10 of the probability, by the rounding model, that a legal
// execution deviates somewhere as much as this one does, over all that was looked at. It is never overstated: of legal
// executions at most one in 10^s has a surprise of s or more.
//
// Every question of every finding has a bound p of the probability that a legal execution answers it with so large a
// deviation:
//
//   one functional (a loss, a probe): deviation = bias + x spread, p = 2 exp(-x^2 / 2), by Hoeffding (1963) and Azuma
//       (1967), two-sided. Bias is whatever has no reason to be zero-mean, charged whole. Beyond the worst case p = 0;
//   n elements, one by one: n times the least of their own chances (kernels/comparison.h, where they are derived), by
//       Boole's inequality. Beyond an element's bound p = 0;
//   one that has an envelope at lambda = sqrt(2 ln(2 / alpha)) and nothing else: bias is at least 0, so that m times
//       the envelope is beyond bias + m lambda spread, and p = 2 (alpha / 2)^(m^2) for m > 1.
//
// The verdict's probability is that of the least likely of its q questions, times q. However the questions depend on
// each other, P(min q p_i <= x) <= sum P(p_i <= x / q) <= x. Each question has the same part of that sum, whatever its
// elements: a loss is not drowned by a million weights.
//
// Roundings of a constant, a tie, or few different numbers are not uniform, and the model is only that. What a tie may
// do is allowed for: the half-width is u |x|, which a rounding of half a unit in the last place reaches only where x is
// a power of two.
#pragma once

#include "server/bound/bounds.h"
#include "server/judge/verdict.h"

namespace plumbline {

// The surprise of one answer that was asked of `elements`; at 0 legal executions often deviate as much. What numbers of
// unknown origin may explain surprises nobody.
double surprise(const Answer& answer, std::uint64_t elements, double alpha);

// Sets the surprise of a judged verdict and of its taps, which are the findings one by one, and says in words what it
// means. NaN: nothing was asked, or no answer said anything. 0: all that was compared is equal bit by bit. Infinite: no
// legal rounding is the reason.
void add_surprise(const Bounds& bounds, Verdict* verdict);

}  // namespace plumbline
