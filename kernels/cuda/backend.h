// The CUDA backend: primitives on the current device, from the functors of kernels/ball/scalar.h that the CPU loops
// compile too. Thread-safe; host arrays in, host array out.
#pragma once

#include <string>

#include "kernels/primitive/primitive.h"

namespace plumbline::cuda {

// Whether a device can be used; if not, why.
bool available(std::string* reason = nullptr);

std::string device_name();  // Of the current device; empty where none can be used.

// Whether `evaluate` serves this primitive.
bool supports(Primitive primitive);

// As PrimitiveTraits::evaluate. Elementwise primitives of one or two inputs broadcast; kSum reduces the last
// dimension, or all of them. An empty array, and what failed in `error`, where the device or its memory fails or the
// application is not supported.
Array evaluate(Primitive primitive, const Attributes& attributes, const Shape& shape, Inputs inputs,
               std::string* error);

}  // namespace plumbline::cuda
