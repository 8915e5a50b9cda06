// A strided fp64 array over a shared buffer: what every replay value, cotangent and bound is held in.
//
// Copying an Array copies the handle, not the buffer. Buffers are written only by the code that made them; once an
// Array has been handed on it is treated as constant. Not thread-safe beyond that. An Array made in a DeviceScope lies
// in the device's memory, in the host's or in both (array_memory.h): data() brings it to the host where it is not there
// yet, and a device's kernels bring what they read to the device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/array_memory.h"
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

  explicit operator bool() const { return memory_ != nullptr; }
  const Shape& shape() const { return view_.sizes; }
  const Shape& strides() const { return view_.strides; }
  std::int64_t count() const { return count_; }
  bool contiguous() const { return contiguous_; }  // Row-major without gaps.
  double* data() { return address(); }             // To be written; null of an empty handle.
  const double* data() const { return memory_ ? memory_->read() + view_.offset : nullptr; }
  double item() const { return memory_->element(view_.offset); }  // First element.
  // data() of a handle that is constant, to be written.
  double* address() const { return memory_ ? memory_->write() + view_.offset : nullptr; }
  bool same_place(const Array& other) const { return memory_ == other.memory_ && view_.offset == other.view_.offset; }

  // Null: the host's memory alone.
  Device* device() const { return memory_ ? memory_->device() : nullptr; }
  bool away() const { return memory_ && memory_->away(); }  // On the device alone.
  // What device() reads and writes, by work that goes into its queue.
  const double* device_read() const { return memory_->device_read() + view_.offset; }
  double* device_write() const { return memory_->device_write() + view_.offset; }

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
  // For loops of the host that read most of it: row-major, and there. What is small stays on both sides, a large array
  // is a copy in the host's memory alone.
  Array on_host() const;
  // Zero-stride expansion to a shape that this one broadcasts to; no copy.
  Array expand(const Shape& shape) const;
  // Sole owner of the buffer: it may be reused in place.
  bool unique() const { return memory_.use_count() == 1; }

 private:
  std::shared_ptr<ArrayMemory> memory_;
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
