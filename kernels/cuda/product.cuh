// Products of fp64 matrices on cuBLAS, whose kernels use the tensor cores. An fp64 FMA rounds once to nearest on those
// as elsewhere.
#pragma once

#include "kernels/ball/narrow.h"
#include "kernels/cuda/queue.cuh"

namespace plumbline::cuda {

// Terms of a product that one call of cuBLAS sums, in an order of its choice: by Jeannerod and Rump (2013) n products
// summed in any order by FMAs are off by at most n u |a||b|. Each call starts from zero into memory of its own, and the
// calls' results are added by our own kernel in order, each addition one rounding: nothing is assumed of how cuBLAS
// adds to what is there. An element of a product of length k thus gathers at most kPiece + ceil(k / kPiece) roundings.
// On a device that was opened so, a call may be one of sliced_product.cuh, which is off by no more.
constexpr std::int64_t kPiece = 512;

// As cpu::matmul, all of it in the memory of `queue` but for operands that are copied there.
void matmul(Queue& queue, const Array& a, const Array& b, Array& c, bool accumulate);

// As cpu::matmul_narrow, in bf16 on the tensor cores, summed in fp32: whatever unit that is, 16 or more terms at a time
// are off by 4 n_eff 2^-24 of the sum at most (kernels/README.md, "Local errors"), n_eff the next multiple of 16, and
// partial sums of a split along k by a rounding more each; that many terms twice over.
constexpr double kNarrowError = 0x1p-20;
double matmul_narrow(Queue& queue, const Array& a, const Narrow& of_a, const Array& b, const Narrow& of_b, Array& c);

}  // namespace plumbline::cuda
