// Arithmetic of strided windows: which element of one layout is which element of another.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/array.h"

namespace plumbline {

// The window that reads all elements of a row-major array of this shape.
View row_major_view(const Shape& shape);

// The same window with the strides of dimensions of size 0 or 1 set to 0, so that equal windows compare equal.
View canonical(View view);

// One past the largest element that the window reads; 0 when it reads none; nothing when that overflows or a size,
// stride or offset is negative.
std::optional<std::int64_t> extent(const View& view);

// One dimension of a layout: `size` steps of `from` in the space that is addressed, of `to` in the space that holds
// the elements.
struct LayoutDimension {
  std::int64_t size = 1;
  std::int64_t from = 0;
  std::int64_t to = 0;
};

struct Layout {
  std::vector<LayoutDimension> dimensions;
  std::int64_t from_offset = 0;
  std::int64_t to_offset = 0;
};

// How elements addressed in storage lie in the row-major array that was written to storage through `written`.
Layout layout_of_write(const View& written);
// How the row-major elements of a window's result lie in the array that the window reads.
Layout layout_of_window(const View& window);

// The window on the holding space that reads what `wanted` reads in the addressed space, if one strided window can:
// every stride of `wanted` must advance the layout's dimensions without carries.
std::optional<View> compose(const Layout& layout, const View& wanted);

// Where a write through a view put an element: its place in the row-major array that was written. Cheap to ask often.
class WriteIndex {
 public:
  explicit WriteIndex(const View& written);
  bool ambiguous() const {
    return ambiguous_;
  }  // An element may have been written more than once: find() says nothing.
  std::optional<std::int64_t> find(std::int64_t address) const;  // Nothing: the write did not reach it.

 private:
  std::vector<LayoutDimension> dimensions_;
  std::int64_t offset_ = 0;
  bool ambiguous_ = false;
};

// Whether two windows are known to share no element: they lie behind one another, or beside one another in rows of one
// length. False: they may share some.
bool apart(const View& a, const View& b);

// Calls f(address) for each element that the window reads, in row-major order.
template <class Function>
void for_each_address(const View& view, Function f) {
  const std::int64_t elements = count(view.sizes);
  std::vector<std::int64_t> at(view.sizes.size(), 0);
  std::int64_t address = view.offset;
  for (std::int64_t i = 0; i < elements; ++i) {
    f(address);
    for (std::size_t d = at.size(); d-- > 0;) {
      address += view.strides[d];
      if (++at[d] < view.sizes[d]) break;
      address -= at[d] * view.strides[d];
      at[d] = 0;
    }
  }
}

// Where the write covers each of `count` storage elements exactly once: the window on the written array that reads
// it in storage order.
std::optional<View> storage_order(const View& written, std::int64_t count);

}  // namespace plumbline
