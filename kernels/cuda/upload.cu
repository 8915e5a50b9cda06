#include <algorithm>
#include <cstring>

#include "kernels/ball/code.h"
#include "kernels/cuda/queue.cuh"
#include "kernels/cuda/upload.cuh"

namespace plumbline::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kAlignment = 256;

template <class Code>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(std::int64_t count, const typename Code::Stored* from, double* out) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    out[i] = Code::value(from[i]);
  }
}

struct LaunchDecode {
  Queue& queue;
  std::int64_t count;
  const void* from;
  double* out;

  template <class Code>
  void operator()(Code) const {
    const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
    queue.launch("decode", decode_kernel<Code>, {blocks, kThreads}, count,
                 static_cast<const typename Code::Stored*>(from), out);
  }
};

}  // namespace

Upload::~Upload() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  for (const Part& part : parts_) {
    if (part.copied != nullptr) cudaEventDestroy(part.copied);
    if (part.read != nullptr) cudaEventDestroy(part.read);
    if (part.device != nullptr) cudaFree(part.device);
    if (part.pinned != nullptr) cudaFreeHost(part.pinned);
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void Upload::open(Queue& queue) {
  queue.check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  for (Part& part : parts_) {
    queue.check(cudaMallocHost(&part.pinned, kPartBytes), "cudaMallocHost");
    queue.check(cudaMalloc(&part.device, kPartBytes), "cudaMalloc of a buffer for copies");
    queue.check(cudaEventCreateWithFlags(&part.copied, cudaEventDisableTiming), "cudaEventCreate");
    queue.check(cudaEventCreateWithFlags(&part.read, cudaEventDisableTiming), "cudaEventCreate");
  }
}

void Upload::decode(Queue& queue, Format format, const void* bytes, std::int64_t count, double* out) {
  queue.use();
  const auto width = static_cast<std::size_t>(traits(format).bytes);
  const auto each = static_cast<std::int64_t>(kPartBytes / width);
  for (std::int64_t begin = 0; begin < count; begin += each) {
    const std::int64_t n = std::min(each, count - begin);
    const std::size_t size = static_cast<std::size_t>(n) * width;
    if (used_ + size > kPartBytes) {
      part_ = (part_ + 1) % std::size(parts_);
      used_ = 0;
      queue.check(cudaEventSynchronize(parts_[part_].copied), "copy to the device");
      queue.check(cudaStreamWaitEvent(stream_, parts_[part_].read), "cudaStreamWaitEvent");
    }
    Part& part = parts_[part_];
    char *const from = static_cast<char*>(part.pinned) + used_, *const to = static_cast<char*>(part.device) + used_;
    used_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    std::memcpy(from, static_cast<const char*>(bytes) + static_cast<std::size_t>(begin) * width, size);
    queue.check(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, stream_), "copy to the device");
    queue.check(cudaEventRecord(part.copied, stream_), "cudaEventRecord");
    queue.check(cudaStreamWaitEvent(queue.stream(), part.copied), "cudaStreamWaitEvent");
    code::visit(format, LaunchDecode{queue, n, to, out + begin});
    queue.check(cudaEventRecord(part.read, queue.stream()), "cudaEventRecord");
  }
}

}  // namespace plumbline::cuda
