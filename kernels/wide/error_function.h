// The error function, some times faster than by the C library.
#pragma once

#include "kernels/wide/scalar.h"

namespace plumbline::wide {

// Within 2^-101 of its result. Thread-safe.
Wide error_function(Wide x);

}  // namespace plumbline::wide
