// The CUDA device as kernels see it: a stream to launch into.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  Queue(int ordinal, const cudaDeviceProp& properties, std::int64_t sliced_work);
  ~Queue() override;
  bool open(std::string* error);  // Once, before all else.

  std::string name() const override { return name_; }
  std::int64_t total_bytes() const override { return total_bytes_; }
  void* allocate(std::size_t bytes) override;
  void free(void* memory, std::size_t bytes) noexcept override;
  void fetch(const void* from, std::size_t bytes, void* to) override;
  void send(const void* from, std::size_t bytes, void* to) override;
  std::optional<DeviceError> take_error() override;
  const Operations& operations() const override;

  cudaStream_t stream() const { return stream_; }
  cublasHandle_t blas() const { return blas_; }
  std::int64_t sliced_work() const { return sliced_work_; }                        // device.h
  void decode(Format format, const void* bytes, std::int64_t count, double* out);  // upload.cuh

  // Puts a kernel there; `what` names it where it cannot be launched.
  template <class... Parameters, class... Arguments>
  void launch(const char* what, void (*kernel)(Parameters...), const Grid& grid, Arguments&&... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid.blocks;
    config.blockDim = grid.threads;
    config.dynamicSmemBytes = grid.shared;
    config.stream = stream_;
    check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), what);
    launched();
  }
  void check(cudaError_t status, const char* what);  // Throws DeviceFailure.
  void check(cublasStatus_t status, const char* what);
  void use() const;  // Makes the device that of the calling thread.

 protected:
  void synchronise() override;
  std::shared_ptr<const double[]> land(const double* from, std::int64_t count) override;

 private:
  void note(cudaError_t status, const char* what);
  [[noreturn]] void fail(const char* what);

  int ordinal_;
  std::string name_;
  std::int64_t total_bytes_;
  const std::int64_t sliced_work_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  void* workspace_ = nullptr;
  // Pinned: what is small lands there, where the driver need not copy it piece by piece.
  static constexpr std::size_t kLandingBytes = std::size_t{512} << 10;
  void* landing_ = nullptr;
  std::mutex landing_mutex_;
  // Numbers on their way: pinned, filled one after the other and again when nobody holds any of them.
  struct Landing {
    std::shared_ptr<double[]> numbers;
    std::int64_t used = 0;
  };
  static constexpr std::int64_t kLandingNumbers = 1 << 14;
  std::vector<Landing> landings_;
  std::unique_ptr<Upload> upload_;
  std::mutex mutex_;
  std::optional<DeviceError> error_;
};

// The calling thread's device, if that is a CUDA device; null: the host.
Queue* current_queue();

// Where work on so many elements runs, whose result is `out`: the calling thread's device if `out` may lie in its
// memory. Null: on the host, as what is small does where the host holds all of it.
template <class... Arrays>
Queue* queue_for(std::int64_t elements, const Array& out, const Arrays&... inputs) {
  Queue* const queue = current_queue();
  if (queue == nullptr || out.device() != queue) return nullptr;
  return elements > queue->host_work() || out.away() || (... || inputs.away()) ? queue : nullptr;
}

// The same of work that has no array as its result.
template <class... Arrays>
Queue* queue_for_all(std::int64_t elements, const Arrays&... inputs) {
  Queue* const queue = current_queue();
  if (queue == nullptr || (... && (inputs.device() != queue))) return nullptr;
  return elements > queue->host_work() || (... || inputs.away()) ? queue : nullptr;
}

// x, or a copy of what lies in other memory, that `queue` can read.
Array resident(Queue& queue, const Array& x);

}  // namespace plumbline::cuda
