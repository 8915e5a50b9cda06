#include "tests/soundness/images.h"

#include <arb_hypgeom.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string>

#include "tests/soundness/exact.h"

namespace plumbline::soundness {
namespace {

using enum Primitive;

constexpr slong kFar = 20;  // Exponentials of more than 2^20 are given as their limits.

Real limit(double value) {  // And whatever is next to it.
  Real r(value);
  arb_add_error_2exp_si(r, -(slong{1} << kFar));
  return r;
}

const Image kOutsideOfDomain = std::nullopt;

[[noreturn]] void no_oracle(Primitive p) {
  throw std::logic_error("no oracle for the images of " + std::string(traits(p).name));
}

Real infinity(int sign) {
  Real r;
  if (sign > 0) arb_pos_inf(r);
  if (sign < 0) arb_neg_inf(r);
  return r;
}

bool far(const Real& x) { return arf_cmpabs_2exp_si(x.point(), kFar) > 0; }

Real exponential(const Real& x, slong precision) {
  if (far(x)) return arf_sgn(x.point()) > 0 ? infinity(1) : limit(0);
  Real r;
  arb_exp(r, x, precision);
  return r;
}

Real to_integer(const Real& x, arf_rnd_t rounding) {  // ARF_RND_NEAR: ties to even.
  fmpz_t n;
  fmpz_init(n);
  arf_get_fmpz(n, x.point(), rounding);
  Real r;
  arb_set_fmpz(r, n);
  fmpz_clear(n);
  return r;
}

// As fp64 sees it: what rounds to infinity is none.
bool finite_in_double(const Real& x) { return arf_cmpabs_d(x.point(), std::numeric_limits<double>::max()) <= 0; }

Image unary(Primitive p, const Real& x, slong precision) {
  Real r;
  const int sign = arf_sgn(x.point());
  switch (p) {
    case kNeg:
      arb_neg(r, x);
      return r;
    case kAbs:
      arb_abs(r, x);
      return r;
    case kSign:
      return Real(static_cast<double>(sign));
    case kExp:
      return exponential(x, precision);
    case kExpm1:
      if (far(x)) return sign > 0 ? infinity(1) : limit(-1);
      arb_expm1(r, x, precision);
      return r;
    case kLog:
      if (sign <= 0) return sign == 0 ? infinity(-1) : kOutsideOfDomain;
      arb_log(r, x, precision);
      return r;
    case kLog1p: {
      const int place = arf_cmp_d(x.point(), -1);
      if (place <= 0) return place == 0 ? infinity(-1) : kOutsideOfDomain;
      arb_log1p(r, x, precision);
      return r;
    }
    case kSqrt:
      if (sign < 0) return kOutsideOfDomain;
      arb_sqrt(r, x, precision);
      return r;
    case kRsqrt:
      if (sign <= 0) return sign == 0 ? infinity(1) : kOutsideOfDomain;
      arb_rsqrt(r, x, precision);
      return r;
    case kReciprocal:
      if (sign == 0) return infinity(1);
      arb_inv(r, x, precision);
      return r;
    case kSin:
      arb_sin(r, x, far(x) ? precision + 2200 : precision);
      return r;
    case kCos:
      arb_cos(r, x, far(x) ? precision + 2200 : precision);
      return r;
    case kTanh:
      if (far(x)) return limit(sign);
      arb_tanh(r, x, precision);
      return r;
    case kErf:
      if (far(x)) return limit(sign);
      arb_hypgeom_erf(r, x, precision);
      return r;
    case kSigmoid:
      if (far(x)) return limit(sign > 0 ? 1 : 0);
      arb_neg(r, x);
      arb_exp(r, r, precision);
      arb_add_ui(r, r, 1, precision);
      arb_inv(r, r, precision);
      return r;
    case kFloor:
      return to_integer(x, ARF_RND_FLOOR);
    case kCeil:
      return to_integer(x, ARF_RND_CEIL);
    case kRound:
      return to_integer(x, ARF_RND_NEAR);
    case kTrunc:
      return to_integer(x, ARF_RND_DOWN);
    case kIsFinite:
      return Real(finite_in_double(x) ? 1 : 0);
    case kLogicalNot:
      return Real(sign == 0 ? 1 : 0);
    case kCast:
      return x;
    default:
      no_oracle(p);
  }
}

// |a|^b = exp(b log|a|).
Image power(const Real& a, const Real& b, slong precision) {
  const int sign = arf_sgn(a.point()), upward = arf_sgn(b.point());
  if (upward == 0) return Real(1);
  if (sign == 0) return upward > 0 ? Real(0) : infinity(1);
  const bool integral = arf_is_int(b.point()) != 0;
  if (sign < 0 && !integral) return kOutsideOfDomain;
  Real r;
  arb_abs(r, a);
  arb_log(r, r, precision + 64);
  arb_mul(r, r, b, precision + 64);
  r = exponential(r, precision);
  if (sign < 0 && arf_is_int_2exp_si(b.point(), 1) == 0) arb_neg(r, r);
  return r;
}

// a - trunc(a / b) b, in integers.
Image remainder(const Real& a, const Real& b) {
  if (arf_is_zero(b.point()) != 0) return kOutsideOfDomain;
  if (arf_is_zero(a.point()) != 0) return Real(0);
  fmpz_t m, n, e, f;
  for (fmpz* z : {m, n, e, f}) fmpz_init(z);
  arf_get_fmpz_2exp(m, e, a.point());
  arf_get_fmpz_2exp(n, f, b.point());
  const slong lower = std::min(fmpz_get_si(e), fmpz_get_si(f));
  fmpz_mul_2exp(m, m, static_cast<ulong>(fmpz_get_si(e) - lower));
  fmpz_mul_2exp(n, n, static_cast<ulong>(fmpz_get_si(f) - lower));
  fmpz_tdiv_qr(e, m, m, n);
  fmpz_set_si(e, lower);
  Real r;
  arb_set_fmpz_2exp(r, m, e);
  for (fmpz* z : {m, n, e, f}) fmpz_clear(z);
  return r;
}

// Of a sum whose second term may stand for infinity (primitive.h, kAdd).
bool is_absorbed(const Real& a, const Real& b) {
  Real least;
  arb_mul_2exp_si(least, a, 75);
  return arf_cmpabs_2exp_si(b.point(), 64) > 0 && arf_cmpabs(least.point(), b.point()) <= 0;
}

Image binary(Primitive p, const Real& a, const Real& b, slong precision) {
  Real r;
  const int order = arf_cmp(a.point(), b.point());
  const bool first = arf_is_zero(a.point()) == 0, second = arf_is_zero(b.point()) == 0;
  switch (p) {
    case kAdd:
      arb_add(r, a, b, ARF_PREC_EXACT);
      return r;
    case kSub:
      arb_sub(r, a, b, ARF_PREC_EXACT);
      return r;
    case kMul:
      arb_mul(r, a, b, ARF_PREC_EXACT);
      return r;
    case kDiv:
      if (!second) return first ? infinity(arf_sgn(a.point())) : kOutsideOfDomain;
      arb_div(r, a, b, precision);
      return r;
    case kPow:
      return power(a, b, precision);
    case kAtan2:
      arb_atan2(r, a, b, precision);
      return r;
    case kMax:
      return order >= 0 ? a : b;
    case kMin:
      return order <= 0 ? a : b;
    case kFmod:
      return remainder(a, b);
    case kLess:
      return Real(order < 0 ? 1 : 0);
    case kLessEqual:
      return Real(order <= 0 ? 1 : 0);
    case kGreater:
      return Real(order > 0 ? 1 : 0);
    case kGreaterEqual:
      return Real(order >= 0 ? 1 : 0);
    case kEqual:
      return Real(order == 0 ? 1 : 0);
    case kNotEqual:
      return Real(order != 0 ? 1 : 0);
    case kLogicalAnd:
      return Real(first && second ? 1 : 0);
    case kLogicalOr:
      return Real(first || second ? 1 : 0);
    default:
      no_oracle(p);
  }
}

// A line of the input that is reduced or normalised, and where its results go.
using Line = std::vector<const Real*>;

Real sum(const Line& line) {
  Real total;
  for (const Real* x : line) arb_add(total, total, *x, ARF_PREC_EXACT);
  return total;
}

std::size_t first_extreme(const Line& line, int direction) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < line.size(); ++i) {
    if (arf_cmp(line[i]->point(), line[best]->point()) * direction > 0) best = i;
  }
  return best;
}

