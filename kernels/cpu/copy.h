// Copies between strided arrays: what reshapes, permutations and the patches of convolutions are made of.
#pragma once

#include <cstdint>

#include "kernels/array.h"

namespace plumbline::cpu {

// to[...] = from[...], `from` broadcast to the view's shape; the view's elements lie apart from each other and from
// `from`, or are the very same. `to`: the first of them.
void copy(double* to, const View& view, const Array& from);

// to[...] += from[...], likewise.
void add(double* to, const View& view, const Array& from);

}  // namespace plumbline::cpu
