#include <cblas.h>

#include <bit>
#include <vector>

#include "tests/emulation/cublas_v2.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace {

CBLAS_TRANSPOSE transpose(cublasOperation_t of) { return of == CUBLAS_OP_T ? CblasTrans : CblasNoTrans; }

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
                                             std::int64_t count, cublasComputeType_t, cublasGemmAlgo_t) {
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
