// What kernels/cuda names of the driver's API; none of it is there (cuda_runtime.h).
#pragma once

#include <cstdint>

using CUdeviceptr = std::uintptr_t;
using CUresult = int;
constexpr CUresult CUDA_SUCCESS = 0;
