#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/ball/scalar.h"
#include "kernels/cuda/backend.h"

namespace plumbline::cuda {
namespace {

constexpr int kThreads = 256;

template <class F>
__global__ void map1(std::int64_t n, const double* a, double* out) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    out[i] = F::value(a[i]);
  }
}

template <class F>
__global__ void map2(std::int64_t n, const double* a, const double* b, double* out) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    out[i] = F::value(a[i], b[i]);
  }
}

// One block a row: strided partial results, then a tree in shared memory.
template <class Combine>
__global__ void reduce_rows(std::int64_t rows, std::int64_t n, const double* x, double* out) {
  __shared__ double partial[kThreads];
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    double total = Combine::kStart;
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) total = Combine::combine(total, x[row * n + i]);
    partial[threadIdx.x] = total;
    __syncthreads();
    for (int width = kThreads / 2; width > 0; width /= 2) {
      if (threadIdx.x < width) {
        partial[threadIdx.x] = Combine::combine(partial[threadIdx.x], partial[threadIdx.x + width]);
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) out[row] = partial[0];
    __syncthreads();
  }
}

// Device memory; `data` is null where allocation failed.
struct DeviceBuffer {
  explicit DeviceBuffer(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(1, count)) * sizeof(double);
    status = cudaMalloc(&data, bytes);
    if (status != cudaSuccess) data = nullptr;
  }
  ~DeviceBuffer() { cudaFree(data); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  double* data = nullptr;
  cudaError_t status = cudaSuccess;
};

int blocks_for(std::int64_t work) {
  return static_cast<int>(std::min<std::int64_t>(4096, std::max<std::int64_t>(1, work)));
}

using Unary = void (*)(std::int64_t, const double*, double*);
using Binary = void (*)(std::int64_t, const double*, const double*, double*);

template <class F>
void launch1(std::int64_t n, const double* a, double* out) {
  map1<F><<<blocks_for((n + kThreads - 1) / kThreads), kThreads>>>(n, a, out);
}

template <class F>
void launch2(std::int64_t n, const double* a, const double* b, double* out) {
  map2<F><<<blocks_for((n + kThreads - 1) / kThreads), kThreads>>>(n, a, b, out);
}

Unary unary(Primitive primitive) {
  switch (primitive) {
    case Primitive::kNeg:
      return launch1<scalar::Neg>;
    case Primitive::kExp:
      return launch1<scalar::Exp>;
    case Primitive::kTanh:
      return launch1<scalar::Tanh>;
    case Primitive::kErf:
      return launch1<scalar::Erf>;
    case Primitive::kSigmoid:
      return launch1<scalar::Sigmoid>;
    case Primitive::kRsqrt:
      return launch1<scalar::Rsqrt>;
    default:
      return nullptr;
  }
}

Binary binary(Primitive primitive) {
  switch (primitive) {
    case Primitive::kAdd:
      return launch2<scalar::Add>;
    case Primitive::kSub:
      return launch2<scalar::Sub>;
    case Primitive::kMul:
      return launch2<scalar::Mul>;
    case Primitive::kDiv:
      return launch2<scalar::Div>;
    case Primitive::kMax:
      return launch2<scalar::Maximum>;
    default:
      return nullptr;
  }
}

Array fail(std::string* error, const std::string& what, cudaError_t status) {
  if (error != nullptr) *error = what + ": " + cudaGetErrorString(status);
  return {};
}

cudaError_t upload(const Array& x, DeviceBuffer& to) {
  return cudaMemcpy(to.data, x.data(), static_cast<std::size_t>(x.count()) * sizeof(double), cudaMemcpyHostToDevice);
}

}  // namespace

bool available(std::string* reason) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return true;
  if (reason != nullptr) *reason = status == cudaSuccess ? "no device" : cudaGetErrorString(status);
  return false;
}

std::string device_name() {
  int device = 0;
  cudaDeviceProp properties;
  if (!available() || cudaGetDevice(&device) != cudaSuccess) return {};
  return cudaGetDeviceProperties(&properties, device) == cudaSuccess ? properties.name : "";
}

bool supports(Primitive primitive) {
  return unary(primitive) != nullptr || binary(primitive) != nullptr || primitive == Primitive::kSum;
}

Array evaluate(Primitive primitive, const Attributes& attributes, const Shape& shape, Inputs inputs,
               std::string* error) {
  const Unary one = unary(primitive);
  const Binary two = binary(primitive);
  if (!supports(primitive)) {
    if (error != nullptr) *error = "primitive " + std::string(traits(primitive).name) + " has no CUDA kernel";
    return {};
  }
  const bool sum = primitive == Primitive::kSum;
  const Array a = (sum ? inputs[0] : inputs[0].expand(shape)).materialize();
  const Array b = two != nullptr ? inputs[1].expand(shape).materialize() : Array();
  const std::size_t rank = a.shape().size();
  if (sum && attributes.dims.size() != rank &&
      !(attributes.dims.size() == 1 && attributes.dims[0] + 1 == static_cast<std::int64_t>(rank))) {
    if (error != nullptr) *error = "CUDA sum: expected the last dimension or all dimensions";
    return {};
  }
  Array out = Array::uninitialized(shape);
  if (out.count() == 0) return out;
  DeviceBuffer da(a.count()), db(b ? b.count() : 0), result(out.count());
  for (const DeviceBuffer* buffer : {&da, &db, &result}) {
    if (buffer->data == nullptr) return fail(error, "cudaMalloc", buffer->status);
  }
  cudaError_t status = upload(a, da);
  if (status == cudaSuccess && b) status = upload(b, db);
  if (status != cudaSuccess) return fail(error, "copy to the device", status);
  if (one != nullptr) {
    one(out.count(), da.data, result.data);
  } else if (two != nullptr) {
    two(out.count(), da.data, db.data, result.data);
  } else {
    const std::int64_t rows = out.count();
    reduce_rows<scalar::Sum><<<blocks_for(rows), kThreads>>>(rows, a.count() / rows, da.data, result.data);
  }
  status = cudaGetLastError();
  if (status != cudaSuccess) return fail(error, "kernel launch", status);
  status = cudaMemcpy(out.data(), result.data, static_cast<std::size_t>(out.count()) * sizeof(double),
                      cudaMemcpyDeviceToHost);
  if (status != cudaSuccess) return fail(error, "copy from the device", status);
  return out;
}

}  // namespace plumbline::cuda
