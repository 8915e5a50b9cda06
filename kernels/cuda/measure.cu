#include "kernels/cuda/measure.h"
#include "kernels/cuda/queue.cuh"

namespace plumbline::cuda {
namespace {

constexpr int kTimes = 10, kWarmUp = 2;

class Memory {
 public:
  Memory(Queue& queue, std::size_t bytes) {
    queue.check(cudaMalloc(&data_, bytes), "cudaMalloc");
    queue.check(cudaMemsetAsync(data_, 0, bytes, queue.stream()), "cudaMemset");
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

// Milliseconds of one call, by the device's own clock.
template <class Work>
double seconds(Queue& queue, const Work& work) {
  cudaEvent_t begin = nullptr, end = nullptr;
  queue.check(cudaEventCreate(&begin), "cudaEventCreate");
  queue.check(cudaEventCreate(&end), "cudaEventCreate");
  for (int i = 0; i < kWarmUp + kTimes; ++i) {
    if (i == kWarmUp) cudaEventRecord(begin, queue.stream());
    work();
  }
  cudaEventRecord(end, queue.stream());
  queue.check(cudaEventSynchronize(end), "measured work");
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return milliseconds * 1e-3 / kTimes;
}

}  // namespace

double copy_bandwidth(Device& device) {
  auto& queue = dynamic_cast<Queue&>(device);
  queue.use();
  constexpr std::size_t kBytes = std::size_t{512} << 20;
  const Memory from(queue, kBytes), to(queue, kBytes);
  return 2.0 * kBytes / seconds(queue, [&] {
           cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, queue.stream());
         });
}

double product_seconds(Device& device, Format format, std::int64_t side) {
  auto& queue = dynamic_cast<Queue&>(device);
  queue.use();
  const cudaDataType type = format == Format::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
  const std::size_t bytes = static_cast<std::size_t>(side * side) * sizeof(float);
  const Memory a(queue, bytes), b(queue, bytes), c(queue, bytes);
  const float one = 1, zero = 0;
  return seconds(queue, [&] {
    queue.check(
        cublasGemmEx_64(queue.blas(), CUBLAS_OP_N, CUBLAS_OP_N, side, side, side, &one, a.get(), type, side, b.get(),
                        type, side, &zero, c.get(), type, side, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
  });
}

}  // namespace plumbline::cuda
