// Whether it is plain that no two elements of a product share their roundings, without drawing any.
#pragma once

#include <vector>

#include "kernels/array.h"

namespace plumbline {

// A kernel rounds two elements of a product alike where it is given the same terms in the same order. That is so where
// a row of the first operand and a column of the second are equal to the other element's; where zeros hide in what they
// differ; in a product of a matrix with itself, whose element (i, j) is (j, i); and by chance where there are few
// terms. True: nothing of that is, for kMatmul's inputs, which lie on the host and are no patches. (Vectors that are
// powers of two times others are taken for different.) It costs as much as reading both operands at most.
bool distinct_terms(const std::vector<Array>& inputs);

}  // namespace plumbline
