#include "tests/soundness/exact.h"

#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace plumbline::soundness {
namespace {

using enum Primitive;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class Real {  // An MPFR number of 200 bits.
 public:
  Real() { mpfr_init2(x_, 200); }
  explicit Real(double x) : Real() { mpfr_set_d(x_, x, MPFR_RNDN); }
  explicit Real(const Exact& x) : Real(x.value) {
    if (mpfr_number_p(x_) != 0) mpfr_add_d(x_, x_, x.rest, MPFR_RNDN);
  }
  ~Real() { mpfr_clear(x_); }
  Real(const Real&) = delete;
  Real& operator=(const Real&) = delete;
  operator mpfr_ptr() { return x_; }

  Exact exact() {
    Exact e{mpfr_get_d(x_, MPFR_RNDN), 0};
    if (mpfr_number_p(x_) == 0 || std::isinf(e.value)) return e;
    mpfr_sub_d(x_, x_, e.value, MPFR_RNDN);
    e.rest = mpfr_get_d(x_, MPFR_RNDN);
    return e;
  }

 private:
  mpfr_t x_;
};

[[noreturn]] void no_oracle(Primitive p) {
  throw std::logic_error("no oracle for the exact result of " + std::string(traits(p).name));
}

double without_rounding(Primitive p, double x) {
  switch (p) {
    case kCast:
      return x;
    case kNeg:
      return -x;
    case kAbs:
      return std::signbit(x) ? -x : x;
    case kSign:
      return static_cast<double>(x > 0) - static_cast<double>(x < 0);
    case kIsFinite:
      return x >= -std::numeric_limits<double>::max() && x <= std::numeric_limits<double>::max() ? 1 : 0;
    case kLogicalNot:
      return x == 0 ? 1 : 0;
    default:
      no_oracle(p);
  }
}

Exact unary(Primitive p, double x) {
  thread_local Real r, one(1.0);
  mpfr_set_d(r, x, MPFR_RNDN);
  switch (p) {
    case kExp:
      mpfr_exp(r, r, MPFR_RNDN);
      break;
    case kExpm1:
      mpfr_expm1(r, r, MPFR_RNDN);
      break;
    case kLog:
      mpfr_log(r, r, MPFR_RNDN);
      break;
    case kLog1p:
      mpfr_log1p(r, r, MPFR_RNDN);
      break;
    case kSqrt:
      mpfr_sqrt(r, r, MPFR_RNDN);
      break;
    case kRsqrt:
      mpfr_rec_sqrt(r, r, MPFR_RNDN);
      break;
    case kReciprocal:
      mpfr_ui_div(r, 1, r, MPFR_RNDN);
      break;
    case kSin:
      mpfr_sin(r, r, MPFR_RNDN);
      break;
    case kCos:
      mpfr_cos(r, r, MPFR_RNDN);
      break;
    case kTanh:
      mpfr_tanh(r, r, MPFR_RNDN);
      break;
    case kErf:
      mpfr_erf(r, r, MPFR_RNDN);
      break;
    case kSigmoid:
      mpfr_neg(r, r, MPFR_RNDN);
      mpfr_exp(r, r, MPFR_RNDN);
      mpfr_add_ui(r, r, 1, MPFR_RNDN);
      mpfr_ui_div(r, 1, r, MPFR_RNDN);
      break;
    case kFloor:
      mpfr_floor(r, r);
      break;
    case kCeil:
      mpfr_ceil(r, r);
      break;
    case kRound:
      mpfr_rint(r, r, MPFR_RNDN);  // Ties to even.
      break;
    case kTrunc:
      mpfr_trunc(r, r);
      break;
    default:
      return {without_rounding(p, x), 0};
  }
  return r.exact();
}

// `absorbs`: of sums, y may stand for infinity (primitive.h, kAdd).
Exact binary(Primitive p, double x, double y, bool absorbs) {
  thread_local Real r, s;
  mpfr_set_d(r, x, MPFR_RNDN);
  mpfr_set_d(s, y, MPFR_RNDN);
  const bool nan = x != x || y != y;
  switch (p) {
    case kAdd:
    case kSub: {
      if (!std::isfinite(x) || !std::isfinite(y)) return {p == kAdd ? x + y : x - y, 0};
      if (absorbs && std::fabs(y) > 0x1p64 && std::fabs(x) <= std::ldexp(std::fabs(y), -75))
        return {p == kAdd ? y : -y, 0};
      Superaccumulator sum;
      sum.add(x);
      sum.add(p == kAdd ? y : -y);
      return sum.value();
    }
    case kMul:
      mpfr_mul(r, r, s, MPFR_RNDN);
      return r.exact();
    case kDiv:
      mpfr_div(r, r, s, MPFR_RNDN);
      return r.exact();
    case kPow:
      mpfr_pow(r, r, s, MPFR_RNDN);
      return r.exact();
    case kAtan2:
      mpfr_atan2(r, r, s, MPFR_RNDN);
      return r.exact();
    case kFmod:
      mpfr_fmod(r, r, s, MPFR_RNDN);
      return r.exact();
    case kMax:
      mpfr_max(r, r, s, MPFR_RNDN);
      return {nan ? kNan : mpfr_get_d(r, MPFR_RNDN), 0};
    case kMin:
      mpfr_min(r, r, s, MPFR_RNDN);
      return {nan ? kNan : mpfr_get_d(r, MPFR_RNDN), 0};
    case kLess:
      return {mpfr_less_p(r, s) != 0 ? 1.0 : 0.0, 0};
    case kLessEqual:
      return {mpfr_lessequal_p(r, s) != 0 ? 1.0 : 0.0, 0};
    case kGreater:
      return {mpfr_greater_p(r, s) != 0 ? 1.0 : 0.0, 0};
    case kGreaterEqual:
      return {mpfr_greaterequal_p(r, s) != 0 ? 1.0 : 0.0, 0};
    case kEqual:
      return {mpfr_equal_p(r, s) != 0 ? 1.0 : 0.0, 0};
    case kNotEqual:
      return {mpfr_equal_p(r, s) != 0 ? 0.0 : 1.0, 0};
    case kLogicalAnd:
      return {mpfr_zero_p(r) == 0 && mpfr_zero_p(s) == 0 ? 1.0 : 0.0, 0};
    case kLogicalOr:
      return {mpfr_zero_p(r) == 0 || mpfr_zero_p(s) == 0 ? 1.0 : 0.0, 0};
    default:
      no_oracle(p);
  }
}

// Term i of result element j of a reduction over one dimension of a matrix.
struct Lines {
  explicit Lines(const Problem& p) : x(p.inputs[0].data()) {
    const Shape& s = p.inputs[0].shape();
    const bool last = p.attributes.dims[0] == 1;
    n = s[last ? 1 : 0];
    count = s[last ? 0 : 1];
    step = last ? 1 : s[1];
    next = last ? s[1] : 1;
  }
  double at(std::int64_t i, std::int64_t j) const { return x[i * step + j * next]; }

