#include <algorithm>
#include <vector>

#include "kernels/ball/sliced.h"
#include "kernels/contraction.h"
#include "kernels/cuda/loop.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/sliced_product.cuh"
#include "kernels/cuda/table.cuh"
#include "kernels/operations.h"

namespace plumbline::cuda {
namespace {

static_assert(kPiece <= sliced::kTermsMax);
constexpr std::int64_t kScratch = std::int64_t{64} << 20;  // Bytes of pieces that wait to be added, at least one.

cublasOperation_t operation(const MatrixLayout& x) { return x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

// One call: `count` products, each a `stride` further. Row-major C = A B is column-major C^T = B^T A^T.
struct Batch {
  std::int64_t count, a, b, c;
};
void gemm(Queue& queue, const Contraction& of, std::int64_t k, const double* a, const double* b, double* c,
          const Batch& batch) {
  const SlicedProduct in_slices{{a, of.a_strides.row, of.a_strides.column, batch.a},
                                {b, of.b_strides.column, of.b_strides.row, batch.b},
                                of.m,
                                of.n,
                                k,
                                c,
                                batch.c,
                                batch.count};
  if (queue.sliced_work() > 0 && worth_slicing(in_slices, queue.sliced_work()))
    return multiply_sliced(queue, in_slices);
  constexpr double kOne = 1, kZero = 0;
  const MatrixLayout la = layout(of.m, of.k, of.a_strides), lb = layout(of.k, of.n, of.b_strides);
  queue.check(
      cublasDgemmStridedBatched_64(queue.blas(), operation(lb), operation(la), of.n, of.m, k, &kOne, b, lb.leading,
                                   batch.b, a, la.leading, batch.a, &kZero, c, of.n, batch.c, batch.count),
      "cublasDgemmStridedBatched");
  queue.launched();
}

// A stretch of the summed terms, from the beginning of a product.
struct Piece {
  std::int64_t a, b, length;
};

std::vector<Piece> pieces_of(const Contraction& of) {
  std::vector<Piece> pieces;
  for_each_run<3>(of.summed, 0, of.terms, [&](std::int64_t n, const std::array<std::int64_t, 3>& at) {
    const auto& step = of.summed.back().strides;
    for (std::int64_t r = 0; r < n; ++r) {
      for (std::int64_t p = 0; p < of.k; p += kPiece)
        pieces.push_back({at[1] + r * step[1] + p * of.a_strides.column, at[2] + r * step[2] + p * of.b_strides.row,
                          std::min(kPiece, of.k - p)});
    }
  });
  return pieces;
}

// c [products, each] = or += the sum over `pieces` of partial [pieces, products, each], in order.
__global__ void __launch_bounds__(internal::kThreads)
    add_pieces(std::int64_t products, std::int64_t each, std::int64_t stride, std::int64_t pieces, bool accumulate,
               const double* partial, double* c) {
  const std::int64_t all = products * each;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(internal::kThreads) + threadIdx.x; i < all;
       i += static_cast<std::int64_t>(gridDim.x) * internal::kThreads) {
    double& to = c[i / each * stride + i % each];
    double sum = partial[i];
    if (accumulate) sum += to;
    for (std::int64_t p = 1; p < pieces; ++p) sum += partial[p * all + i];
    to = sum;
  }
}

// `count` products side by side, the operands of the first at a, b, c.
void products(Queue& queue, const Contraction& of, const std::vector<Piece>& pieces, const Batch& batch,
              const double* a, const double* b, double* c, bool accumulate) {
  if (pieces.size() == 1 && !accumulate) return gemm(queue, of, pieces[0].length, a, b, c, batch);
  const std::int64_t each = of.m * of.n, all = batch.count * each;
  const auto room =
      std::clamp<std::int64_t>(kScratch / static_cast<std::int64_t>(all * sizeof(double)), 1, std::ssize(pieces));
  const Array partial = Array::uninitialized({room, all});
  for (std::int64_t first = 0; first < std::ssize(pieces); first += room) {
    const std::int64_t count = std::min(room, std::ssize(pieces) - first);
    // The whole pieces of a single product follow each other, so that one call does them all.
    const bool together = batch.count == 1 && of.terms == 1;
    for (std::int64_t p = 0; p < count;) {
      const Piece& piece = pieces[static_cast<std::size_t>(first + p)];
      std::int64_t calls = 1;
      while (together && piece.length == kPiece && p + calls < count &&
             pieces[static_cast<std::size_t>(first + p + calls)].length == kPiece)
        ++calls;
      const Batch of_call = calls == 1 ? Batch{batch.count, batch.a, batch.b, each}
                                       : Batch{calls, kPiece * of.a_strides.column, kPiece * of.b_strides.row, all};
      gemm(queue, of, piece.length, a + piece.a, b + piece.b, partial.device_write() + p * all, of_call);
      p += calls;
    }
    queue.launch("sum of products", add_pieces, internal::grid_for(all), batch.count, each, batch.c, count,
                 accumulate || first > 0, partial.device_read(), c);
  }
}

}  // namespace

void matmul(Queue& queue, const Array& left, const Array& right, Array& c, bool accumulate) {
  if (c.count() == 0) return;
  const Contraction of = contraction(resident(queue, left), resident(queue, right), c);
  if (of.products == 0 || of.terms == 0 || of.k == 0) {
    if (!accumulate) current_operations().fill(c, 0);
    return;
  }
  const std::vector<Piece> pieces = pieces_of(of);
  // The innermost dimension of the batch is cuBLAS's; the others are walked here.
  for_each_run<3>(of.kept, 0, of.products, [&](std::int64_t n, const std::array<std::int64_t, 3>& at) {
    const auto& step = of.kept.back().strides;
    products(queue, of, pieces, {n, step[1], step[2], n == 1 ? of.m * of.n : step[0]}, of.a.device_read() + at[1],
             of.b.device_read() + at[2], c.device_write() + at[0], accumulate);
  });
}

namespace {

__global__ void __launch_bounds__(internal::kThreads)
    narrow_kernel(std::int64_t n, const double* from, Narrow of, std::uint16_t* to) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(internal::kThreads) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * internal::kThreads) {
    to[i] = of.bf16(from[i]);
  }
}

