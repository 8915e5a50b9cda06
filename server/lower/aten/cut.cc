#include "server/lower/aten/cut.h"

#include <algorithm>

namespace plumbline {
namespace {

struct Range {
  std::int64_t start = 0, step = 1, length = 0;
};

// Python's slice of a dimension of `size`.
Range range_of(Call& call, std::int64_t size) {
  Range range;
  const auto bounded = [&](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size); };
  range.start = bounded(call.integer("start", 0));
  const std::int64_t end = bounded(call.integer("end", size));
  range.step = call.integer("step", 1);
  if (range.step <= 0)
    throw LowerError("argument 'step': at least 1 was expected, found " + std::to_string(range.step));
  range.length = end > range.start ? (end - range.start + range.step - 1) / range.step : 0;
  return range;
}

}  // namespace

View slice_view(Call& call, const Shape& shape) {
  const std::size_t dim = call.dim("dim", shape.size(), 0);
  const Range range = range_of(call, shape[dim]);
  View view{shape, row_major_strides(shape), 0};
  view.offset = range.start * view.strides[dim];
  view.sizes[dim] = range.length;
  view.strides[dim] *= range.step;
  if (range.length == 0) view.offset = 0;
  return view;
}

View select_view(Call& call, const Shape& shape) {
  const std::size_t dim = call.dim("dim", shape.size(), 0);
  std::int64_t index = call.integer("index", 0);
  if (index < 0) index += shape[dim];
  if (index < 0 || index >= shape[dim])
    throw LowerError("argument 'index': below " + std::to_string(shape[dim]) + " was expected, found " +
                     std::to_string(index));
  View view{shape, row_major_strides(shape), 0};
  view.offset = index * view.strides[dim];
  view.sizes.erase(view.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  view.strides.erase(view.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  return view;
}

View diagonal_view(Call& call, const Shape& shape, std::int64_t first, std::int64_t second) {
  const std::size_t row = call.dim("dim1", shape.size(), first), column = call.dim("dim2", shape.size(), second);
  const std::int64_t offset = call.integer("offset", 0);
  if (row == column) call.unsupported("a diagonal of one dimension");
  const std::int64_t down = std::max<std::int64_t>(0, -offset), right = std::max<std::int64_t>(0, offset);
  const std::int64_t length = std::max<std::int64_t>(0, std::min(shape[row] - down, shape[column] - right));
  const Shape strides = row_major_strides(shape);
  View view{{}, {}, length > 0 ? down * strides[row] + right * strides[column] : 0};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d == row || d == column) continue;
    view.sizes.push_back(shape[d]);
    view.strides.push_back(strides[d]);
  }
  view.sizes.push_back(length);
  view.strides.push_back(strides[row] + strides[column]);
  return view;
}

View main_diagonal_view(Call& call, const Shape& shape) { return diagonal_view(call, shape, 0, 1); }

}  // namespace plumbline
