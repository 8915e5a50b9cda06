// CUDA devices for workers, by a library that is loaded when the first one is asked for.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/module.h"
#include "kernels/device.h"

namespace plumbline {

// Opens "cuda:`index`". Errors name the device, what was expected and what was found.
absl::StatusOr<std::unique_ptr<Device>> open_cuda(int index);

// Whether a device of which these are the facts can be used.
absl::Status check_cuda(int index, const cuda::Facts& facts);

}  // namespace plumbline
