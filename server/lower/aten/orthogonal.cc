// Orthogonal factors, and least squares by them (ATen: native/BatchLinearAlgebra.cpp, LAPACK's geqrf, gels).
#include <algorithm>
#include <cmath>
#include <limits>

#include "server/lower/aten/matrices.h"
#include "server/lower/registry.h"

namespace plumbline {
namespace {

// I - factor d d^T, d [batch, rows, 1].
struct Reflection {
  Expr direction, factor;
};
Expr reflected(const Reflection& by, Expr x) {
  return x - by.factor * by.direction * matmul(transposed(by.direction), x);
}

struct Orthogonal {
  Expr q, r;  // [batch, m, columns], [batch, columns, n].
};

// Q R by Householder's reflections, with so many columns of Q. The last row of a square matrix needs none.
Orthogonal orthogonal(Expr a, std::int64_t columns) {
  const std::int64_t batch = a.size(0), m = a.size(1), n = a.size(2), k = std::min(m, n);
  Emitter& emitter = *a.emitter;
  const Format own = a.format();
  Expr work = a;
  std::vector<Reflection> reflections;
  for (std::int64_t j = 0; j < std::min(k, m - 1); ++j) {
    const Expr part = block(work, j, m - j, j, n - j), column = columns_of(part, 0, 1), head = rows_of(column, 0, 1);
    const Expr length = reduce(Primitive::kNorm, column, {1, 2});
    const Expr still = equal(reduce(Primitive::kNorm, rows_of(column, 1, m - j - 1), {1, 2}), 0);
    const Expr turned = select(head < 0.0, length, -length);  // What the head becomes.
    const Expr first = head - turned;
    const Expr direction = stacked({cast(first, own), rows_of(column, 1, m - j - 1)}, 1);
    const Expr factor = select(still, emitter.constant(0), -1.0 / (first * select(still, emitter.constant(1), turned)));
    reflections.push_back({direction, factor});
    Expr rest = reflected(reflections.back(), part);
    const View corner{{batch, 1, 1}, {(m - j) * (n - j), 1, 1}, 0};
    const View below{{batch, m - j - 1, 1}, {(m - j) * (n - j), n - j, 1}, n - j};
    const Expr zeros = expand(emitter.constant(0, own), {batch, m - j - 1, 1});
    rest = assemble(emitter, {batch, m - j, n - j}, cast(rest, own), {cast(select(still, head, turned), own), zeros},
                    {corner, below}, own);
    work =
        j == 0 ? rest : assemble(emitter, {batch, m, n}, work, {rest}, {{rest.shape(), {m * n, n, 1}, j * n + j}}, own);
  }
  Expr q = identity(emitter, batch, m, columns, own);
  for (std::size_t j = reflections.size(); j-- > 0;) {
    const auto row = static_cast<std::int64_t>(j);
    const Expr part = cast(reflected(reflections[j], rows_of(q, row, m - row)), own);
    q = j == 0 ? part
               : assemble(emitter, {batch, m, columns}, q, {part},
                          {{part.shape(), {m * columns, columns, 1}, row * columns}}, own);
  }
  return {q, rows_of(work, 0, columns)};
}

void lower_qr(Call& call) {
  const Expr a = matrices(call, call.tensor("A"));
  const std::string mode = call.text("mode", "reduced");
  const Orthogonal made = orthogonal(a, mode == "complete" ? a.size(1) : std::min(a.size(1), a.size(2)));
  if (mode != "r") give_matrix(call, 0, made.q);
  give_matrix(call, 1, made.r);
}

// Whether A = Q R is of full rank, by R [batch, k, k]: none of its diagonal is as small as rounding A may make it.
// Kernels take singular values below max(m, n) eps of the largest for 0; from there to sixteen times that, rounding may
// move what they give by a sixteenth of its size and more.
Expr of_full_rank(Expr a, Expr r) {
  Expr smallest = abs(block(r, 0, 1, 0, 1));
  for (std::int64_t j = 1; j < r.size(1); ++j) smallest = minimum(smallest, abs(block(r, j, 1, j, 1)));
  const double eps = std::ldexp(1.0, 1 - traits(a.format()).precision);
  const double share = 16 * eps * static_cast<double>(std::max(a.size(1), a.size(2)));
  return compare(Primitive::kGreater, smallest, reduce(Primitive::kNorm, a, {1, 2}) * share);
}

// X with the least norm among those of the least |A X - B|, for an A of full rank. Nothing is known of another A.
Expr least_squares(Expr a, Expr b) {
  const bool tall = a.size(1) >= a.size(2);
  const Orthogonal made = orthogonal(tall ? a : transposed(a), std::min(a.size(1), a.size(2)));
  const Expr x = tall ? substituted(made.r, matmul(transposed(made.q), b), true, false)
                      : matmul(made.q, triangular_solution(made.r, b, true, true, true, false));
  return select(of_full_rank(a, made.r), x, a.emitter->constant(std::numeric_limits<double>::quiet_NaN(), x.format()));
}

void lower_least_squares(Call& call) {
  const Expr whole = call.tensor("self"), right = call.tensor("b");
  if (right.rank() != whole.rank()) call.unsupported("vectors");
  const auto [a, b] = broadcast(call, whole, right);
  const Expr x = least_squares(a, b);
  give_matrix(call, 0, x);
  if (call.wants(1) && count(call.result_shape(1)) > 0) give_matrix(call, 1, sum(square(matmul(a, x) - b), {1}));
  const auto rank = static_cast<double>(std::min(a.size(1), a.size(2)));
  give_report(call, 2, rank, "a matrix whose rank it found to be less than full");
  if (call.wants(3) && count(call.result_shape(3)) > 0) call.unsupported("singular values");
}

void lower_pseudo_inverse(Call& call) {
  const Expr a = matrices(call, call.tensor("self"));
  give_matrix(call, 0, least_squares(a, identity(call.emitter(), a.size(0), a.size(1), a.size(1), a.format())));
}

}  // namespace

std::span<const Rule> orthogonal_rules() {
  static const Rule kRules[] = {
      {"linalg_lstsq", {"default"}, lower_least_squares, kObserved},
      {"linalg_pinv", {"atol_rtol_tensor"}, lower_pseudo_inverse, kObserved},
      {"linalg_qr", {"default"}, lower_qr, kObserved},
  };
  return kRules;
}

}  // namespace plumbline
