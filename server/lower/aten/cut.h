// The parts of a row-major array that slices, selections and diagonals read.
#pragma once

#include "server/lower/call.h"

namespace plumbline {

using ViewOf = View (*)(Call&, const Shape&);

// Python's slice of a dimension: arguments dim, start, end, step.
View slice_view(Call& call, const Shape& shape);
// What has coordinate `index` along `dim`.
View select_view(Call& call, const Shape& shape);
// Diagonals, along a last dimension of their own: arguments offset, dim1 and dim2, which have these defaults.
View diagonal_view(Call& call, const Shape& shape, std::int64_t row, std::int64_t column);
View main_diagonal_view(Call& call, const Shape& shape);

}  // namespace plumbline
