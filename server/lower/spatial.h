// Operations on images that read several elements for each result: which ones, dimension by dimension.
#pragma once

#include <vector>

#include "server/lower/emit.h"

namespace plumbline {

// Along one dimension of `size`: the coordinate that tap t of position p reads, at t * positions + p; -1: none.
struct Taps {
  std::int64_t size = 0, taps = 0, positions = 0;
  std::vector<std::int64_t> coordinates;

  bool complete() const;
};

class InIntegers : public ComputeIn {
 public:
  explicit InIntegers(Emitter& emitter) : ComputeIn(emitter, Format::kInt64) {}
};

// Numbers that the operation's attributes determine.
Expr table(Emitter& emitter, const std::vector<double>& values, const Shape& shape, Format format);

// [taps, positions] over all dimensions: the row-major element of the image that is read; -1: none.
Expr flat_index(Emitter& emitter, const std::vector<Taps>& dims);

// [images, size...] read by `index` [taps, positions]: [taps, positions, images], `otherwise` where the index is -1.
Expr gather_cells(Expr images, Expr index, bool complete, double otherwise);

// The transpose: cells [taps, positions, images] added up in images of `size` elements each, in `format`.
Expr scatter_cells(Expr cells, Expr index, std::int64_t size, Format format);

}  // namespace plumbline
