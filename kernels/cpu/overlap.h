// What is added through a view whose elements coincide: the cotangents of a convolution's patches.
#pragma once

#include <cstdint>

#include "kernels/array.h"

namespace plumbline::cpu {

// Whether elements of the view coincide within many parts of what it spans that do not run into each other, as the
// patches of a convolution do within each image and channel; no stride is 0.
bool overlaps_in_parts(const View& view);

// to[...] += from[...] for such a view; `from` has its shape. Terms of one element are added in row-major order,
// whatever the number of threads.
void add_overlapping(double* to, const View& view, const Array& from);

}  // namespace plumbline::cpu
