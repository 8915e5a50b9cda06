// Factorisations of matrices, and systems of equations (ATen: native/BatchLinearAlgebra.cpp, LAPACK's trtrs, potrf,
// getrf, geqrf). Each element of a factor is written as the one sum of products that defines it, divided once: blocked
// and recursive algorithms add the same terms in another order (Higham, "Accuracy and Stability of Numerical
// Algorithms", 2002, chapters 8 to 10 and 19).
#include <algorithm>

#include "server/lower/aten/matrices.h"
#include "server/lower/registry.h"
#include "server/lower/spatial.h"
#include "server/lower/view.h"

namespace plumbline {
namespace {

void lower_solve_triangular(Call& call) {
  const auto [a, b] = broadcast(call, call.tensor("self"), call.tensor("B"));
  const bool left = call.boolean("left", true);
  const Expr x =
      triangular_solution(a, b, call.boolean("upper", false), left, false, call.boolean("unitriangular", false));
  give_matrix(call, 0, x);
}

void lower_old_triangular_solve(Call& call) {
  const auto [a, b] = broadcast(call, call.tensor("A"), call.tensor("self"));
  const Expr x = triangular_solution(a, b, call.boolean("upper", true), true, call.boolean("transpose", false),
                                     call.boolean("unitriangular", false));
  give_matrix(call, 0, x);
  give_matrix(call, 1, a);
}

// L of A = L L^T, column by column; A's lower triangle is read.
Expr cholesky(Expr a) {
  const std::int64_t n = a.size(1), batch = a.size(0);
  Emitter& emitter = *a.emitter;
  const Format own = a.format();
  std::vector<Expr> columns;
  for (std::int64_t j = 0; j < n; ++j) {
    Expr column = block(a, j, n - j, j, 1);
    if (j > 0) {
      const Expr before = stacked(columns, 2);
      column = reduced_by(column, rows_of(before, j, n - j), transposed(rows_of(before, j, 1)));
    }
    const Expr root = sqrt(rows_of(column, 0, 1));
    std::vector<Expr> parts;
    if (j > 0) parts.push_back(expand(emitter.constant(0, own), {batch, j, 1}));
    parts.push_back(cast(root, own));
    if (j + 1 < n) parts.push_back(cast(rows_of(column, 1, n - j - 1) * (1.0 / root), own));
    columns.push_back(stacked(parts, 1));
  }
  return stacked(columns, 2);
}

void lower_cholesky(Call& call) {
  const Expr a = matrices(call, call.tensor("self"));
  require_square(call, a);
  const bool upper = call.boolean("upper", false);
  const Expr lower = cholesky(upper ? transposed(a) : a);
  give_matrix(call, 0, upper ? transposed(lower) : lower);
  give_success(call, 1);
}

// A X = B, A being given by its factor.
Expr solved_by_cholesky(Expr factor, Expr b, bool upper) {
  const Expr between = triangular_solution(factor, b, upper, true, upper, false);
  return triangular_solution(factor, between, upper, true, !upper, false);
}

void lower_cholesky_solve(Call& call) {
  const auto [b, factor] = broadcast(call, call.tensor("self"), call.tensor("input2"));
  give_matrix(call, 0, solved_by_cholesky(factor, b, call.boolean("upper", false)));
}

void lower_cholesky_inverse(Call& call) {
  const Expr factor = matrices(call, call.tensor("self"));
  require_square(call, factor);
  const Expr one = identity(call.emitter(), factor.size(0), factor.size(1), factor.size(1), factor.format());
  give_matrix(call, 0, solved_by_cholesky(factor, one, call.boolean("upper", false)));
}

// Rows of each matrix [batch, rows, columns], in another order: [batch, count].
Expr rows_in_order(Expr x, Expr order) {
  Emitter& emitter = *x.emitter;
  const std::int64_t batch = x.size(0), rows = x.size(1), columns = x.size(2), count = order.size(1);
  const InIntegers integers(emitter);
  const Expr first = iota(emitter, {batch, 1}, 0, static_cast<double>(rows), Format::kInt64);
  const Expr which = reshape(order + first, {batch * count});
  return reshape(gather_rows(reshape(x, {batch * rows, columns}), which), {batch, count, columns});
}

// P A = L U with row exchanges.
struct Elimination {
  Expr lower, upper;  // [batch, rows, k] with ones on the diagonal, [batch, k, columns].
  Expr order;         // [batch, rows]: the row of A that became each one.
  // For each step, the row [batch, 1] that was exchanged with the step's own, counted from it on.
  std::vector<Expr> at;
};

// Exchanges row `step` with the one that lies `away` [batch, 1] further down.
Expr exchange_order(Emitter& emitter, std::int64_t rows, std::int64_t step, Expr away) {
  const InIntegers integers(emitter);
  const Expr row = iota(emitter, {1, rows}, 0, 1, Format::kInt64);
  const Expr other = away + static_cast<double>(step), own = emitter.constant(static_cast<double>(step));
  const Expr from_other = select(compare(Primitive::kEqual, row, other), own, row);
  return select(compare(Primitive::kEqual, row, own), other, from_other);
}

Expr reordered(Expr order, Expr exchange) {
  const std::int64_t batch = order.size(0), rows = order.size(1);
  return reshape(rows_in_order(reshape(order, {batch, rows, 1}), expand(exchange, {batch, rows})), {batch, rows});
}

Elimination eliminated(Expr a, bool pivots) {
  Emitter& emitter = *a.emitter;
  const std::int64_t batch = a.size(0), rows = a.size(1), columns = a.size(2), k = std::min(rows, columns);
  const Format own = a.format();
  const auto zeros = [&](std::int64_t count) { return expand(emitter.constant(0, own), {batch, count, 1}); };
  Elimination made;
  {
    const InIntegers integers(emitter);
    made.order = expand(iota(emitter, {1, rows}, 0, 1, Format::kInt64), {batch, rows});
  }
  Expr work = a;              // A with the exchanges so far.
  std::optional<Expr> lower;  // Its columns so far, exchanged too.
  std::vector<Expr> upper;
  for (std::int64_t j = 0; j < columns; ++j) {
    const std::int64_t above = std::min(j, k);  // Rows of U in this column that the columns before it determine.
    Expr column = columns_of(work, j, 1);
    std::vector<Expr> parts;
    if (above > 0) {
      parts.push_back(substituted(block(*lower, 0, above, 0, above), rows_of(column, 0, above), false, true));
      if (above < rows)
        column =
            reduced_by(rows_of(column, above, rows - above), block(*lower, above, rows - above, 0, above), parts[0]);
    }
    if (j < k) {
      Expr away = emitter.constant(0, Format::kInt64);
      if (pivots) {
        const Expr found = reduce(Primitive::kArgmax, abs(column), {1});
        emitter.graph().nodes[found.id].result = Format::kInt64;
        away = reshape(found, {batch, 1});
        column = rows_in_order(column, expand(exchange_order(emitter, rows - j, 0, away), {batch, rows - j}));
        const Expr exchange = expand(exchange_order(emitter, rows, j, away), {batch, rows});
        work = rows_in_order(work, exchange);
        if (lower) lower = rows_in_order(*lower, exchange);
        made.order = reordered(made.order, exchange);
      }
      made.at.push_back(away);
      const Expr pivot = rows_of(column, 0, 1);
      parts.push_back(cast(pivot, own));
      std::vector<Expr> below;
      if (j > 0) below.push_back(zeros(j));
      below.push_back(expand(emitter.constant(1, own), {batch, 1, 1}));
      if (j + 1 < rows) below.push_back(cast(rows_of(column, 1, rows - j - 1) * (1.0 / pivot), own));
      const Expr made_column = stacked(below, 1);
      lower = lower ? stacked({*lower, made_column}, 2) : made_column;
      if (j + 1 < k) parts.push_back(zeros(k - j - 1));
    }
    upper.push_back(stacked(parts, 1));
  }
  made.lower = *lower;
  made.upper = stacked(upper, 2);
  return made;
}

// L below the diagonal, U from it on.
Expr packed(const Elimination& made) {
  Emitter& emitter = *made.lower.emitter;
  const std::int64_t rows = made.lower.size(1), columns = made.upper.size(2);
  const Format own = made.lower.format();
  const auto widened = [&](Expr x, std::size_t dim, std::int64_t size) {
    Shape rest = x.shape();
    rest[dim] = size - rest[dim];
    return rest[dim] == 0 ? x : stacked({x, expand(emitter.constant(0, own), rest)}, dim);
  };
  const Expr lower = widened(made.lower, 2, columns), upper = widened(made.upper, 1, rows);
  const InIntegers integers(emitter);
  const Expr row = iota(emitter, {1, rows, 1}, 0, 1, Format::kInt64);
  const Expr column = iota(emitter, {1, 1, columns}, 0, 1, Format::kInt64);
  return select(compare(Primitive::kGreater, row, column), lower, upper);
}

// The exchanges, counted from 1.
void give_pivots(Call& call, std::size_t output, const Elimination& made) {
  if (!call.wants(output)) return;
  Emitter& emitter = call.emitter();
  const InIntegers integers(emitter);
  const std::int64_t batch = made.lower.size(0);
  std::vector<Expr> steps;
  for (std::size_t j = 0; j < made.at.size(); ++j) {
    const Expr at = made.at[j] + static_cast<double>(j + 1);
    steps.push_back(reshape(expand(at, {batch, 1}), {batch, 1, 1}));
  }
  call.returns(output, cast(reshape(stacked(steps, 1), call.result_shape(output)), Format::kInt32));
}

// The order of rows that exchanges, counted from 1, [batch, k], make of `rows`.
Expr order_of(Expr pivots, std::int64_t rows) {
  Emitter& emitter = *pivots.emitter;
  const std::int64_t batch = pivots.size(0);
  const InIntegers integers(emitter);
  Expr order = expand(iota(emitter, {1, rows}, 0, 1, Format::kInt64), {batch, rows});
  for (std::int64_t j = 0; j < pivots.size(1); ++j) {
    const Expr away = narrow(pivots, 1, j, 1) - static_cast<double>(j + 1);
    order = reordered(order, expand(exchange_order(emitter, rows, j, away), {batch, rows}));
  }
  return order;
}

// Where each row went: the inverse of an order.
Expr inverse_order(Expr order) {
  Emitter& emitter = *order.emitter;
  const std::int64_t batch = order.size(0), rows = order.size(1);
  const InIntegers integers(emitter);
  const Expr first = iota(emitter, {batch, 1}, 0, static_cast<double>(rows), Format::kInt64);
  const Expr place = expand(iota(emitter, {1, rows}, 0, 1, Format::kInt64), {batch, rows});
  return reshape(scatter_add(reshape(place, {batch * rows, 1}), reshape(order + first, {batch * rows}), batch * rows,
                             Format::kInt64),
                 {batch, rows});
}

// op(A) X = B by A's elimination.
Expr solved(Expr lower, Expr upper, Expr order, Expr b, bool adjoint) {
  if (adjoint) {  // U^T L^T P X = B
    const Expr between = triangular_solution(upper, b, true, true, true, false);
    return rows_in_order(triangular_solution(lower, between, false, true, true, true), inverse_order(order));
  }
  const Expr between = substituted(lower, rows_in_order(b, order), false, true);
  return substituted(upper, between, true, false);
}

bool is_contiguous(const Call& call, std::string_view name) {
  for (const TraceArgument& argument : call.op().arguments) {
    const auto* tensor = std::get_if<TensorRef>(&argument.value);
    if (!tensor || argument.name != name) continue;
    const Shape strides = row_major_strides(tensor->view.sizes);
    for (std::size_t d = 0; d < strides.size(); ++d)
      if (tensor->view.sizes[d] != 1 && tensor->view.strides[d] != strides[d]) return false;
    return true;
  }
  return false;
}

// The elimination that determinants go by: kernels take the transpose of a row-major matrix, which is column-major.
Elimination eliminated_for_determinant(Call& call, Expr a) {
  return eliminated(is_contiguous(call, "A") ? transposed(a) : a, true);
}

void lower_lu_factor(Call& call) {
  const Elimination made = eliminated(matrices(call, call.tensor("A")), call.boolean("pivot", true));
  give_matrix(call, 0, packed(made));
  give_pivots(call, 1, made);
  give_success(call, 2);
}

// P of A = P L U, from the order of A's rows.
Expr permutation(Expr order, Format format) {
  Emitter& emitter = *order.emitter;
  const std::int64_t batch = order.size(0), rows = order.size(1);
  const Expr one = identity(emitter, batch, rows, rows, format);
  return rows_in_order(one, inverse_order(order));
}

void lower_lu(Call& call) {
  const bool pivots = call.boolean("pivot", true);
  const Elimination made = eliminated(matrices(call, call.tensor("A")), pivots);
  if (pivots) give_matrix(call, 0, permutation(made.order, made.lower.format()));
  give_matrix(call, 1, made.lower);
  give_matrix(call, 2, made.upper);
}

// What is packed into one matrix.
Expr unpacked(Expr packed, bool lower, bool unit) {
  Emitter& emitter = *packed.emitter;
  const std::int64_t rows = packed.size(1), columns = packed.size(2), k = std::min(rows, columns);
  const Expr x = lower ? columns_of(packed, 0, k) : rows_of(packed, 0, k);
  const Format own = x.format();
  const Expr row = iota(emitter, {1, x.size(1), 1}, 0, 1, Format::kInt64);
  const Expr column = iota(emitter, {1, 1, x.size(2)}, 0, 1, Format::kInt64);
  const Expr kept = [&] {
    const InIntegers integers(emitter);
    return compare(lower ? Primitive::kGreater : Primitive::kLessEqual, row, column);
  }();
  const Expr zero = emitter.constant(0, own);
  if (!unit) return select(kept, x, zero);
  const InIntegers integers(emitter);
  return select(kept, x, select(compare(Primitive::kEqual, row, column), emitter.constant(1, own), zero));
}

void lower_lu_unpack(Call& call) {
  const Expr factors = matrices(call, call.tensor("LU_data"));
  if (call.boolean("unpack_pivots", true)) {
    const Expr pivots = call.tensor("LU_pivots");
    const Expr order = order_of(reshape(pivots, {factors.size(0), pivots.count() / factors.size(0)}), factors.size(1));
    give_matrix(call, 0, permutation(order, factors.format()));
  }
  if (!call.boolean("unpack_data", true)) return;
  give_matrix(call, 1, unpacked(factors, true, true));
  give_matrix(call, 2, unpacked(factors, false, false));
}

void lower_lu_solve(Call& call) {
  const auto [factors, b] = broadcast(call, call.tensor("LU"), call.tensor("B"));
  const Expr pivots = call.tensor("pivots");
  const std::int64_t rows = factors.size(1);
  if (pivots.count() != factors.size(0) * rows) call.unsupported("pivots that are broadcast");
  const Expr order = order_of(reshape(pivots, {factors.size(0), rows}), rows);
  const bool adjoint = call.boolean("adjoint", false), left = call.boolean("left", true);
  const Expr x = solved(factors, factors, order, left ? b : transposed(b), adjoint == left);
  give_matrix(call, 0, left ? x : transposed(x));
}

void lower_solve(Call& call) {
  const Expr whole = call.tensor("A");
  Expr right = call.tensor("B");
  const bool left = call.boolean("left", true);
  // A vector, or a stack of these.
  const bool vectors = right.rank() == 1 || (right.rank() + 1 == whole.rank() &&
                                             right.count() * whole.size(whole.rank() - 1) == whole.count());
  if (vectors) {
    Shape shape = right.shape();
    shape.push_back(1);
    right = reshape(right, shape);
  }
  const auto [a, b] = broadcast(call, whole, right);
  require_square(call, a);
  const Elimination made = eliminated(a, true);
  const Expr x = solved(made.lower, made.upper, made.order, left ? b : transposed(b), !left);
  give_matrix(call, 0, left ? x : transposed(x));
  give_matrix(call, 1, packed(made));
  give_pivots(call, 2, made);
  give_success(call, 3);
}

void lower_inverse(Call& call) {
  const Expr a = matrices(call, call.tensor("A"));
  require_square(call, a);
  const Elimination made = eliminated(a, true);
  const Expr one = identity(call.emitter(), a.size(0), a.size(1), a.size(1), a.format());
  give_matrix(call, 0, solved(made.lower, made.upper, made.order, one, false));
  give_success(call, 1);
}

// The diagonal of U, [batch, 1] each.
std::vector<Expr> diagonal(const Elimination& made) {
  std::vector<Expr> values;
  for (std::int64_t i = 0; i < made.upper.size(1); ++i)
    values.push_back(reshape(block(made.upper, i, 1, i, 1), {made.upper.size(0), 1}));
  return values;
}

// 1, or -1 after an odd number of exchanges.
Expr parity(Emitter& emitter, const Elimination& made) {
  Expr sign = emitter.constant(1);
  for (const Expr& away : made.at) sign = select(equal(away, 0), sign, -sign);
  return sign;
}

void lower_determinant(Call& call) {
  const Expr a = matrices(call, call.tensor("A"));
  require_square(call, a);
  const Elimination made = eliminated_for_determinant(call, a);
  Expr product = parity(call.emitter(), made);
  for (const Expr& value : diagonal(made)) product = product * value;
  give_matrix(call, 0, product);
  give_matrix(call, 1, packed(made));
  give_pivots(call, 2, made);
}

void lower_log_determinant(Call& call) {
  const Expr a = matrices(call, call.tensor("A"));
  require_square(call, a);
  const Elimination made = eliminated_for_determinant(call, a);
  Expr sign = parity(call.emitter(), made);
  std::vector<Expr> logarithms;
  for (const Expr& value : diagonal(made)) {
    sign = sign * unary(Primitive::kSign, value);
    logarithms.push_back(reshape(log(abs(value)), {a.size(0), 1, 1}));
  }
  give_matrix(call, 0, sign);
  give_matrix(call, 1, sum(stacked(logarithms, 1), {1}));
  give_matrix(call, 2, packed(made));
  give_pivots(call, 3, made);
}

// Where matrices have no elements there is nothing to factor, and it succeeds; a determinant is the empty product.
template <void (*lower)(Call&)>
void unless_empty(Call& call) {
  const Expr a = call.tensor(call.has("A") ? "A" : call.has("LU_data") ? "LU_data" : call.has("LU") ? "LU" : "self");
  if (a.count() != 0) return lower(call);
  const bool determinant = call.base().ends_with("det");
  for (std::size_t output = 0; output < 4; ++output) {
    if (!call.wants(output)) continue;
    const Shape shape = call.result_shape(output);
    const Format format = call.result_format(output);
    if (count(shape) != 0 && !is_integer(format) && !determinant) call.unsupported("no matrices");
    call.returns(output, expand(call.emitter().constant(determinant && output == 0 ? 1 : 0, format), shape));
  }
}

}  // namespace

std::span<const Rule> linear_algebra_rules() {
  static const Rule kRules[] = {
      {"linalg_solve_triangular", {"default"}, lower_solve_triangular, kOut | kObserved},
      {"triangular_solve", {"default"}, lower_old_triangular_solve, kObserved},
      {"linalg_cholesky_ex", {"default"}, unless_empty<lower_cholesky>, kObserved},
      {"cholesky_solve", {"default"}, lower_cholesky_solve, kOut | kObserved},
      {"cholesky_inverse", {"default"}, lower_cholesky_inverse, kOut | kObserved},
      {"linalg_lu_factor_ex", {"default"}, unless_empty<lower_lu_factor>, kObserved},
      {"linalg_lu", {"default"}, unless_empty<lower_lu>, kObserved},
      {"lu_unpack", {"default"}, lower_lu_unpack, kObserved},
      {"linalg_lu_solve", {"default"}, lower_lu_solve, kOut | kObserved},
      {"_linalg_solve_ex", {"default"}, unless_empty<lower_solve>, kObserved},
      {"linalg_inv_ex", {"default"}, unless_empty<lower_inverse>, kObserved},
      {"_linalg_det", {"default"}, unless_empty<lower_determinant>, kObserved},
      {"_linalg_slogdet", {"default"}, unless_empty<lower_log_determinant>, kObserved},
  };
  return kRules;
}

}  // namespace plumbline
