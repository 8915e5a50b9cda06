// What a family of matrix products asks of any BLAS: operands that it can read in place, and a batch with as few
// dimensions as the strides allow.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/strided.h"

namespace plumbline {

// Strides of a matrix of which one is 1, or whose side of that stride is 1 long.
struct MatrixStrides {
  std::int64_t row = 0, column = 0;
};

// How a BLAS reads it: as it is, row after row, or transposed; `leading` elements from one to the next.
struct MatrixLayout {
  bool transposed;
  std::int64_t leading;
};
MatrixLayout layout(std::int64_t rows, std::int64_t columns, const MatrixStrides& x);

// c [batch, m, n] = sum over `summed` of a [batch, m, k] b [batch, k, n]; c row-major.
struct Contraction {
  Array a, b;  // Readable in place: copies where the operands are not.
  MatrixStrides a_strides, b_strides;
  std::int64_t m = 0, n = 0, k = 0;
  // The dimensions of the batch, with the strides of c, a and b. Neither is empty; c does not advance over `summed`.
  std::vector<Dimension<3>> kept, summed;
  std::int64_t products = 1, terms = 1;  // The products of the sizes of `kept` and of `summed`.
};

// Elements from the first to the last that the strided array holds.
std::int64_t span_of(const Array& x);

// Whether to copy and convert all operands and the result costs little beside the product.
bool worth_converting(const Array& a, const Array& b, const Array& c);

// As matmul takes them (kernels/cpu/gemm.h). Nothing to do where products or terms are 0.
Contraction contraction(const Array& a, const Array& b, const Array& c);

}  // namespace plumbline
