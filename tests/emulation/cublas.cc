#include <cblas.h>

#include <bit>
#include <vector>

#include "tests/emulation/cublas_v2.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace {

CBLAS_TRANSPOSE transpose(cublasOperation_t of) { return of == CUBLAS_OP_T ? CblasTrans : CblasNoTrans; }

// What the tensor cores of integers ask for: the first matrix transposed and the second not, m, k and leading
// dimensions multiples of 4, matrices at multiples of 4 bytes, alpha and beta 0 or 1. Here all is held to 16, which is
// fastest, and k to what int32 holds the sums of, whatever is multiplied.
struct IntegerProduct {
  std::int64_t m, n, k;
  const std::int8_t* a;
  std::int64_t lda, stride_a;
  const std::int8_t* b;
  std::int64_t ldb, stride_b;
  std::int32_t* c;
  std::int64_t ldc, stride_c, count;

  bool legal() const {
    for (const std::int64_t number : {m, k, lda, stride_a, ldb, stride_b, ldc, stride_c})
      if (number % 16 != 0) return false;
    for (const void* const matrix :
         {static_cast<const void*>(a), static_cast<const void*>(b), static_cast<const void*>(c)})
      if (reinterpret_cast<std::uintptr_t>(matrix) % 16 != 0) return false;
    return k < 1 << 17 && lda >= k && ldb >= k && ldc >= m;
  }

  void operator()() const {
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t column = 0; column < n; ++column)
        for (std::int64_t row = 0; row < m; ++row) {
          const std::int8_t *const x = a + i * stride_a + row * lda, *const y = b + i * stride_b + column * ldb;
          std::int32_t sum = 0;
          for (std::int64_t t = 0; t < k; ++t) sum += std::int32_t{x[t]} * std::int32_t{y[t]};
          c[i * stride_c + column * ldc + row] = sum;
        }
  }
};

}  // namespace

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  openblas_set_num_threads(1);  // Another thread is none of the device's, and may not touch its memory (memory.h).
  return *handle = new cublasContext, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) { return delete handle, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "not supported";
}

cublasStatus_t cublasDgemmStridedBatched_64(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b,
                                            std::int64_t m, std::int64_t n, std::int64_t k, const double* alpha,
                                            const double* a, std::int64_t lda, std::int64_t stride_a, const double* b,
                                            std::int64_t ldb, std::int64_t stride_b, const double* beta, double* c,
                                            std::int64_t ldc, std::int64_t stride_c, std::int64_t count) {
  emulation::put(handle->stream, [=, alpha = *alpha, beta = *beta] {
    for (std::int64_t i = 0; i < count; ++i)
      cblas_dgemm(CblasColMajor, transpose(of_a), transpose(of_b), static_cast<blasint>(m), static_cast<blasint>(n),
                  static_cast<blasint>(k), alpha, a + i * stride_a, static_cast<blasint>(lda), b + i * stride_b,
                  static_cast<blasint>(ldb), beta, c + i * stride_c, static_cast<blasint>(ldc));
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b,
                                             std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,
                                             const void* a, cudaDataType type_a, std::int64_t lda,
                                             std::int64_t stride_a, const void* b, cudaDataType type_b,
                                             std::int64_t ldb, std::int64_t stride_b, const void* beta, void* c,
                                             cudaDataType type_c, std::int64_t ldc, std::int64_t stride_c,
                                             std::int64_t count, cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (compute == CUBLAS_COMPUTE_32I) {
    if (type_a != CUDA_R_8I || type_b != CUDA_R_8I || type_c != CUDA_R_32I || of_a != CUBLAS_OP_T ||
        of_b != CUBLAS_OP_N || *static_cast<const std::int32_t*>(alpha) != 1 ||
        *static_cast<const std::int32_t*>(beta) != 0)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    const IntegerProduct product{m,
                                 n,
                                 k,
                                 static_cast<const std::int8_t*>(a),
                                 lda,
                                 stride_a,
                                 static_cast<const std::int8_t*>(b),
                                 ldb,
                                 stride_b,
                                 static_cast<std::int32_t*>(c),
                                 ldc,
                                 stride_c,
                                 count};
    if (!product.legal()) return CUBLAS_STATUS_NOT_SUPPORTED;
    emulation::count(emulation::Kind::kIntegerProduct);
    emulation::put(handle->stream, product);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (type_a != CUDA_R_16BF || type_b != CUDA_R_16BF || type_c != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto first = [](bool transposed, std::int64_t rows, std::int64_t columns, std::int64_t leading) {
    return (transposed ? rows - 1 : columns - 1) * leading + (transposed ? columns : rows);
  };
  const std::int64_t size_a = first(of_a == CUBLAS_OP_T, m, k, lda), size_b = first(of_b == CUBLAS_OP_T, k, n, ldb);
  emulation::put(
      handle->stream, [=, factor = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta)] {
        const auto widened = [](const void* from, std::int64_t offset, std::int64_t size) {
          std::vector<float> values(static_cast<std::size_t>(size));
          for (std::int64_t i = 0; i < size; ++i)
            values[static_cast<std::size_t>(i)] =
                std::bit_cast<float>(std::uint32_t{static_cast<const std::uint16_t*>(from)[offset + i]} << 16);
          return values;
        };
        for (std::int64_t i = 0; i < count; ++i)
          cblas_sgemm(CblasColMajor, transpose(of_a), transpose(of_b), static_cast<blasint>(m), static_cast<blasint>(n),
                      static_cast<blasint>(k), factor, widened(a, i * stride_a, size_a).data(),
                      static_cast<blasint>(lda), widened(b, i * stride_b, size_b).data(), static_cast<blasint>(ldb),
                      keep, static_cast<float*>(c) + i * stride_c, static_cast<blasint>(ldc));
      });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t, cublasOperation_t, cublasOperation_t, std::int64_t, std::int64_t,
                               std::int64_t, const void*, const void*, cudaDataType, std::int64_t, const void*,
                               cudaDataType, std::int64_t, const void*, void*, cudaDataType, std::int64_t,
                               cublasComputeType_t, cublasGemmAlgo_t) {
  return CUBLAS_STATUS_NOT_SUPPORTED;  // Only measurements of speed ask for it.
}
