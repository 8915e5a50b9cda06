// Products of fp64 matrices on cuBLAS, whose kernels use the tensor cores. An fp64 FMA rounds once to nearest on those
// as elsewhere.
#pragma once

#include "kernels/cuda/queue.cuh"

namespace plumbline::cuda {

// Terms of a product that one call of cuBLAS sums, in an order of its choice: by Jeannerod and Rump (2013) n products
// summed in any order by FMAs are off by at most n u |a||b|. Each call starts from zero into memory of its own, and the
// calls' results are added by our own kernel in order, each addition one rounding: nothing is assumed of how cuBLAS
// adds to what is there. An element of a product of length k thus gathers at most kPiece + ceil(k / kPiece) roundings.
constexpr std::int64_t kPiece = 512;

// As cpu::matmul, all of it in the memory of `queue` but for operands that are copied there.
void matmul(Queue& queue, const Array& a, const Array& b, Array& c, bool accumulate);

}  // namespace plumbline::cuda
