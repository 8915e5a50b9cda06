// cuBLAS as far as kernels/cuda uses it, on the host's BLAS (cuda_runtime.h). Column-major, as there.
#pragma once

#include "tests/emulation/cuda_runtime.h"

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_SUPPORTED };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasMath_t { CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };
enum cublasAtomicsMode_t { CUBLAS_ATOMICS_NOT_ALLOWED };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32I };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT };
enum cudaDataType { CUDA_R_32F, CUDA_R_16BF, CUDA_R_8I, CUDA_R_32I };
struct cublasContext;
using cublasHandle_t = cublasContext*;

cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t bytes);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode);
const char* cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasDgemmStridedBatched_64(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b,
                                            std::int64_t m, std::int64_t n, std::int64_t k, const double* alpha,
                                            const double* a, std::int64_t lda, std::int64_t stride_a, const double* b,
                                            std::int64_t ldb, std::int64_t stride_b, const double* beta, double* c,
                                            std::int64_t ldc, std::int64_t stride_c, std::int64_t count);
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, std::int64_t m,
                               std::int64_t n, std::int64_t k, const void* alpha, const void* a, cudaDataType type_a,
                               std::int64_t lda, const void* b, cudaDataType type_b, std::int64_t ldb, const void* beta,
                               void* c, cudaDataType type_c, std::int64_t ldc, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm);
cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b,
                                             std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,
                                             const void* a, cudaDataType type_a, std::int64_t lda,
                                             std::int64_t stride_a, const void* b, cudaDataType type_b,
                                             std::int64_t ldb, std::int64_t stride_b, const void* beta, void* c,
                                             cudaDataType type_c, std::int64_t ldc, std::int64_t stride_c,
                                             std::int64_t count, cublasComputeType_t compute,
                                             cublasGemmAlgo_t algorithm);
