// A strided fp64 array over a shared buffer: what every replay value, cotangent and bound is held in.
//
// Copying an Array copies the handle, not the buffer. Buffers are written only by the code that made them; once an
// Array has been handed on it is treated as constant. Not thread-safe beyond that. An Array made in a DeviceScope lives
// in the device's memory, which the host addresses too: data() waits for work that the device has not done yet.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/device.h"

namespace plumbline {

using Shape = std::vector<std::int64_t>;

std::int64_t count(const Shape& shape);
Shape row_major_strides(const Shape& shape);
// Shape of a numpy-style broadcast of two shapes. They must be compatible.
Shape broadcast(const Shape& a, const Shape& b);

// A strided window on a flat buffer; element i lies at offset + sum i_d strides[d]. Strides may be 0, never negative.
struct View {
  Shape sizes;
  Shape strides;
  std::int64_t offset = 0;

  bool operator==(const View&) const = default;
};
// Whether its elements lie side by side in their order, wherever it begins. Strides of dimensions of size 1 do not
// matter; of an empty array none does.
bool is_row_major(const View& view);

class Array {
 public:
  Array() = default;                        // Empty handle: no value.
  static Array uninitialized(Shape shape);  // Row-major.
  static Array zeros(Shape shape);
  static Array full(Shape shape, double value);
  static Array scalar(double value) { return full({}, value); }

  explicit operator bool() const { return buffer_ != nullptr; }
  const Shape& shape() const { return view_.sizes; }
  const Shape& strides() const { return view_.strides; }
  std::int64_t count() const { return count_; }
  bool contiguous() const { return contiguous_; }  // Row-major without gaps.
  double* data() { return settled(); }
  const double* data() const { return settled(); }
  double item() const { return device_ != nullptr ? device_->read(address()) : *address(); }  // First element.

  // Null: the host's memory.
  Device* device() const { return device_; }
  // data() without waiting: for work that goes into the device's queue.
  double* address() const { return buffer_.get() + view_.offset; }

  // A window on this array, which must be contiguous; no copy.
  Array window(const View& view) const;
  // The same buffer read with other sizes and strides, offset relative to this array's first element; no copy. The
  // view must stay inside what this array covers.
  Array restride(const View& view) const;
  // The same elements in another shape of equal count: no copy when contiguous, otherwise a row-major copy. In the
  // shape that it has already, itself, strided or not.
  Array reshape(Shape shape) const;
  // Row-major copy, or itself when it already is.
  Array materialize() const;
  // For loops of the host that read most of it: row-major in the host's memory; a copy of what a device holds, at once,
  // where reading in place would move it page by page.
  Array on_host() const;
  // Zero-stride expansion to a shape that this one broadcasts to; no copy.
  Array expand(const Shape& shape) const;
  // Sole owner of the buffer: it may be reused in place.
  bool unique() const { return buffer_.use_count() == 1; }

 private:
  double* settled() const {
    if (device_ != nullptr) device_->wait();
    return address();
  }

  std::shared_ptr<double[]> buffer_;
  Device* device_ = nullptr;
  View view_;
  std::int64_t count_ = 0;
  bool contiguous_ = false;
};

// An array of upper bounds, never negative, each rounded up. A type of its own so that a bound is never taken for a
// value. An empty one means "exactly zero everywhere" (a bitwise operation).
struct Bound {
  Array values;
  explicit operator bool() const { return static_cast<bool>(values); }
};

}  // namespace plumbline
