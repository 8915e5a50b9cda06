// The CUDA device as kernels see it: a stream to launch into.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "kernels/array.h"
#include "kernels/cuda/upload.cuh"
#include "kernels/device.h"

namespace plumbline::cuda {

struct Grid {
  dim3 blocks, threads;
  std::size_t shared = 0;  // Bytes that a block asks for when it is launched.
};

class Queue final : public Device {
 public:
  Queue(int ordinal, const cudaDeviceProp& properties);
  ~Queue() override;
  bool open(std::string* error);  // Once, before all else.

  std::string name() const override { return name_; }
  std::int64_t total_bytes() const override { return total_bytes_; }
  void* allocate(std::size_t bytes) override;
  void free(void* memory, std::size_t bytes) noexcept override;
  void fetch(const void* from, std::size_t bytes, void* to) override;
  std::optional<DeviceError> take_error() override;
  const Operations& operations() const override;

  cudaStream_t stream() const { return stream_; }
  cublasHandle_t blas() const { return blas_; }
  void put(const void* from, std::size_t bytes, Array& to);  // Row-major, as `to` is; `from` may go on its return.
  void decode(Format format, const void* bytes, std::int64_t count, double* out);  // upload.cuh

  // Puts a kernel there; `what` names it where it cannot be launched.
  template <class... Parameters, class... Arguments>
  void launch(const char* what, void (*kernel)(Parameters...), const Grid& grid, Arguments&&... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid.blocks;
    config.blockDim = grid.threads;
    config.dynamicSmemBytes = grid.shared;
    config.stream = stream_;
    launched();
    check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), what);
  }
  void check(cudaError_t status, const char* what);  // Throws DeviceFailure.
  void check(cublasStatus_t status, const char* what);
  void use() const;  // Makes the device that of the calling thread.

 protected:
  void synchronise() override;

 private:
  void note(cudaError_t status, const char* what);
  [[noreturn]] void fail(const char* what);

  int ordinal_;
  std::string name_;
  std::int64_t total_bytes_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  void* workspace_ = nullptr;
  std::unique_ptr<Upload> upload_;
  std::mutex mutex_;
  std::optional<DeviceError> error_;
};

// Where work whose result is `out` runs: the calling thread's device if that is a CUDA device and `out` lies in its
// memory; null: on the host.
Queue* queue_of(const Array& out);

// x, or a copy of it in the memory of `queue`.
Array resident(Queue& queue, const Array& x);

}  // namespace plumbline::cuda
