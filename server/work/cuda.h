// CUDA devices for workers, by a library that is loaded when the first one is asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/module.h"
#include "kernels/device.h"
#include "server/ingest/device_memory.h"

namespace plumbline {

// Opens "cuda:`index`"; `sliced_work` is cuda::open's. Errors name the device, what was expected and what was found.
absl::StatusOr<std::unique_ptr<Device>> open_cuda(int index, std::int64_t sliced_work = 0);

// The 16 bytes of the UUID of "cuda:`index`"; empty where there is no such device.
std::string cuda_uuid(int index);

// Memory that other processes share; empty where there is no library.
OpenDeviceMemory cuda_memory_opener();

}  // namespace plumbline
