// Row projections of an observed product (Freivalds 1977): what its rows deviate by, in the work of a few vectors.
#pragma once

#include <cstdint>

#include "kernels/primitive/primitive.h"

namespace plumbline {

// Rows of `observed` [..., m, n] which lie further from the product than its roundings by chance, or hold an infinity
// or NaN. `in`: kMatmul's, (a [..., m, k], b [..., k, n] [, c [, alpha]]). Signs come from `seed`. A row that deviates
// by four times as much is missed with probability below 4e-5, one whose error is a single element's never. One that is
// told may be legal all the same: it deserves a look at each of its elements.
//
// O((m + k) n + m k) work for 64 projections, and memory of O(m + k) and a copy of a.
double outlying_rows(const Arithmetic& arithmetic, Inputs in, const Array& observed, std::uint64_t seed);

}  // namespace plumbline