Real sum_of_squares(const Line& line) {
  Real total;
  for (const Real* x : line) arb_addmul(total, *x, *x, ARF_PREC_EXACT);
  return total;
}

// n^2 variance = n sum x^2 - (sum x)^2, exactly.
Real variance_rsqrt(const Line& line, double eps, slong precision) {
  const ulong n = line.size();
  Real squares = sum_of_squares(line), total = sum(line), shift(eps);
  arb_mul_ui(squares, squares, n, ARF_PREC_EXACT);
  arb_submul(squares, total, total, ARF_PREC_EXACT);
  arb_mul_ui(shift, shift, n * n, ARF_PREC_EXACT);
  arb_add(squares, squares, shift, ARF_PREC_EXACT);
  if (arf_is_zero(squares.point()) != 0) return infinity(1);
  arb_rsqrt(squares, squares, precision);
  arb_mul_ui(squares, squares, n, precision);
  return squares;
}

Real reduced(const Problem& problem, const Line& line, slong precision) {
  switch (problem.primitive) {
    case kSum:
      return sum(line);
    case kAmax:
      return *line[first_extreme(line, 1)];
    case kAmin:
      return *line[first_extreme(line, -1)];
    case kArgmax:
      return Real(static_cast<double>(first_extreme(line, 1)));
    case kNorm: {
      Real r = sum_of_squares(line);
      arb_sqrt(r, r, precision);
      return r;
    }
    case kVarianceRsqrt:
      return variance_rsqrt(line, problem.attributes.scalar, precision);
    default:
      no_oracle(problem.primitive);
  }
}

