// Whether a product is given the same operands twice: only then do two of its elements share their roundings.
#pragma once

#include <vector>

#include "kernels/array.h"

namespace plumbline {

// False where some two elements of a product (kMatmul's inputs and result shape) may have an equal row of the first
// operand and an equal column of the second, but for those of zeros alone, whose result is rounded nowhere. True: no
// two have. It costs as much as reading both operands, which lie on the host and are no patches.
bool distinct_operands(const std::vector<Array>& inputs, const Shape& result);

}  // namespace plumbline
