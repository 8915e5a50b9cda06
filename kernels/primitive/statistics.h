// Mean and (biased) variance over dimensions, in two passes.
#pragma once

#include <vector>

#include "kernels/array.h"

namespace plumbline::primitive {

struct Statistics {
  Array mean;      // Reduced dimensions stay as size 1.
  Array variance;  // mean((x - mean)^2).
  std::int64_t terms = 0;
};

Statistics statistics(const Array& x, const std::vector<std::int64_t>& dims);

}  // namespace plumbline::primitive