// Places by falling value, equal ones in order.
std::vector<std::size_t> falling(const Line& line) {
  std::vector<std::size_t> order(line.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return arf_cmp(line[a]->point(), line[b]->point()) > 0; });
  return order;
}

std::vector<Real> reduction(const Problem& problem, const std::vector<Real>& x, slong precision) {
  const Shape& shape = problem.inputs[0].shape();
  const bool last = problem.attributes.dims[0] == 1;
  const std::int64_t n = shape[last ? 1 : 0], lines = shape[last ? 0 : 1];
  const std::int64_t step = last ? 1 : shape[1], next = last ? shape[1] : 1;
  std::vector<Real> out(static_cast<std::size_t>(count(problem.shape)));
  for (std::int64_t j = 0; j < lines; ++j) {
    Line line;
    for (std::int64_t i = 0; i < n; ++i) line.push_back(&x[i * step + j * next]);
    if (problem.primitive == kCumsum) {
      Real total;
      for (std::int64_t i = 0; i < n; ++i) {
        arb_add(total, total, *line[i], ARF_PREC_EXACT);
        out[i * step + j * next] = total;
      }
    } else if (problem.primitive == kArgsort) {
      const auto order = falling(line);
      for (std::int64_t i = 0; i < n; ++i) out[i * step + j * next] = Real(static_cast<double>(order[i]));
    } else {
      out[j] = reduced(problem, line, precision);
    }
  }
  return out;
}

std::vector<Real> softmax(const Problem& problem, const std::vector<Real>& x, slong precision) {
  const std::int64_t n = problem.shape.back();
  std::vector<Real> out(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += n) {
    Line line;
    for (std::int64_t i = 0; i < n; ++i) line.push_back(&x[begin + i]);
    const Real& largest = *line[first_extreme(line, 1)];
    Real total;
    std::vector<Real> distances(n), powers(n);
    for (std::int64_t i = 0; i < n; ++i) {
      arb_sub(distances[i], *line[i], largest, ARF_PREC_EXACT);
      powers[i] = exponential(distances[i], precision);
      arb_add(total, total, powers[i], precision);
    }
    if (problem.primitive == kLogSoftmax) arb_log(total, total, precision);
    for (std::int64_t i = 0; i < n; ++i) {
      if (problem.primitive == kLogSoftmax) {
        arb_sub(out[begin + i], distances[i], total, precision);
      } else {
        arb_div(out[begin + i], powers[i], total, precision);
      }
    }
  }
  return out;
}

