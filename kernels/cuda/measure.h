// What the audit's speed on a device is measured against.
#pragma once

#include "kernels/ball/format.h"
#include "kernels/device.h"

#pragma GCC visibility push(default)

namespace plumbline::cuda {

// Bytes a second, read and written, at which the device copies its own memory.
double copy_bandwidth(Device& device);

// Seconds of cuBLAS's own product of two square matrices of fp32 (not tf32) or bf16.
double product_seconds(Device& device, Format format, std::int64_t side);

}  // namespace plumbline::cuda

#pragma GCC visibility pop
