// The exponential function and what is computed by it, some times faster than by the C library.
#pragma once

#include "kernels/wide/scalar.h"

namespace plumbline::wide {

// Each is within 2^-102 of its result, exponential() within 2^-103. Thread-safe.
Wide exponential(Wide x);
Wide exponential_less_one(Wide x);  // exp(x) - 1
Wide tangent(Wide x);               // tanh(x)
Wide sigmoid(Wide x);               // 1 / (1 + exp(-x))

}  // namespace plumbline::wide