  const double* x;
  std::int64_t n, count, step, next;
};

Exact norm(const Lines& x, std::int64_t j) {
  Superaccumulator sum;
  for (std::int64_t i = 0; i < x.n; ++i) sum.add_product(x.at(i, j), x.at(i, j));
  Real r(sum.value());
  mpfr_sqrt(r, r, MPFR_RNDN);
  return r.exact();
}

Exact variance_rsqrt(const Lines& x, std::int64_t j, double eps) {
  Superaccumulator sum;
  for (std::int64_t i = 0; i < x.n; ++i) sum.add(x.at(i, j));
  Real mean(sum.value()), total, d;
  mpfr_div_si(mean, mean, static_cast<long>(x.n), MPFR_RNDN);
  mpfr_set_zero(total, 1);
  for (std::int64_t i = 0; i < x.n; ++i) {
    mpfr_d_sub(d, x.at(i, j), mean, MPFR_RNDN);
    mpfr_fma(total, d, d, total, MPFR_RNDN);
  }
  mpfr_div_si(total, total, static_cast<long>(x.n), MPFR_RNDN);
  mpfr_add_d(total, total, eps, MPFR_RNDN);
  mpfr_rec_sqrt(total, total, MPFR_RNDN);
  return total.exact();
}

void softmax_row(const double* x, std::int64_t n, bool logarithm, Exact* out) {
  const double max = *std::max_element(x, x + n);
  std::vector<Real> e(static_cast<std::size_t>(n));
  Real sum(0.0), r;
  for (std::int64_t i = 0; i < n; ++i) {
    mpfr_set_d(r, x[i], MPFR_RNDN);
    mpfr_sub_d(e[i], r, max, MPFR_RNDN);
    mpfr_exp(r, e[i], MPFR_RNDN);
    if (!logarithm) mpfr_set(e[i], r, MPFR_RNDN);
    mpfr_add(sum, sum, r, MPFR_RNDN);
  }
  if (logarithm) mpfr_log(sum, sum, MPFR_RNDN);
  for (std::int64_t i = 0; i < n; ++i) {
    if (logarithm) {
      mpfr_sub(e[i], e[i], sum, MPFR_RNDN);
    } else {
      mpfr_div(e[i], e[i], sum, MPFR_RNDN);
    }
    out[i] = e[i].exact();
  }
}

std::vector<Exact> reduction(const Problem& p) {
  const Lines x(p);
  std::vector<Exact> out(static_cast<std::size_t>(count(p.shape)));
  for (std::int64_t j = 0; j < x.count; ++j) {
    Superaccumulator sum;
    std::int64_t best = 0;
    for (std::int64_t i = 0; i < x.n; ++i) {
      const double v = x.at(i, j);
      if (p.primitive == kSum || p.primitive == kCumsum) sum.add(v);
      if (p.primitive == kCumsum) out[i * x.step + j * x.next] = sum.value();
      if (p.primitive == kAmin ? v < x.at(best, j) : v > x.at(best, j)) best = i;
    }
    switch (p.primitive) {
      case kSum:
        out[j] = sum.value();
        break;
      case kAmax:
      case kAmin:
        out[j] = {x.at(best, j), 0};
        break;
      case kArgmax:
        out[j] = {static_cast<double>(best), 0};
        break;
      case kArgsort:  // An element's rank is how many come before it.
        for (std::int64_t i = 0; i < x.n; ++i) {
          std::int64_t rank = 0;
          for (std::int64_t k = 0; k < x.n; ++k) rank += x.at(k, j) > x.at(i, j) || (x.at(k, j) == x.at(i, j) && k < i);
          out[rank * x.step + j * x.next] = {static_cast<double>(i), 0};
        }
        break;
      case kNorm:
        out[j] = norm(x, j);
        break;
      case kVarianceRsqrt:
        out[j] = variance_rsqrt(x, j, p.attributes.scalar);
        break;
      case kCumsum:  // Written above.
        break;
      default:
        no_oracle(p.primitive);
    }
  }
  return out;
}

// Row-major positions of a view's elements.
std::vector<std::int64_t> positions(const View& view) {
  std::vector<std::int64_t> result = {view.offset};
  for (std::size_t d = 0; d < view.sizes.size(); ++d) {
    std::vector<std::int64_t> finer;
    for (const std::int64_t at : result) {
      for (std::int64_t i = 0; i < view.sizes[d]; ++i) finer.push_back(at + i * view.strides[d]);
    }
    result = std::move(finer);
  }
  return result;
}

std::vector<Exact> movement(const Problem& p) {
  std::vector<Exact> out(static_cast<std::size_t>(count(p.shape)));
  const auto in = [&](std::size_t input, std::int64_t i) { return Exact{p.inputs[input].data()[i], 0}; };
  if (p.primitive == kWindow) {
    const auto from = positions(p.attributes.view);
    for (std::size_t i = 0; i < from.size(); ++i) out[i] = in(0, from[i]);
  } else if (p.primitive == kAssemble) {
    const std::size_t first = p.attributes.has_base ? 1 : 0;
    for (std::size_t i = 0; first == 1 && i < out.size(); ++i) out[i] = in(0, static_cast<std::int64_t>(i));
    for (std::size_t piece = 0; piece < p.attributes.views.size(); ++piece) {
      const auto to = positions(p.attributes.views[piece]);
      for (std::size_t i = 0; i < to.size(); ++i) out[to[i]] = in(piece + first, static_cast<std::int64_t>(i));
    }
  } else {  // kGatherRows
    const std::int64_t d = p.shape[1];
    for (std::int64_t i = 0; i < p.shape[0] * d; ++i) {
      out[i] = in(0, static_cast<std::int64_t>(p.inputs[1].data()[i / d]) * d + i % d);
    }
  }
  return out;
}

std::vector<Exact> scatter(const Problem& p) {
  const std::int64_t d = p.shape[1];
  std::vector<Superaccumulator> sums(static_cast<std::size_t>(count(p.shape)));
  for (std::int64_t i = 0; i < p.inputs[0].shape()[0]; ++i) {
    const auto r = static_cast<std::int64_t>(p.inputs[1].data()[i]);
    for (std::int64_t j = 0; r >= 0 && j < d; ++j) sums[r * d + j].add(p.inputs[0].data()[i * d + j]);
  }
  std::vector<Exact> out;
  for (const Superaccumulator& sum : sums) out.push_back(sum.value());
  return out;
}

std::vector<Exact> matmul(const Problem& p) {
  const std::int64_t m = p.shape[0], c = p.shape[1], k = p.inputs[0].shape()[1];
  const double alpha = p.inputs.size() > 3 ? p.inputs[3].item() : 1;  // Few bits: its products are exact.
  std::vector<Exact> out;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < c; ++j) {
      Superaccumulator sum;
      for (std::int64_t l = 0; l < k; ++l) {
        sum.add_product(alpha * p.inputs[0].data()[i * k + l], p.inputs[1].data()[l * c + j]);
      }
      if (p.inputs.size() > 2) sum.add_product(p.inputs[2].data()[i * c + j], 1);
      out.push_back(sum.value());
    }
  }
  return out;
}

}  // namespace

