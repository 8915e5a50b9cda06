// A strided array of wide scalars in the host's memory, 16 bytes an element. As kernels/array.h: copies share the
// buffer, which only the code that made it writes.
#pragma once

#include <memory>

#include "kernels/array.h"
#include "kernels/wide/scalar.h"

namespace plumbline {

class WideArray {
 public:
  WideArray() = default;                           // Empty handle: no value.
  static WideArray uninitialized(Shape shape);     // Row-major.
  static WideArray full(Shape shape, Wide value);  // Holds one element only.
  static WideArray of(const Array& values);        // Exactly; may be strided, and may live on a device.

  explicit operator bool() const { return buffer_ != nullptr; }
  const Shape& shape() const { return view_.sizes; }
  const View& view() const { return view_; }
  std::int64_t count() const { return count_; }
  bool contiguous() const { return contiguous_; }  // Row-major without gaps.
  Wide* data() { return buffer_.get() + view_.offset; }
  const Wide* data() const { return buffer_.get() + view_.offset; }

  // The same buffer read with other sizes and strides, offset from this array's first element; no copy.
  WideArray window(const View& view) const;
  // The same elements in another shape of equal count: no copy when contiguous, otherwise a row-major copy.
  WideArray reshape(Shape shape) const;
  // Row-major copy, or itself when it already is.
  WideArray materialize() const;
  // Zero-stride expansion to a shape that this one broadcasts to; no copy.
  WideArray expand(const Shape& shape) const;

 private:
  WideArray(std::shared_ptr<Wide[]> buffer, View view);

  std::shared_ptr<Wide[]> buffer_;
  View view_;
  std::int64_t count_ = 0;
  bool contiguous_ = false;
};

}  // namespace plumbline
