// What CUDA's kernels of fused attention round beyond the operations that their formula names. A product or a sum that
// rounds more often is charged as one of more terms, which is what attributes.size says of it (kernels/primitive).
#pragma once

#include "server/lower/emit.h"

namespace plumbline::attention {

// The product of two arrays of matrices on tensor cores, of numbers in fp32 too.
Expr product(Expr a, Expr b);
// Charges a product or a sum over keys for the rescaling of blocks of them. Returns it.
Expr rescaled(Expr sum);
// Numbers that a kernel multiplies with log2 e: the numbers themselves, charged for what the factor and the product
// round.
Expr in_base_two(Expr x);

}  // namespace plumbline::attention
