// CUDA devices: each a stream, a cuBLAS handle and memory, behind kernels/device.h. No CUDA type is named here.
//
// Operands that were made outside of a device's scope are copied to it for every use. Beside what its MemoryResource
// hands out a device takes kWorkspaceBytes, 8 MiB for copies (upload.cuh) and the context (about 300 MiB).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/device.h"
#include "kernels/operations.h"

#pragma GCC visibility push(default)

namespace plumbline::cuda {

inline constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;  // cuBLAS is given so much.

// Null, and what failed in `error`: no such device, one too old for the kernels, one that cannot share memory with the
// host, no memory left on it. `sliced_work`: products of so many multiplications and more are worked out in slices of
// 8-bit integers, which is faster where fp64 units are few and changes no bound (sliced_product.cuh); 0: none are.
std::unique_ptr<Device> open(int ordinal, std::string* error, std::int64_t sliced_work = 0);

// What every CUDA device computes. Outside of the scope of one: the same code on the host.
const Operations& operations();

}  // namespace plumbline::cuda

#pragma GCC visibility pop
