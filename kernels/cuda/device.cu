#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>

#include "kernels/cpu/loop.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/queue.cuh"

namespace plumbline::cuda {
namespace {

constexpr int kOldest = 8;  // Compute capability; of the oldest kernels that are compiled.

void say(std::string* error, const std::string& what) {
  if (error != nullptr) *error = what;
}

std::string text(const char* what, cudaError_t status) { return std::string(what) + ": " + cudaGetErrorString(status); }

// How many can be used; otherwise 0, and why.
int count_devices(std::string* reason) {
  int runtime = 0, driver = 0, devices = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorInsufficientDriver) {
    say(reason, driver == 0
                    ? "no CUDA driver"
                    : "the driver is for CUDA " + version(driver) + ", expected " + version(runtime) + " or later");
    return 0;
  }
  if (status != cudaSuccess) {
    say(reason, cudaGetErrorString(status));
    return 0;
  }
  if (devices == 0) say(reason, "no device");
  return devices;
}

}  // namespace

std::unique_ptr<Device> open(int ordinal, std::string* error, std::int64_t sliced_work) {
  const int devices = count_devices(error);
  if (devices == 0) return nullptr;
  if (ordinal < 0 || ordinal >= devices) {
    say(error, "no CUDA device " + std::to_string(ordinal) + ": expected 0 to " + std::to_string(devices - 1));
    return nullptr;
  }
  cudaDeviceProp properties;
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, ordinal); status != cudaSuccess) {
    say(error, text("properties of the device", status));
    return nullptr;
  }
  if (properties.major < kOldest) {
    say(error, std::string(properties.name) + " has compute capability " + std::to_string(properties.major) + "." +
                   std::to_string(properties.minor) + ", expected 8.0 or later");
    return nullptr;
  }
  auto queue = std::make_unique<Queue>(ordinal, properties, sliced_work);
  if (!queue->open(error)) return nullptr;
  return queue;
}

// CUDA's double functions are off by at most 2 ULP (CUDA C++ Programming Guide, table of double-precision functions:
// exp, expm1, log, log1p, 1; sin, cos, tanh, erf, pow, atan2 2; + - * / sqrt correctly rounded), products as kPiece
// says.
const Operations& operations() {
  static const Profile profile = [] {
    Profile own = ieee();
    for (const Function function : {Function::kExp, Function::kExpm1, Function::kLog, Function::kLog1p, Function::kSin,
                                    Function::kCos, Function::kTanh, Function::kErf, Function::kPow, Function::kAtan2})
      own.functions[static_cast<int>(function)].ulp = 2;
    own.functions[static_cast<int>(Function::kSigmoid)].ulp = 5;
    own.products[static_cast<int>(ProductClass::kFp64)].promote_every = static_cast<int>(kPiece);
    return own;
  }();
  static const Operations operations =
      primitive::operations({Format::kFloat64, Format::kFloat64, &profile, Format::kFloat64, true});
  return operations;
}

Queue::Queue(int ordinal, const cudaDeviceProp& properties, std::int64_t sliced_work)
    : ordinal_(ordinal),
      name_(properties.name),
      total_bytes_(static_cast<std::int64_t>(properties.totalGlobalMem)),
      sliced_work_(sliced_work) {}

