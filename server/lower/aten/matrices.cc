#include "server/lower/aten/matrices.h"

#include <algorithm>

namespace plumbline {

Expr matrices(Call& call, Expr x, std::int64_t rows_max) {
  if (x.rank() < 2 || x.count() == 0) call.unsupported("no matrices");
  const std::int64_t rows = x.size(x.rank() - 2), columns = x.size(x.rank() - 1);
  if (std::min(rows, columns) > rows_max) call.unsupported("more than " + std::to_string(rows_max) + " rows");
  return reshape(x, {x.count() / (rows * columns), rows, columns});
}

void require_square(Call& call, Expr a) {
  if (a.size(1) != a.size(2)) call.unsupported("a matrix that is not square");
}

Expr rows_of(Expr x, std::int64_t start, std::int64_t count) { return narrow(x, 1, start, count); }
Expr columns_of(Expr x, std::int64_t start, std::int64_t count) { return narrow(x, 2, start, count); }
Expr block(Expr x, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
  return columns_of(rows_of(x, row, rows), column, columns);
}

Expr stacked(const std::vector<Expr>& parts, std::size_t dim) {
  if (parts.size() == 1) return parts[0];
  Shape shape = parts[0].shape();
  shape[dim] = 0;
  for (const Expr& part : parts) shape[dim] += part.size(dim);
  const Shape strides = row_major_strides(shape);
  std::vector<View> views;
  std::int64_t start = 0;
  for (const Expr& part : parts) {
    views.push_back({part.shape(), strides, start * strides[dim]});
    start += part.size(dim);
  }
  return assemble(*parts[0].emitter, shape, std::nullopt, parts, std::move(views), parts[0].format());
}

Expr reduced_by(Expr c, Expr a, Expr b) { return matmul(-a, b, c); }

Expr substituted(Expr a, Expr b, bool upper, bool unit) {
  const std::int64_t n = a.size(1);
  const Format own = b.format();
  std::vector<Expr> known;  // From the first row that was solved on.
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t i = upper ? n - 1 - step : step;
    Expr row = rows_of(b, i, 1);
    if (step > 0) {
      std::vector<Expr> before(known);
      if (upper) std::reverse(before.begin(), before.end());
      row = reduced_by(row, block(a, i, 1, upper ? i + 1 : 0, step), stacked(before, 1));
    }
    if (!unit) row = row * (1.0 / block(a, i, 1, i, 1));
    known.push_back(cast(row, own));
  }
  if (upper) std::reverse(known.begin(), known.end());
  return stacked(known, 1);
}

Expr triangular_solution(Expr a, Expr b, bool upper, bool left, bool transpose, bool unit) {
  const bool turned = transpose == left;  // X op(A) = B is op(A)^T X^T = B^T.
  const Expr matrix = turned ? transposed(a) : a;
  const bool above = turned ? !upper : upper;
  return left ? substituted(matrix, b, above, unit) : transposed(substituted(matrix, transposed(b), above, unit));
}

Broadcast broadcast(Call& call, Expr a, Expr b) {
  if (a.rank() < 2 || b.rank() < 2) call.unsupported("a vector");
  Shape front;
  const Shape first = a.shape(), second = b.shape();
  const std::size_t rank = std::max(first.size(), second.size()) - 2;
  for (std::size_t d = 0; d < rank; ++d) {
    const auto at = [&](const Shape& shape) {
      const std::size_t skipped = rank + 2 - shape.size();
      return d < skipped ? 1 : shape[d - skipped];
    };
    front.push_back(std::max(at(first), at(second)));
  }
  const auto spread = [&](Expr x) {
    Shape shape = front;
    shape.push_back(x.size(x.rank() - 2));
    shape.push_back(x.size(x.rank() - 1));
    return matrices(call, expand(x, shape));
  };
  return {spread(a), spread(b)};
}

void give_matrix(Call& call, std::size_t output, Expr x) {
  if (call.wants(output)) call.returns(output, reshape(x, call.result_shape(output)));
}

void give_report(Call& call, std::size_t output, double expected, const std::string& otherwise) {
  if (!call.wants(output)) return;
  const Shape shape = call.result_shape(output);
  const auto told = count(shape) > 0 ? call.told(output) : std::nullopt;
  if (told && std::ranges::any_of(*told, [&](double value) { return value != expected; })) call.unsupported(otherwise);
  call.returns(output, expand(call.emitter().constant(expected, call.result_format(output)), shape));
}

void give_success(Call& call, std::size_t output) {
  give_report(call, output, 0, "a singular or indefinite matrix, of which it says itself that it failed");
}

Expr identity(Emitter& emitter, std::int64_t batch, std::int64_t rows, std::int64_t columns, Format format) {
  const Expr ones = expand(emitter.constant(1, format), {batch, std::min(rows, columns)});
  const View diagonal{ones.shape(), {rows * columns, columns + 1}, 0};
  return assemble(emitter, {batch, rows, columns}, std::nullopt, {ones}, {diagonal}, format);
}

}  // namespace plumbline
