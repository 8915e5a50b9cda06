// A CUDA device for machines that have none: the runtime's functions and the language's words, as far as kernels/cuda
// uses them, so that the host's compiler builds the same sources and every kernel runs, thread by thread. Names and
// meanings are those of the CUDA runtime API and the CUDA C++ Programming Guide.
//
// It is stricter than a device. What is put into a stream waits there until somebody waits for it, so that a result
// read too early is not there yet. Fresh memory holds NaN, what lies before and after it is looked at when it is freed,
// and a host that touches it in place ends there (memory.h). Threads that wait at different barriers, or for one that
// has ended, are told. It says nothing of nvcc's code, of races between blocks (which run one after the other), or of
// speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>

#include "tests/emulation/block.h"
#include "tests/emulation/counts.h"

#define __host__
#define __device__
#define __global__
#define __launch_bounds__(...)
#define __shared__ thread_local  // A block's threads are one thread of the host's, and blocks run one by one.

using cudaError_t = int;
constexpr cudaError_t cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2,
                      cudaErrorInsufficientDriver = 35, cudaErrorInvalidDevice = 101, cudaErrorNotSupported = 801;
using cudaStream_t = emulation::Stream*;
using cudaEvent_t = emulation::Event*;
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaIpcMemLazyEnablePeerAccess = 1;
constexpr unsigned long long cudaEnableDefault = 0;
struct cudaIpcMemHandle_t {
  char reserved[64];
};
struct cudaDeviceProp {
  char name[256];
  struct {
    char bytes[16];
  } uuid;
  std::size_t totalGlobalMem;
  int major, minor;
};

cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaSetDevice(int device);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();

cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaMallocHost(void** memory, std::size_t bytes);
template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
cudaError_t cudaFree(void* memory);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

// Memory of other processes: not here.
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void* memory);
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned version, unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* found);

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*)(Parameters...), cudaFuncAttribute, int bytes) {
  return bytes <= static_cast<int>(emulation::kSharedBytes) ? cudaSuccess : cudaErrorInvalidValue;
}
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const emulation::Launch launch{config->gridDim, config->blockDim, config->dynamicSmemBytes};
  if (!emulation::legal(launch)) return cudaErrorInvalidValue;
  emulation::count(emulation::Kind::kLaunch);
  emulation::put(config->stream, [launch, kernel, held = std::tuple<Parameters...>(arguments...)] {
    emulation::run(launch, [&] { std::apply(kernel, held); });
  });
  return cudaSuccess;
}

// All threads of a warp take part, and each reads what another brought.
template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return emulation::exchange(mask, value, lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  const int mine = emulation::lane(), from = mine - static_cast<int>(distance);
  return emulation::exchange(mask, value, from < 0 ? mine : from);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
  const int mine = emulation::lane(), from = mine + static_cast<int>(distance);
  return emulation::exchange(mask, value, from > 31 ? mine : from);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return emulation::exchange(mask, value, emulation::lane() ^ bits);
}
inline int __any_sync(unsigned mask, int predicate) {
  for (int bits = 16; bits > 0; bits /= 2) {
    const int other = __shfl_xor_sync(mask, predicate, bits);
    predicate = predicate != 0 || other != 0 ? 1 : 0;
  }
  return predicate;
}
inline void __syncwarp() { emulation::wait_for_warp(); }
inline void __syncthreads() { emulation::wait_for_block(); }

struct double2 {
  double x, y;
};
inline double2 make_double2(double x, double y) { return {x, y}; }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline unsigned long long atomicMax(unsigned long long* at, unsigned long long value) {
  const unsigned long long before = *at;
  if (value > before) *at = value;
  return before;
}
