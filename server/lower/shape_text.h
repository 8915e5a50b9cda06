// How messages write shapes.
#pragma once

#include <string>

#include "kernels/array.h"

namespace plumbline {

// [4, 8]; [] of a scalar.
inline std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace plumbline
