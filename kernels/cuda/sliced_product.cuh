// Products of fp64 matrices on the tensor cores' 8-bit integers, for devices whose fp64 units are few (L4, L40S, A10
// and RTX have one for 32 or 64 of fp32). kernels/ball/sliced.h says what is computed and why it keeps the promise of
// the native product, element by element and whatever the operands hold.
//
// cuBLAS has such products of its own (CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT). They are not used, since its headers
// say no more of the retained bits than that a "recommended" number gives "the same or higher accuracy" and is rounded
// up to what suits the library: no proof can rest on that. Products of CUDA_R_8I with CUBLAS_COMPUTE_32I are sums of
// integers that int32 holds, of which there is one result, in whatever order.
#pragma once

#include <cstdint>

#include "kernels/cuda/queue.cuh"

namespace plumbline::cuda {

// One side of a batch of products: strides from one line to the next (a row of a, a column of b), from one term of a
// line to the next, and from one product to the next (0: the same for all).
struct Factor {
  const double* data = nullptr;
  std::int64_t line = 0, term = 0, product = 0;
};

// c [products, m, n] = a b over k terms; rows of c follow each other, and products are `stride` apart.
struct SlicedProduct {
  Factor a, b;
  std::int64_t m = 0, n = 0, k = 0;
  double* c = nullptr;
  std::int64_t stride = 0, products = 1;
};

// Whether slices are likely to be worth it, by sizes alone. `work_min`: multiplications, below which no product is
// sliced.
bool worth_slicing(const SlicedProduct& of, std::int64_t work_min);

// For k from sliced::kTermsMin to sliced::kTermsMax. Nothing waits for the device.
void multiply_sliced(Queue& queue, const SlicedProduct& of);

}  // namespace plumbline::cuda
