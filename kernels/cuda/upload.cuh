// Content from the host, decoded on the device. It goes through pinned buffers, by a stream of its own: the next part
// is copied while the device computes, which waits for a part where it reads it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/ball/format.h"

namespace plumbline::cuda {

class Queue;

class Upload {
 public:
  ~Upload();
  void open(Queue& queue);  // Once, before all else. Throws DeviceFailure, as `decode`.

  // out[i] = the i-th of `count` elements, held in `format`. `bytes` may go on its return.
  void decode(Queue& queue, Format format, const void* bytes, std::int64_t count, double* out);

 private:
  static constexpr std::size_t kPartBytes = 2 << 20;
  // Small contents lie in one part, one behind the other. Its buffers are free again when all was `copied`, and on the
  // device when all was `read`.
  struct Part {
    void *pinned = nullptr, *device = nullptr;
    cudaEvent_t copied = nullptr, read = nullptr;
  };
  Part parts_[4];
  std::size_t part_ = 0, used_ = 0;  // The part that is being filled, and so many bytes of it.
  cudaStream_t stream_ = nullptr;
};

}  // namespace plumbline::cuda
