// Products of strided fp64 matrices on OpenBLAS. Threads are ours alone: OpenBLAS is held to one, and a product is
// cut into blocks of its batch, rows or columns for parallel_for; so two libraries never compete for the cores.
#pragma once

#include <cstdint>

#include "kernels/array.h"

namespace plumbline::cpu {

// c [..., m, n] (row-major) = a [..., m, k] b [..., k, n], or += with `accumulate`. Leading dimensions broadcast by
// numpy's rule; c has their broadcast, or fewer: where c's leading dimension is 1 or missing and theirs is not, the
// products are summed over it. Transposed and broadcast operands are read in place; others are copied.
void matmul(const Array& a, const Array& b, Array& c, bool accumulate);

// x [..., m, n] read as [..., n, m]; no copy.
Array transpose_last_two(const Array& x);

}  // namespace plumbline::cpu
