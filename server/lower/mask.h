// Masks as indices: which rows they choose. How many these are only the trace tells, by the shape of a result.
#pragma once

#include "server/lower/emit.h"

namespace plumbline {

// The trues before each true of the mask, and -1 elsewhere: a vector in row-major order.
Expr places(Expr mask);

// The row-major positions of the mask's trues, in order. Where a replay's mask has another number of them than `rows`
// none is known: all are -1.
Expr chosen(Expr mask, std::int64_t rows);

// x with values added, or put in its place, where a mask over its dimension `dim` is true. `values` broadcasts to x,
// or has as many entries along that dimension as there are trues.
Expr put_where(Expr x, std::size_t dim, Expr mask, Expr values, bool accumulate);

}  // namespace plumbline