Exact exact_function(Primitive primitive, double x, double y) {
  return traits(primitive).arity == 2 ? binary(primitive, x, y, false) : unary(primitive, x);
}

std::vector<Exact> exact(const Problem& p) {
  const std::int64_t n = count(p.shape);
  std::vector<Exact> out(static_cast<std::size_t>(n));
  switch (p.primitive) {
    case kConstant:
      std::fill(out.begin(), out.end(), Exact{p.attributes.scalar, 0});
      return out;
    case kIota:
      for (std::int64_t i = 0; i < n; ++i) {
        Superaccumulator sum;
        sum.add(p.attributes.scalar);
        sum.add_product(static_cast<double>(i), p.attributes.scalar2);
        out[i] = sum.value();
      }
      return out;
    case kSelect:
      for (std::int64_t i = 0; i < n; ++i) {
        out[i] = {p.inputs[p.inputs[0].data()[i] != 0 ? 1 : 2].data()[i], 0};
      }
      return out;
    case kSoftmax:
    case kLogSoftmax:
      for (std::int64_t r = 0; r < p.shape[0]; ++r) {
        softmax_row(p.inputs[0].data() + r * p.shape[1], p.shape[1], p.primitive == kLogSoftmax,
                    out.data() + r * p.shape[1]);
      }
      return out;
    case kMatmul:
      return matmul(p);
    case kScatterAdd:
      return scatter(p);
    case kWindow:
    case kAssemble:
    case kGatherRows:
      return movement(p);
    case kLeaf:  // Its content is given as an input.
      for (std::int64_t i = 0; i < n; ++i) out[i] = {p.inputs[0].data()[i], 0};
      return out;
    default:
      if (!is_elementwise(p.primitive)) return reduction(p);
  }
  const bool absorbs = (p.primitive == kAdd || p.primitive == kSub) && p.attributes.scalar != 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = p.inputs[0].data()[i], y = p.inputs.size() > 1 ? p.inputs[1].data()[i] : 0;
    out[i] = absorbs ? binary(p.primitive, x, y, true) : exact_function(p.primitive, x, y);
  }
  return out;
}

}  // namespace plumbline::soundness