Queue::~Queue() {
  cudaSetDevice(ordinal_);
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  upload_.reset();
  landings_.clear();
  if (blas_ != nullptr) cublasDestroy(blas_);
  cudaFree(workspace_);
  cudaFreeHost(landing_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  cudaGetLastError();  // What a lost device says of its end concerns nobody.
}

bool Queue::open(std::string* error) {
  try {
    use();
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    upload_ = std::make_unique<Upload>();
    upload_->open(*this);
    check(cudaMallocHost(&landing_, kLandingBytes), "cudaMallocHost");
    check(cudaMalloc(&workspace_, kWorkspaceBytes), "cudaMalloc of cuBLAS's workspace");
    check(cublasCreate(&blas_), "cublasCreate");
    check(cublasSetStream(blas_, stream_), "cublasSetStream");
    check(cublasSetWorkspace(blas_, workspace_, kWorkspaceBytes), "cublasSetWorkspace");
    // No emulated fp64, and no sums in 16 bits.
    check(cublasSetMathMode(blas_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION), "cublasSetMathMode");
    check(cublasSetAtomicsMode(blas_, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
    return true;
  } catch (const DeviceFailure& failure) {
    say(error, name_ + ": " + failure.what());
    return false;
  }
}

void Queue::use() const { cudaSetDevice(ordinal_); }

void* Queue::allocate(std::size_t bytes) {
  use();
  void* memory = nullptr;
  if (const cudaError_t status = cudaMalloc(&memory, bytes); status != cudaSuccess) {
    if (status != cudaErrorMemoryAllocation) note(status, "cudaMalloc");
    cudaGetLastError();
    return nullptr;
  }
  return memory;
}

void Queue::free(void* memory, std::size_t) noexcept {
  use();
  if (cudaFree(memory) != cudaSuccess) cudaGetLastError();
}

void Queue::fetch(const void* from, std::size_t bytes, void* to) {
  if (bytes == 0) return;
  use();
  std::unique_lock lock(landing_mutex_, std::defer_lock);
  const bool small = bytes <= kLandingBytes;
  if (small) lock.lock();
  check(cudaMemcpyAsync(small ? landing_ : to, from, bytes, cudaMemcpyDeviceToHost, stream_), "copy to the host");
  launched();
  wait();
  if (small) std::memcpy(to, landing_, bytes);
}

// What was given up before it came is overwritten by later copies alone: all are made in their order.
std::shared_ptr<const double[]> Queue::land(const double* from, std::int64_t count) {
  if (count > kLandingNumbers) return Device::land(from, count);
  use();
  for (Landing& landing : landings_)
    if (landing.numbers.use_count() == 1) landing.used = 0;
  auto room = std::ranges::find_if(landings_, [&](const Landing& l) { return l.used + count <= kLandingNumbers; });
  if (room == landings_.end()) {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, kLandingNumbers * sizeof(double)), "cudaMallocHost");
    const auto give_back = [](double* numbers) { cudaFreeHost(numbers); };
    landings_.push_back({std::shared_ptr<double[]>(static_cast<double*>(memory), give_back)});
    room = std::prev(landings_.end());
  }
  double* const to = room->numbers.get() + room->used;
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(double), cudaMemcpyDeviceToHost, stream_),
        "copy to the host");
  launched();
  room->used += count;
  return {room->numbers, to};
}

// From the driver's own buffers: the call returns when `from` is read.
void Queue::send(const void* from, std::size_t bytes, void* to) {
  if (bytes == 0) return;
  use();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "copy to the device");
  launched();
}

void Queue::decode(Format format, const void* bytes, std::int64_t count, double* out) {
  upload_->decode(*this, format, bytes, count, out);
}

void Queue::synchronise() {
  use();
  const std::uint64_t launch = launches();
  check(cudaStreamSynchronize(stream_), "work on the device");
  idle(launch);
}

std::optional<DeviceError> Queue::take_error() {
  const std::lock_guard lock(mutex_);
  std::optional<DeviceError> error = error_;
  if (error && !error->lost) error_.reset();
  return error;
}

const Operations& Queue::operations() const { return cuda::operations(); }

// A context that is lost repeats its error whatever is asked of it.
void Queue::note(cudaError_t status, const char* what) {
  cudaGetLastError();
  const bool lost = cudaStreamSynchronize(stream_) != cudaSuccess && cudaFree(nullptr) != cudaSuccess;
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = DeviceError{text(what, status), lost};
}

void Queue::fail(const char* what) {
  idle();
  throw DeviceFailure(name_ + ": " + what);
}

void Queue::check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  note(status, what);
  fail(text(what, status).c_str());
}

void Queue::check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  note(cudaGetLastError(), what);
  fail((std::string(what) + ": " + cublasGetStatusString(status)).c_str());
}

Queue* current_queue() {
  auto* const queue = dynamic_cast<Queue*>(current_device());
  if (queue != nullptr) queue->use();
  return queue;
}

// Without what it repeats.
Array resident(Queue& queue, const Array& x) {
  if (x.device() == &queue) return x;
  View once{x.shape(), x.strides(), 0};
  for (std::size_t d = 0; d < once.sizes.size(); ++d)
    if (once.strides[d] == 0 && once.sizes[d] > 1) once.sizes[d] = 1;
  const Array distinct = x.restride(once);
  Array copy = Array::uninitialized(once.sizes);
  if (distinct.contiguous()) {
    queue.send(distinct.data(), static_cast<std::size_t>(distinct.count()) * sizeof(double), copy.device_write());
  } else {
    cpu::map(copy, cpu::Copy{}, distinct);
  }
  return copy.expand(x.shape());
}

}  // namespace plumbline::cuda