std::vector<Real> matmul(const Problem& problem, const Point& point) {
  const std::int64_t m = problem.shape[0], c = problem.shape[1], k = problem.inputs[0].shape()[1];
  std::vector<Real> out(static_cast<std::size_t>(m * c));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < c; ++j) {
      for (std::int64_t l = 0; l < k; ++l) {
        arb_addmul(out[i * c + j], point[0][i * k + l], point[1][l * c + j], ARF_PREC_EXACT);
      }
      Real& to = out[i * c + j];
      if (point.size() > 3) arb_mul(to, to, point[3][0], ARF_PREC_EXACT);
      if (point.size() > 2) arb_add(to, to, point[2][i * c + j], ARF_PREC_EXACT);
    }
  }
  return out;
}

std::vector<Real> scatter(const Problem& problem, const Point& point) {
  const std::int64_t d = problem.shape[1];
  std::vector<Real> out(static_cast<std::size_t>(count(problem.shape)));
  for (std::size_t i = 0; i < point[1].size(); ++i) {
    const double row = problem.inputs[1].data()[i];
    for (std::int64_t j = 0; row >= 0 && j < d; ++j) {
      Real& to = out[static_cast<std::size_t>(row) * d + j];
      arb_add(to, to, point[0][i * d + j], ARF_PREC_EXACT);
    }
  }
  return out;
}

// Where each element comes from is found by moving the elements' numbers.
std::vector<Real> movement(const Problem& problem, const Point& point) {
  Problem numbers = problem;
  std::vector<const Real*> elements;
  const Real zero(0);
  elements.push_back(&zero);
  for (std::size_t input = 0; input < point.size(); ++input) {
    if (problem.primitive == kGatherRows && input == 1) continue;
    numbers.inputs[input] = Array::uninitialized(problem.inputs[input].shape());
    for (std::size_t i = 0; i < point[input].size(); ++i) {
      numbers.inputs[input].data()[i] = static_cast<double>(elements.size());
      elements.push_back(&point[input][i]);
    }
  }
  std::vector<Real> out;
  for (const Exact& number : exact(numbers)) out.push_back(*elements[static_cast<std::size_t>(number.value)]);
  return out;
}

}  // namespace

std::vector<Image> images(const Problem& problem, const Point& point, slong precision) {
  const Primitive p = problem.primitive;
  const auto defined = [](std::vector<Real> reals) {  // On any point.
    return std::vector<Image>(std::make_move_iterator(reals.begin()), std::make_move_iterator(reals.end()));
  };
  switch (p) {
    case kSum:
    case kAmax:
    case kAmin:
    case kArgmax:
    case kArgsort:
    case kVarianceRsqrt:
    case kNorm:
    case kCumsum:
      return defined(reduction(problem, point[0], precision));
    case kSoftmax:
    case kLogSoftmax:
      return defined(softmax(problem, point[0], precision));
    case kMatmul:
      return defined(matmul(problem, point));
    case kScatterAdd:
      return defined(scatter(problem, point));
    case kWindow:
    case kAssemble:
    case kGatherRows:
      return defined(movement(problem, point));
    default:
      if (!is_elementwise(p)) no_oracle(p);
  }
  std::vector<Image> out;
  for (std::size_t i = 0; i < point[0].size(); ++i) {
    if ((p == kAdd || p == kSub) && problem.attributes.scalar != 0 && is_absorbed(point[0][i], point[1][i])) {
      out.push_back(binary(p, Real(0), point[1][i], precision));
    } else if (p == kSelect) {
      out.emplace_back(point[arf_is_zero(point[0][i].point()) == 0 ? 1 : 2][i]);
    } else {
      out.push_back(point.size() == 2 ? binary(p, point[0][i], point[1][i], precision)
                                      : unary(p, point[0][i], precision));
    }
  }
  return out;
}

}  // namespace plumbline::soundness