__global__ void __launch_bounds__(internal::kThreads) widen_kernel(std::int64_t n, const float* from, double* to) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(internal::kThreads) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * internal::kThreads) {
    to[i] = from[i];
  }
}

// All that x spans.
Array narrowed(Queue& queue, const Array& x, const Narrow& of) {
  const std::int64_t span = span_of(x);
  if (span > 2 * x.count()) return {};
  const Array result = memory_of<std::uint16_t>(static_cast<std::size_t>(span));
  queue.launch("bf16", narrow_kernel, internal::grid_for(span), span, x.device_read(), of,
               rows_of<std::uint16_t>(result));
  return result;
}

}  // namespace

double matmul_narrow(Queue& queue, const Array& left, const Narrow& of_left, const Array& right, const Narrow& of_right,
                     Array& c) {
  const Contraction of = contraction(resident(queue, left), resident(queue, right), c);
  if (of.products == 0 || of.terms != 1 || of.k == 0) return 0;
  const Array a = narrowed(queue, of.a, of_left), b = a ? narrowed(queue, of.b, of_right) : a;
  if (!b) return 0;
  const Array sums = memory_of<float>(static_cast<std::size_t>(c.count()));
  const MatrixLayout la = layout(of.m, of.k, of.a_strides), lb = layout(of.k, of.n, of.b_strides);
  constexpr float kOne = 1, kZero = 0;
  for_each_run<3>(of.kept, 0, of.products, [&](std::int64_t n, const std::array<std::int64_t, 3>& at) {
    const auto& step = of.kept.back().strides;
    queue.check(
        cublasGemmStridedBatchedEx_64(queue.blas(), operation(lb), operation(la), of.n, of.m, of.k, &kOne,
                                      rows_of<std::uint16_t>(b) + at[2], CUDA_R_16BF, lb.leading, step[2],
                                      rows_of<std::uint16_t>(a) + at[1], CUDA_R_16BF, la.leading, step[1], &kZero,
                                      rows_of<float>(sums) + at[0], CUDA_R_32F, of.n, n == 1 ? of.m * of.n : step[0], n,
                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmStridedBatchedEx");
    queue.launched();
  });
  queue.launch("widen", widen_kernel, internal::grid_for(c.count()), c.count(),
               static_cast<const float*>(rows_of<float>(sums)), c.device_write());
  return kNarrowError;
}

}  // namespace plumbline::cuda
