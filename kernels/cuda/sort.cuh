// Orders of numbers on the device, by CUB's radix sort (kernels/loop.h says what each does).
#pragma once

#include "kernels/cuda/queue.cuh"

namespace plumbline::cuda {

// False: more elements than their places can be counted in 32 bits. x [lines, length] and order [lines, kept] lie in
// the device's memory, row-major.
bool argsort(Queue& queue, const Array& x, Array& order);

}  // namespace plumbline::cuda
