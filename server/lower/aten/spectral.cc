// Eigenvalues of symmetric matrices, and singular values (ATen: native/BatchLinearAlgebra.cpp, LAPACK's syevd, gesdd).
//
// The factors are what an equation determines, up to signs and order. What was observed fixes these: from it Newton's
// steps, which converge quadratically, lead to the factors of exactly this matrix (Ogita and Aishima, "Iterative
// refinement for symmetric eigenvalue decomposition", 2018, and "... for the singular value decomposition", 2020). The
// last step's derivative is that of the implicit function; what it started from no longer matters.
//
// Kernels are stable in norm: they give the factors of a matrix that is off by some last places of the norm of A. The
// last step therefore starts from (A + |A|) - |A|, and rounds as its own products do.
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "server/lower/aten/matrices.h"
#include "server/lower/registry.h"

namespace plumbline {
namespace {

constexpr std::int64_t kIteratedRowsMax = 512;
constexpr int kExactSteps = 2;
constexpr double kCloseRoundings = 4;    // Values that are nearer, beside the norm, are not told apart.
constexpr double kLeastApart = 0x1p-60;  // This share of the norm is what is divided by where values are equal.

Expr as_matrices(Call& call, Expr x) { return matrices(call, x, kIteratedRowsMax); }

// The diagonal of square matrices, as rows [batch, 1, n].
Expr diagonal(Expr x) {
  const std::int64_t n = x.size(1);
  return x.emitter->window(x, {{x.size(0), 1, n}, {n * n, 0, n + 1}, 0});
}

Expr on_diagonal(Expr like) {
  Emitter& emitter = *like.emitter;
  const std::int64_t n = like.size(1);
  const Expr row = iota(emitter, {1, n, 1}, 0, 1, Format::kInt64),
             column = iota(emitter, {1, 1, n}, 0, 1, Format::kInt64);
  const ComputeIn integers(emitter, Format::kInt64);
  return compare(Primitive::kEqual, row, column);
}

Expr norm_of(Expr x) { return reduce(Primitive::kNorm, x, {1, 2}); }

// x, known up to some last places of its norm.
Expr perturbed(Expr x) {
  const Expr norm = norm_of(x);
  return (x + norm) - norm;
}

// Where x, of any sign, is no larger than `limit`.
Expr within(Expr x, Expr limit) { return compare(Primitive::kLessEqual, abs(x), limit); }

// x or, where it is smaller, `least`.
Expr at_least(Expr x, Expr least) { return select(within(x, least), least, x); }

// How far the columns of x are from orthonormal: I - x^T x.
Expr defect(Expr x, Expr diagonal_mask) {
  const Expr one = cast(diagonal_mask, x.emitter->compute());
  return one - matmul(transposed(x), x);
}

// Values of a that a kernel in this format may take for one.
Expr close_values(Expr a, Format format) { return kCloseRoundings * unit_roundoff(format) * norm_of(a); }

struct Eigen {
  Expr values, vectors;  // [batch, 1, n], [batch, n, n]
};

// `close`: no vectors are turned toward each other whose values differ by no more.
Eigen eigen_step(Expr a, Expr vectors, std::optional<Expr> close = std::nullopt) {
  const Expr mask = on_diagonal(a), r = defect(vectors, mask);
  const Expr s = matmul(transposed(vectors), matmul(a, vectors));
  const Expr values = diagonal(s) / (1.0 - diagonal(r));
  // E_ij = (s_ij + l_j r_ij) / (l_j - l_i), and r_ii / 2 on the diagonal.
  const Expr apart = values - transposed(values), half = 0.5 * r;
  const Expr kept = close ? within(apart, *close) : mask;
  const Expr divisor = at_least(select(kept, values.emitter->constant(1), apart), kLeastApart * norm_of(a));
  return {values, vectors + matmul(vectors, select(kept, half, (s + values * r) / divisor))};
}

// Factors with columns (or rows) of any sign, as they were observed, in fp64. `values`: the result that tells which
// matrix is which.
std::vector<Expr> start(Call& call, std::size_t values, std::initializer_list<std::size_t> outputs) {
  Graph& graph = call.emitter().graph();
  Start start{
      static_cast<std::uint32_t>(graph.origins.size() - 1), {}, call.told(values).value_or(std::vector<double>())};
  std::vector<Expr> factors;
  for (const std::size_t output : outputs) {
    const Expr observed = call.observed(output);
    start.factors.push_back(observed.id);
    factors.push_back(cast(as_matrices(call, observed), Format::kFloat64));
  }
  graph.starts.push_back(std::move(start));
  return factors;
}

void lower_eigen(Call& call) {
  const Expr given = as_matrices(call, call.tensor("A"));
  if (!call.boolean("compute_v", true)) call.unsupported("eigenvalues without vectors");
  const bool lower = call.text("UPLO", "L") == "L";
  Emitter& emitter = call.emitter();
  const Format own = given.format();
  // One triangle is read.
  const std::int64_t n = given.size(1);
  const Expr below = [&] {
    const Expr row = iota(emitter, {1, n, 1}, 0, 1, Format::kInt64);
    const Expr column = iota(emitter, {1, 1, n}, 0, 1, Format::kInt64);
    const ComputeIn integers(emitter, Format::kInt64);
    return compare(lower ? Primitive::kGreaterEqual : Primitive::kLessEqual, row, column);
  }();
  const Expr a = select(below, given, transposed(given));
  Expr vectors = start(call, 0, {1}).front();
  {
    const ComputeIn exactly(emitter, Format::kFloat64);
    const Expr wide = cast(a, Format::kFloat64), close = close_values(wide, own);
    for (int step = 0; step < kExactSteps; ++step)
      vectors = cast(eigen_step(wide, vectors, close).vectors, Format::kFloat64);
  }
  const Eigen made = eigen_step(cast(perturbed(a), own), vectors);
  call.returns(0, reshape(made.values, call.result_shape(0)));
  call.returns(1, reshape(made.vectors, call.result_shape(1)));
}

struct Singular {
  Expr left, values, right;  // [batch, m, k], [batch, 1, k], [batch, n, k]
};

Singular singular_step(Expr a, Expr left, Expr right, std::optional<Expr> close = std::nullopt) {
  const Expr image = matmul(a, right), back = matmul(transposed(a), left);  // A V, A^T U
  const Expr t = matmul(transposed(left), image), mask = on_diagonal(t);
  const Expr of_left = defect(left, mask), of_right = defect(right, mask);
  const Expr values = diagonal(t) / (1.0 - 0.5 * (diagonal(of_left) + diagonal(of_right)));
  // U' = U (I + F) + what A V has outside of U's span, over the singular values; V' alike with G.
  const Expr one = values.emitter->constant(1), turned = transposed(values);
  const Expr alpha = t + values * of_left, beta = transposed(t) + values * of_right;
  const Expr least = kLeastApart * norm_of(a);
  const Expr kept = close ? within(values - turned, *close) : mask;
  const Expr apart = select(kept, one, at_least(values - turned, least) * at_least(values + turned, least));
  const Expr f = select(kept, 0.5 * of_left, (values * alpha + turned * beta) / apart);
  const Expr g = select(kept, 0.5 * of_right, (turned * alpha + values * beta) / apart);
  const Expr outside_left = image - matmul(left, t + matmul(of_left, t));
  const Expr outside_right = back - matmul(right, transposed(t) + matmul(of_right, transposed(t)));
  const auto corrected = [&](Expr vectors, Expr mixed, Expr outside) {
    const Expr turned_in = vectors + matmul(vectors, mixed);
    if (!close) return turned_in + outside / at_least(values, least);
    const Expr small = within(values, *close);
    return turned_in + select(small, values.emitter->constant(0), outside / select(small, one, values));
  };
  return {corrected(left, f, outside_left), values, corrected(right, g, outside_right)};
}

void lower_singular(Call& call) {
  const Expr a = as_matrices(call, call.tensor("A"));
  if (!call.boolean("compute_uv", true)) call.unsupported("singular values without vectors");
  const std::int64_t m = a.size(1), n = a.size(2);
  if (call.boolean("full_matrices", false) && m != n) call.unsupported("vectors that no singular value has");
  Emitter& emitter = call.emitter();
  const std::vector<Expr> from = start(call, 1, {0, 2});
  Expr left = from[0], right = transposed(from[1]);
  {
    const ComputeIn exactly(emitter, Format::kFloat64);
    const Expr wide = cast(a, Format::kFloat64), close = close_values(wide, a.format());
    for (int step = 0; step < kExactSteps; ++step) {
      const Singular made = singular_step(wide, left, right, close);
      left = cast(made.left, Format::kFloat64);
      right = cast(made.right, Format::kFloat64);
    }
  }
  const Singular made = singular_step(cast(perturbed(a), a.format()), left, right);
  call.returns(0, reshape(made.left, call.result_shape(0)));
  call.returns(1, reshape(made.values, call.result_shape(1)));
  call.returns(2, reshape(transposed(made.right), call.result_shape(2)));
}

}  // namespace

std::span<const Rule> spectral_rules() {
  static const Rule kRules[] = {
      {"_linalg_eigh", {"default"}, lower_eigen, kObserved},
      {"_linalg_svd", {"default"}, lower_singular, kObserved},
  };
  return kRules;
}

}  // namespace plumbline
