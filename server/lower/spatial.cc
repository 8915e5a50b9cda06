#include "server/lower/spatial.h"

#include <algorithm>

namespace plumbline {

bool Taps::complete() const {
  return std::none_of(coordinates.begin(), coordinates.end(), [](std::int64_t c) { return c < 0; });
}

Expr table(Emitter& emitter, const std::vector<double>& values, const Shape& shape, Format format) {
  std::vector<Expr> pieces;
  std::vector<View> views;
  for (std::size_t i = 0; i < values.size(); ++i) {
    pieces.push_back(emitter.constant(values[i], format));
    views.push_back({{}, {}, static_cast<std::int64_t>(i)});
  }
  return assemble(emitter, shape, std::nullopt, pieces, std::move(views), format);
}

Expr flat_index(Emitter& emitter, const std::vector<Taps>& dims) {
  const InIntegers integers(emitter);
  std::int64_t stride = 1, taps = 1, positions = 1;
  Expr index = emitter.constant(0);
  std::optional<Expr> valid;
  for (std::size_t d = dims.size(); d-- > 0;) {
    const Taps& dim = dims[d];
    Shape along(2 * dims.size(), 1);
    along[d] = dim.taps;
    along[dims.size() + d] = dim.positions;
    const Expr coordinate = table(emitter, {dim.coordinates.begin(), dim.coordinates.end()}, along, Format::kInt64);
    index = index + coordinate * static_cast<double>(stride);
    if (!dim.complete()) {
      const Expr inside = compare(Primitive::kGreaterEqual, coordinate, emitter.constant(0));
      valid = valid ? logical_and(*valid, inside) : inside;
    }
    stride *= dim.size;
    taps *= dim.taps;
    positions *= dim.positions;
  }
  if (valid) index = select(*valid, index, emitter.constant(-1));
  return reshape(index, {taps, positions});
}

Expr gather_cells(Expr images, Expr index, bool complete, double otherwise) {
  Emitter& emitter = *images.emitter;
  const Shape shape{index.size(0), index.size(1), images.size(0)};
  Expr safe = index;
  if (!complete) {
    const InIntegers integers(emitter);
    safe = maximum(index, emitter.constant(0));
  }
  const Expr cells = reshape(gather_rows(transposed(images), reshape(safe, {safe.count()})), shape);
  if (complete) return cells;
  const Expr inside = compare(Primitive::kGreaterEqual, index, emitter.constant(0, Format::kInt64));
  return select(reshape(inside, {shape[0], shape[1], 1}), cells, emitter.constant(otherwise, images.format()));
}

Expr scatter_cells(Expr cells, Expr index, std::int64_t size, Format format) {
  const Expr rows = reshape(cells, {index.count(), cells.size(2)});
  return transposed(scatter_add(rows, reshape(index, {index.count()}), size, format));
}

}  // namespace plumbline
