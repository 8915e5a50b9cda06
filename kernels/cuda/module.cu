// What a program that loads the library asks of it: devices, and memory of other processes, which is opened by handle
// and copied out through pinned memory.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "kernels/cuda/device.h"
#include "kernels/cuda/module.h"

struct plumbline_cuda_shared {
  int device = 0;
  void* opened = nullptr;
  void* pinned = nullptr;  // The copy engine writes here at full speed; the host copies on.
  cudaStream_t stream = nullptr;
};

namespace {

constexpr unsigned long long kPinnedBytes = 4u << 20;

bool good(cudaError_t status, const char* what, std::string* error) {
  if (status == cudaSuccess) return true;
  *error = std::string(what) + ": " + cudaGetErrorString(status);
  static_cast<void>(cudaGetLastError());  // Not the next call's.
  return false;
}

// The number of the device of this UUID here; -1: there is none.
int device_of(const std::string& uuid) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return -1;
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess && uuid.size() == sizeof properties.uuid.bytes &&
        std::memcmp(properties.uuid.bytes, uuid.data(), uuid.size()) == 0) {
      return device;
    }
  }
  return -1;
}

// Bytes of the allocation, which the runtime does not tell.
unsigned long long allocation_bytes(void* memory) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    return 0;
  }
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  const auto range = reinterpret_cast<CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr)>(entry);
  return range(&base, &bytes, reinterpret_cast<CUdeviceptr>(memory)) == CUDA_SUCCESS ? bytes : 0;
}

}  // namespace

plumbline::Device* plumbline_cuda_open(int ordinal, long long sliced_work, std::string* error) {
  return plumbline::cuda::open(ordinal, error, sliced_work).release();
}

bool plumbline_cuda_uuid(int ordinal, std::string* bytes) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // Not the next call's.
    return false;
  }
  bytes->assign(properties.uuid.bytes, sizeof properties.uuid.bytes);
  return true;
}

plumbline_cuda_shared* plumbline_cuda_import(const std::string& uuid, const std::string& handle,
                                             unsigned long long* bytes, std::string* error) {
  auto* const memory = new plumbline_cuda_shared;
  memory->device = device_of(uuid);
  cudaIpcMemHandle_t name;
  if (memory->device < 0) {
    *error = "no device of this UUID is visible here";
  } else if (handle.size() != sizeof name) {
    *error = "a handle of another size";
  } else {
    std::memcpy(&name, handle.data(), sizeof name);
    if (good(cudaSetDevice(memory->device), "cudaSetDevice", error) &&
        good(cudaIpcOpenMemHandle(&memory->opened, name, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle",
             error) &&
        good(cudaMallocHost(&memory->pinned, kPinnedBytes), "cudaMallocHost", error) &&
        good(cudaStreamCreateWithFlags(&memory->stream, cudaStreamNonBlocking), "cudaStreamCreate", error)) {
      *bytes = allocation_bytes(memory->opened);
      return memory;
    }
  }
  plumbline_cuda_close(memory);
  return nullptr;
}

bool plumbline_cuda_copy(plumbline_cuda_shared* memory, unsigned long long offset, unsigned long long bytes, void* to,
                         std::string* error) {
  if (!good(cudaSetDevice(memory->device), "cudaSetDevice", error)) return false;
  for (unsigned long long done = 0; done < bytes;) {
    const unsigned long long part = std::min(bytes - done, kPinnedBytes);
    if (!good(cudaMemcpyAsync(memory->pinned, static_cast<const char*>(memory->opened) + offset + done, part,
                              cudaMemcpyDeviceToHost, memory->stream),
              "cudaMemcpyAsync", error) ||
        !good(cudaStreamSynchronize(memory->stream), "cudaStreamSynchronize", error)) {
      return false;
    }
    std::memcpy(static_cast<char*>(to) + done, memory->pinned, part);
    done += part;
  }
  return true;
}

void plumbline_cuda_close(plumbline_cuda_shared* memory) {
  if (memory->device >= 0) static_cast<void>(cudaSetDevice(memory->device));
  if (memory->stream != nullptr) static_cast<void>(cudaStreamDestroy(memory->stream));
  if (memory->pinned != nullptr) static_cast<void>(cudaFreeHost(memory->pinned));
  if (memory->opened != nullptr) static_cast<void>(cudaIpcCloseMemHandle(memory->opened));
  delete memory;
}
