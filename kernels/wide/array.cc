#include "kernels/wide/array.h"

#include <utility>

#include "kernels/wide/loop.h"

namespace plumbline {

WideArray::WideArray(std::shared_ptr<Wide[]> buffer, View view)
    : buffer_(std::move(buffer)), view_(std::move(view)), count_(plumbline::count(view_.sizes)) {
  const Shape dense = row_major_strides(view_.sizes);
  contiguous_ = true;
  for (std::size_t d = 0; d < dense.size(); ++d)
    contiguous_ = contiguous_ && (view_.sizes[d] == 1 || view_.strides[d] == dense[d]);
}

WideArray WideArray::uninitialized(Shape shape) {
  const auto n = static_cast<std::size_t>(plumbline::count(shape));
  Shape strides = row_major_strides(shape);
  return {std::shared_ptr<Wide[]>(new Wide[n]), View{std::move(shape), std::move(strides), 0}};
}

WideArray WideArray::full(Shape shape, Wide value) {
  const std::shared_ptr<Wide[]> buffer(new Wide[1]{value});
  Shape strides(shape.size(), 0);
  return {buffer, View{std::move(shape), std::move(strides), 0}};
}

WideArray WideArray::of(const Array& values) {
  const Array host = values.on_host();
  WideArray out = uninitialized(host.shape());
  wide::map_to(
      out.data(), out.shape(), [](double x) { return static_cast<Wide>(x); },
      wide::Operand<double>{host.data(), View{host.shape(), host.strides(), 0}});
  return out;
}

WideArray WideArray::window(const View& view) const {
  return {buffer_, View{view.sizes, view.strides, view_.offset + view.offset}};
}

WideArray WideArray::reshape(Shape shape) const {
  if (shape == view_.sizes) return *this;
  Shape strides = row_major_strides(shape);
  return materialize().window({std::move(shape), std::move(strides), 0});
}

WideArray WideArray::materialize() const {
  return contiguous_ ? *this
                     : wide::map(
                           shape(), [](Wide x) { return x; }, *this);
}

WideArray WideArray::expand(const Shape& shape) const {
  View view{shape, Shape(shape.size(), 0), view_.offset};
  const std::size_t lead = shape.size() - view_.sizes.size();
  for (std::size_t d = lead; d < shape.size(); ++d)
    if (view_.sizes[d - lead] != 1) view.strides[d] = view_.strides[d - lead];
  return {buffer_, std::move(view)};
}

}  // namespace plumbline
