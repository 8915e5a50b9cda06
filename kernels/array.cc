#include "kernels/array.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "kernels/operations.h"

namespace plumbline {

std::int64_t count(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  return n;
}

Shape row_major_strides(const Shape& shape) {
  Shape strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = step;
    step *= shape[d];
  }
  return strides;
}

Shape broadcast(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  const std::size_t lead = longer.size() - shorter.size();
  for (std::size_t d = 0; d < shorter.size(); ++d) {
    if (result[lead + d] == 1) result[lead + d] = shorter[d];
  }
  return result;
}

bool is_row_major(const View& view) {
  std::int64_t step = 1;
  bool row_major = true;
  for (std::size_t d = view.sizes.size(); d-- > 0;) {
    if (view.sizes[d] == 0) return true;
    if (view.sizes[d] != 1 && view.strides[d] != step) row_major = false;
    step *= view.sizes[d];
  }
  return row_major;
}

Array Array::uninitialized(Shape shape) {
  Array array;
  array.count_ = plumbline::count(shape);
  array.view_.strides = row_major_strides(shape);
  array.view_.sizes = std::move(shape);
  array.contiguous_ = true;
  array.memory_ = std::make_shared<ArrayMemory>(array.count_);
  return array;
}

Array Array::zeros(Shape shape) { return full(std::move(shape), 0.0); }

Array Array::full(Shape shape, double value) {
  Array array = uninitialized(std::move(shape));
  current_operations().fill(array, value);
  return array;
}

Array Array::window(const View& view) const {
  assert(contiguous_);
  return restride(view);
}

Array Array::restride(const View& view) const {
  Array result = *this;
  result.view_.sizes = view.sizes;
  result.view_.strides = view.strides;
  result.view_.offset = view_.offset + view.offset;
  result.count_ = plumbline::count(view.sizes);
  result.contiguous_ = is_row_major(view);
  return result;
}

Array Array::reshape(Shape shape) const {
  if (shape == view_.sizes) return *this;
  Array result = materialize();
  result.view_.strides = row_major_strides(shape);
  result.view_.sizes = std::move(shape);
  return result;
}

Array Array::materialize() const {
  if (contiguous_) return *this;
  Array result = uninitialized(view_.sizes);
  current_operations().copy(result, *this);
  return result;
}

Array Array::on_host() const {
  if (!away() || memory_->keeps_copy()) {
    const HostScope scope;
    return materialize();
  }
  const Array there = materialize();
  const HostScope scope;
  Array copy = uninitialized(view_.sizes);
  if (there.away())
    device()->fetch(there.device_read(), static_cast<std::size_t>(count_) * sizeof(double), copy.data());
  else
    std::copy_n(there.data(), count_, copy.data());
  return copy;
}

Array Array::expand(const Shape& shape) const {
  if (shape == view_.sizes) return *this;
  Array result = *this;
  const std::size_t lead = shape.size() - view_.sizes.size();
  result.view_.sizes = shape;
  result.view_.strides.assign(shape.size(), 0);
  for (std::size_t d = 0; d < view_.sizes.size(); ++d) {
    result.view_.strides[lead + d] = view_.sizes[d] == 1 && shape[lead + d] != 1 ? 0 : view_.strides[d];
  }
  result.count_ = plumbline::count(shape);
  result.contiguous_ = is_row_major(result.view_);
  return result;
}

}  // namespace plumbline
