// Orthogonal polynomials, by their recurrences (ATen: native/Math.h; Abramowitz and Stegun 22.7).
#include <limits>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

// Degrees above this are not modelled: the degree is a tensor's element, and all up to the largest are worked out.
constexpr int kDegreeMax = 24;

// p_(k + 1) from p_k and p_(k - 1).
using Next = Expr (*)(Expr x, int k, Expr own, Expr before);

Expr chebyshev(Expr x, int, Expr own, Expr before) { return 2.0 * x * own - before; }
Expr hermite(Expr x, int k, Expr own, Expr before) { return 2.0 * (x * own - static_cast<double>(k) * before); }
Expr hermite_of_probability(Expr x, int k, Expr own, Expr before) { return x * own - static_cast<double>(k) * before; }
Expr laguerre(Expr x, int k, Expr own, Expr before) {
  return ((2.0 * k + 1 - x) * own - static_cast<double>(k) * before) / (k + 1.0);
}
Expr legendre(Expr x, int k, Expr own, Expr before) {
  return ((2.0 * k + 1) * x * own - static_cast<double>(k) * before) / (k + 1.0);
}

// The polynomial of degree n, where p_1 = slope x + constant; `shifted`: of 2 x - 1.
template <Next next, int slope, int constant, bool shifted>
void lower_polynomial(Call& call) {
  Expr x = call.operand("x");
  const Expr n = call.operand("n");
  Emitter& emitter = call.emitter();
  if (shifted) x = 2.0 * x - 1.0;
  Expr before = emitter.constant(1), own = x * static_cast<double>(slope) + static_cast<double>(constant);
  // Degrees with a fraction are cut off; negative ones give 0.
  const Expr degree = unary(Primitive::kTrunc, n);
  Expr value = select(degree < 0.0, emitter.constant(0), emitter.constant(std::numeric_limits<double>::quiet_NaN()));
  value = select(equal(degree, 0), before, value);
  value = select(equal(degree, 1), own, value);
  for (int k = 1; k < kDegreeMax; ++k) {
    const Expr after = next(x, k, own, before);
    before = own;
    own = after;
    value = select(equal(degree, k + 1), own, value);
  }
  call.returns(expand(value, call.result_shape()));
}

}  // namespace

std::span<const Rule> polynomial_rules() {
  static const Rule kRules[] = {
      {"special_chebyshev_polynomial_t", {"default", "x_scalar", "n_scalar"}, lower_polynomial<chebyshev, 1, 0, false>},
      {"special_chebyshev_polynomial_u", {"default", "x_scalar", "n_scalar"}, lower_polynomial<chebyshev, 2, 0, false>},
      {"special_chebyshev_polynomial_v",
       {"default", "x_scalar", "n_scalar"},
       lower_polynomial<chebyshev, 2, -1, false>},
      {"special_chebyshev_polynomial_w", {"default", "x_scalar", "n_scalar"}, lower_polynomial<chebyshev, 2, 1, false>},
      {"special_shifted_chebyshev_polynomial_t",
       {"default", "x_scalar", "n_scalar"},
       lower_polynomial<chebyshev, 1, 0, true>},
      {"special_shifted_chebyshev_polynomial_u",
       {"default", "x_scalar", "n_scalar"},
       lower_polynomial<chebyshev, 2, 0, true>},
      {"special_shifted_chebyshev_polynomial_v",
       {"default", "x_scalar", "n_scalar"},
       lower_polynomial<chebyshev, 2, -1, true>},
      {"special_shifted_chebyshev_polynomial_w",
       {"default", "x_scalar", "n_scalar"},
       lower_polynomial<chebyshev, 2, 1, true>},
      {"special_hermite_polynomial_h", {"default", "x_scalar", "n_scalar"}, lower_polynomial<hermite, 2, 0, false>},
      {"special_hermite_polynomial_he",
       {"default", "x_scalar", "n_scalar"},
       lower_polynomial<hermite_of_probability, 1, 0, false>},
      {"special_laguerre_polynomial_l", {"default", "x_scalar", "n_scalar"}, lower_polynomial<laguerre, -1, 1, false>},
      {"special_legendre_polynomial_p", {"default", "x_scalar", "n_scalar"}, lower_polynomial<legendre, 1, 0, false>},
  };
  return kRules;
}

}  // namespace plumbline
