// Products of strided fp64 matrices on OpenBLAS. Threads are ours alone: OpenBLAS is held to one, and a product is
// cut into blocks of its batch, rows or columns for parallel_for; so two libraries never compete for the cores.
#pragma once

#include <cstdint>

#include "kernels/array.h"
#include "kernels/ball/narrow.h"

namespace plumbline::cpu {

// Terms that are summed apart, starting from zero, before their sum is added to the result. An element of a product of
// length k thus gathers at most kSumBlock + ceil(k / kSumBlock) roundings in place of k. (OpenBLAS's kernels keep the
// sum of a call in registers and add it to c once; a test asks the machine.)
constexpr std::int64_t kSumBlock = 32;

// c [..., m, n] (row-major) = a [..., m, k] b [..., k, n], or += with `accumulate`. Leading dimensions broadcast by
// numpy's rule; c has their broadcast, or fewer: where c's leading dimension is 1 or missing and theirs is not, the
// products are summed over it. Transposed and broadcast operands are read in place; others are copied.
void matmul(const Array& a, const Array& b, Array& c, bool accumulate);

// c = a b of what `of_a` and `of_b` make of their elements, in single precision; c row-major, without a sum over
// leading dimensions. A sum of n terms loses at most n times the returned value, which is one rounding of 2^-24 for
// each product and addition (Jeannerod and Rump 2013). Where it is 0 nothing was done, as the operands lie too far
// apart in memory.
inline constexpr double kNarrowError = 0x1p-23;
double matmul_narrow(const Array& a, const Narrow& of_a, const Array& b, const Narrow& of_b, Array& c);

// While it lives, large products that this thread asks for round their operands and sums to single precision, which is
// twice as fast: relative errors of some 2^-24 of an element's terms, as cotangents may have. A product whose operands
// lie far from 1 stays as it is.
class SinglePrecision {
 public:
  explicit SinglePrecision(bool enough);
  ~SinglePrecision();
  SinglePrecision(const SinglePrecision&) = delete;
  SinglePrecision& operator=(const SinglePrecision&) = delete;

 private:
  bool before_;
};

// x [..., m, n] read as [..., n, m]; no copy.
Array transpose_last_two(const Array& x);

}  // namespace plumbline::cpu
