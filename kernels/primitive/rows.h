// The rows along the last dimension of a row-major array.
#pragma once

#include "kernels/loop.h"

namespace plumbline::primitive {

struct Rows {
  std::int64_t count, length;
};

inline Rows rows_of(const Array& x) {
  const std::int64_t length = x.shape().empty() ? 1 : x.shape().back();
  return {length == 0 ? 0 : x.count() / length, length};
}

}  // namespace plumbline::primitive
