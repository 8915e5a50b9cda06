// Rows that are added where an index says, and runs of equal ones.
#pragma once

#include "server/lower/emit.h"

namespace plumbline {

// x [rows, d] with rows of `source` [n, d] added where `index` [n] says, in x's memory: x is a term of each row's sum.
Expr accumulated(Expr x, Expr source, Expr index, Format format);

// The places of a vector's elements in ascending order.
Expr ascending(Expr x);

// The first of each run of equal rows [runs, width] among rows [n, width], and which run each row is in [n].
struct Runs {
  Expr first, which;
};
Runs runs_of(Expr rows, std::int64_t runs);

}  // namespace plumbline
