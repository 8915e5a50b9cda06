// Rows of independent sums side by side, so that one order serves them all and the processor's vectors are full.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/soundness/order.h"
#include "tests/soundness/problem.h"

namespace plumbline::soundness {

// [slots][width], slot after slot.
template <class T>
class Lanes {
 public:
  Lanes() = default;
  Lanes(std::int64_t slots, std::int64_t width)
      : slots_(slots), width_(width), data_(static_cast<std::size_t>(slots * width)) {}

  // The lanes of a reduction over one dimension of a matrix.
  static Lanes of(const Problem& p) {
    const Array& x = p.inputs[0];
    const bool last = p.attributes.dims[0] == 1;
    return of(x, last);
  }
  // The slots are the columns of a matrix, or its rows.
  static Lanes of(const Array& x, bool columns) {
    const std::int64_t rows = x.shape()[0], cols = x.shape()[1];
    Lanes lanes(columns ? cols : rows, columns ? rows : cols);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        (columns ? lanes[j][i] : lanes[i][j]) = static_cast<T>(x.data()[i * cols + j]);
      }
    }
    return lanes;
  }

  T* operator[](std::int64_t slot) { return data_.data() + slot * width_; }
  const T* operator[](std::int64_t slot) const { return data_.data() + slot * width_; }
  std::int64_t slots() const { return slots_; }
  std::int64_t width() const { return width_; }

  // slot[into] += slot[from] along an order.
  void merge(const Order& order) {
    for (const Merge& m : order.merges) add((*this)[m.into], (*this)[m.from], width_);
  }
  static void add(T* into, const T* from, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) into[i] += from[i];
  }

 private:
  std::int64_t slots_ = 0, width_ = 0;
  std::vector<T> data_;
};

// The order of a sum whose accumulation the profile states.
inline void legal_order(const Accumulation& kind, std::int64_t n, Random& random, Order& order) {
  if (kind.tree) return balanced_order(static_cast<int>(n), random, order);
  random_order(static_cast<int>(n), random, order);
}

}  // namespace plumbline::soundness
