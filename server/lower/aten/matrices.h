// Stacks of matrices while an operation is lowered: [batch, rows, columns], whatever the dimensions in front are.
#pragma once

#include <vector>

#include "server/lower/call.h"

namespace plumbline {

// Where every row or column is a step of its own, the graph has about as many nodes as this squared.
constexpr std::int64_t kRowsMax = 48;

// x as a stack. Throws Unsupported without elements, and where the shorter side is above the limit.
Expr matrices(Call& call, Expr x, std::int64_t rows_max = kRowsMax);
void require_square(Call& call, Expr a);

// Two stacks of as many matrices: dimensions in front are broadcast.
struct Broadcast {
  Expr a, b;
};
Broadcast broadcast(Call& call, Expr a, Expr b);

Expr rows_of(Expr x, std::int64_t start, std::int64_t count);
Expr columns_of(Expr x, std::int64_t start, std::int64_t count);
Expr block(Expr x, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns);
// Rows (along 1) or columns (along 2), one after the other; all are of one format.
Expr stacked(const std::vector<Expr>& parts, std::size_t dim);
// Ones on the diagonal, zeros elsewhere.
Expr identity(Emitter& emitter, std::int64_t batch, std::int64_t rows, std::int64_t columns, Format format);

// c - a b, one sum.
Expr reduced_by(Expr c, Expr a, Expr b);
// X of A X = B for a triangular A, `unit`: with ones on its diagonal. Divisions may be products with a reciprocal.
Expr substituted(Expr a, Expr b, bool upper, bool unit);
// X of op(A) X = B or, not `left`, of X op(A) = B; op transposes or not.
Expr triangular_solution(Expr a, Expr b, bool upper, bool left, bool transpose, bool unit);

// Gives an output, if it is wanted, in its own shape.
void give_matrix(Call& call, std::size_t output, Expr x);
// Gives an output by which the algorithm itself says how it went: no function of the matrix, as rounding may decide it.
// Where it was told otherwise than `expected`, the operation is taken as one that is not modelled.
void give_report(Call& call, std::size_t output, double expected, const std::string& otherwise);
// Gives LAPACK's info as 0: a matrix that cannot be factored gives no numbers to compare.
void give_success(Call& call, std::size_t output);

}  // namespace plumbline
