// What a program that loads libplumbline_cuda.so at run time asks of it, so that one program serves nodes with and
// without devices. The program exports its own symbols: the library computes with the program's arrays and scopes.
#pragma once

#include <string>

#include "kernels/device.h"

struct plumbline_cuda_shared;

#pragma GCC visibility push(default)
extern "C" {
// A device of the caller's own, its context made anew after an error; null, and why, where there can be none.
// `sliced_work` is cuda::open's.
plumbline::Device* plumbline_cuda_open(int ordinal, long long sliced_work, std::string* error);

// The 16 bytes of the device's UUID; false where there is no such device.
bool plumbline_cuda_uuid(int ordinal, std::string* bytes);

// Memory that another process shares (cudaIpcGetMemHandle), by its device's UUID. Null, and why, where it cannot be
// opened. Copies block; false, and why, where they fail.
plumbline_cuda_shared* plumbline_cuda_import(const std::string& uuid, const std::string& handle,
                                             unsigned long long* bytes, std::string* error);
bool plumbline_cuda_copy(plumbline_cuda_shared* memory, unsigned long long offset, unsigned long long bytes, void* to,
                         std::string* error);
void plumbline_cuda_close(plumbline_cuda_shared* memory);
}
#pragma GCC visibility pop
