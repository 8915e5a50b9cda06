// Row projections of observed products (kernels/projection.h), on the backend that is compiled.
#include "kernels/projection.h"

#include <cmath>

#include "kernels/ball/key.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

constexpr std::int64_t kVectors = 64;

struct Sign {
  std::uint64_t seed;

  PLUMBLINE_HOST_DEVICE double operator()(std::int64_t i) const {
    return (key::mixed(seed + key::kStart * (static_cast<std::uint64_t>(i) + 1)) & 1) != 0 ? 1.0 : -1.0;
  }
};

struct SquaredDifference {
  PLUMBLINE_HOST_DEVICE double operator()(double x, double y) const { return (x - y) * (x - y); }
};

Shape with_last(Shape shape, std::int64_t size) {
  shape.back() = size;
  return shape;
}

// x [..., n] of rows [..., 1]: the root mean square of each.
Array root_mean_square(const Array& x) {
  Array rows = Array::uninitialized(with_last(x.shape(), 1));
  loop::reduce<scalar::Sum>(
      rows, false, x.shape(), [] PLUMBLINE_HOST_DEVICE(double v) { return v * v; }, x);
  const auto n = static_cast<double>(x.shape().back());
  loop::map(
      rows, [n] PLUMBLINE_HOST_DEVICE(double s) { return std::sqrt(s / n); }, rows);
  return rows;
}

// A third operand as a matrix of rows n long.
Array as_rows(const Array& c, std::int64_t n) {
  Shape shape = c.shape();
  while (shape.size() < 2) shape.insert(shape.begin(), 1);
  return c.expand(with_last(shape, n));
}

}  // namespace

// For signs x drawn after the data is fixed, E <x, e>^2 is the squared norm of a row's error e, and (y - AB) x costs
// vectors alone. The mean of kVectors of them is compared with what roundings may add up to.
//
// Bounds of a row, too: the root mean square over a row's elements obeys the triangle inequality, so that of sum_k
// |A_ik| |B_kj| + const is at most sum_k |A_ik| rms(B_k) + const. Hence the local error of a product with one column,
// rms(B), is above the root mean square of a row's; |y| stands for the exact value, to first order. Its parts add in
// squares where they are due to chance, as noise_matmul says, whose half-widths hold three times the squares of real
// roundings; where units truncate they add whole.
//
// X = <x, e> / norm(e) has a fourth moment of at most 3, so E exp(-s X^2) <= 1 - s + 3/2 s^2 = 5/6 at s = 1/3. A mean
// of 64 that is below q^-2 has probability at most (5/6 exp(q^-2 / 3))^64: 4e-5 for q = 4.
double outlying_rows(const Arithmetic& arithmetic, Inputs in, const Array& observed, std::uint64_t seed) {
  const bool begun = in.size() > 2;
  const std::int64_t n = observed.shape().back();
  Array signs = Array::uninitialized({n, kVectors});
  loop::fill(signs, Sign{seed});
  const auto projected = [&](const Array& x) {
    Array result = Array::uninitialized(with_last(x.shape(), kVectors));
    loop::matmul(x, signs, result, false);
    return result;
  };
  const Array seen = projected(observed);
  Array exact = Array::uninitialized(seen.shape());
  loop::matmul(in[0], projected(in[1]), exact, false);
  std::vector<Array> of_rows = {in[0], root_mean_square(in[1])};
  if (begun) {
    const Array c = as_rows(in[2], n);
    loop::map(
        exact, [] PLUMBLINE_HOST_DEVICE(double t, double begin, double alpha) { return alpha * t + begin; }, exact,
        projected(c), alpha_of(in));
    of_rows.insert(of_rows.end(), {root_mean_square(c), alpha_of(in)});
  }
  Array squares = Array::uninitialized(with_last(seen.shape(), 1));
  loop::reduce<scalar::Sum>(squares, false, seen.shape(), SquaredDifference{}, seen, exact);

  const Array values = root_mean_square(observed);
  const Bound error = error_matmul({}, arithmetic, of_rows, values);
  const ProductError product = product_error(arithmetic, product_terms({}, in));
  const bool by_chance =
      arithmetic.profile->rounding != Rounding::kTowardZero && product.rounds_each && product.factor > 0;
  const Storage held = storage(arithmetic);
  const double u = unit_roundoff(arithmetic.compute), factor = product.factor;
  const auto roundings = static_cast<double>(product_terms({}, in) + 2);
  // Takes the squares of projections to those of an element.
  const auto to_squares = 1 / static_cast<double>(kVectors * n);
  return loop::total(
             [=] PLUMBLINE_HOST_DEVICE(double deviation, double y, double e) {
               const double stored = held.u * y + held.eta, accumulated = e > stored ? e - stored : 0.0;
               const double event = u * accumulated / factor;
               const double legal = by_chance ? roundings * event * event + stored * stored : e * e;
               const bool finite = y - y == 0;
               return Totals<1>{{(finite & (deviation * to_squares <= legal)) ? 0.0 : 1.0}};
             },
             squares.count(), squares, values, error.values)
      .get()
      .of[0];
}

}  // namespace plumbline::primitive
