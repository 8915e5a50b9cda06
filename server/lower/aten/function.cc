// Functions made of the primitive ones, running products, and distances between points (ATen: native/cpu/
// UnaryOpsKernel.cpp, BinaryOpsKernel.cpp, ReduceOpsKernel.cpp, DistanceOpsKernel.cpp). Each intermediate value is
// charged a rounding of its own, so that what is allowed is never less than a library's one or two ulps.
#include <cmath>
#include <limits>
#include <numbers>

#include "server/lower/integer.h"
#include "server/lower/operands.h"
#include "server/lower/registry.h"

namespace plumbline {
namespace {

void lower_log2(Call& call) { call.returns(log(call.tensor("self")) / std::numbers::ln2); }
void lower_log10(Call& call) { call.returns(log(call.tensor("self")) / std::numbers::ln10); }
void lower_exp2(Call& call) { call.returns(exp(call.tensor("self") * std::numbers::ln2)); }

// The kernel keeps the digits of small results, which the difference does not: what it is allowed is far more there.
void lower_erfc(Call& call) { call.returns(1.0 - unary(Primitive::kErf, call.tensor("self"))); }

void lower_tan(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(unary(Primitive::kSin, x) / unary(Primitive::kCos, x));
}

// Inverse functions are angles of points whose coordinates keep their digits at the ends of the domain (Kahan, "Branch
// cuts for complex elementary functions", 1987).
Expr angle(Expr y, Expr x) { return binary(Primitive::kAtan2, y, x); }
void lower_atan(Call& call) { call.returns(angle(call.tensor("self"), call.emitter().constant(1))); }
void lower_asin(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(angle(x, sqrt(1.0 - x) * sqrt(1.0 + x)));
}
void lower_acos(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(2.0 * angle(sqrt(1.0 - x), sqrt(1.0 + x)));
}

// e / 2 + e / (2 (e + 1)), e = exp(|x|) - 1, with the sign of x.
void lower_sinh(Call& call) {
  const Expr x = call.tensor("self"), e = unary(Primitive::kExpm1, abs(x));
  const Expr value = 0.5 * (e + e / (e + 1.0));
  call.returns(select(x < 0.0, -value, value));
}

void lower_cosh(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(0.5 * (exp(x) + exp(-x)));
}

// log1p(t + t^2 / (1 + sqrt(1 + t^2))), t = |x|, with the sign of x.
void lower_asinh(Call& call) {
  const Expr x = call.tensor("self"), t = abs(x), squared = t * t;
  const Expr value = log1p(t + squared / (1.0 + sqrt(1.0 + squared)));
  call.returns(select(x < 0.0, -value, value));
}

// log1p(t + sqrt(2 t + t^2)), t = x - 1
void lower_acosh(Call& call) {
  const Expr t = call.tensor("self") - 1.0;
  call.returns(log1p(t + sqrt(t * (t + 2.0))));
}

// log1p(2 t / (1 - t)) / 2, t = |x|, with the sign of x.
void lower_atanh(Call& call) {
  const Expr x = call.tensor("self"), t = abs(x);
  const Expr value = 0.5 * log1p(2.0 * t / (1.0 - t));
  call.returns(select(x < 0.0, -value, value));
}

// 0 where self is 0, otherwise self log(other). 16-bit logarithms are rounded before they are multiplied.
void lower_xlogy(Call& call) {
  const ComputeIn own(call.emitter(), call.result_format());
  const Format common = common_format(call);
  const Expr self = held(call, "self", common), other = held(call, "other", common);
  const Expr zero = equal(self, 0);
  Emitter& emitter = call.emitter();
  call.returns(select(zero, emitter.constant(0), self * log(select(zero, emitter.constant(1), other))));
}

// log(exp(a) + exp(b)), and of two equal infinities that one.
Expr log_add_exp(Expr a, Expr b) {
  const Expr same =
      logical_and(equal(abs(a), std::numeric_limits<double>::infinity()), compare(Primitive::kEqual, a, b));
  const Expr distance = select(same, a.emitter->constant(0), abs(a - b));
  return select(same, a, maximum(a, b) + log1p(exp(-distance)));
}
void lower_logaddexp(Call& call) {
  const Format common = common_format(call);
  call.returns(log_add_exp(held(call, "self", common), held(call, "other", common)));
}

// An element after the other: longer ones than this are not modelled.
constexpr std::int64_t kChainMax = 2048;

using Combine = Expr (*)(Expr, Expr);
Expr product(Expr a, Expr b) {
  const Format format = a.format();
  return is_float(format) || format == Format::kBool ? a * b : whole_product(a, b, format);
}

// All prefixes of x along a dimension, combined.
std::vector<Expr> prefixes(Call& call, Expr x, std::size_t dim, Combine combine) {
  const std::int64_t n = x.size(dim);
  if (n > kChainMax) call.unsupported("a chain of " + std::to_string(n) + " elements");
  if (n < 1) throw LowerError("a chain of at least one element was expected, found none");
  std::vector<Expr> made{narrow(x, dim, 0, 1)};
  for (std::int64_t i = 1; i < n; ++i) made.push_back(combine(made.back(), narrow(x, dim, i, 1)));
  return made;
}

// 16-bit factors are multiplied in their own format; fp16 may overflow in between, by the order.
void lower_prod(Call& call) {
  if (call.result_format() == Format::kFloat16) call.unsupported("products in fp16");
  const Expr x = cast(call.tensor("self"), call.result_format());
  if (!is_integer(x.format())) call.emitter().set_compute(x.format());
  const Expr flat = call.has("dim") ? x : reshape(x, {x.count()});
  const std::size_t dim = call.has("dim") ? call.dim("dim", x.rank(), 0) : 0;
  if (flat.rank() == 0) {
    call.returns(flat);
    return;
  }
  if (flat.size(dim) == 0) {
    call.returns(expand(call.emitter().constant(1), call.result_shape()));
    return;
  }
  call.returns(reshape(prefixes(call, flat, dim, product).back(), call.result_shape()));
}

template <Combine combine>
void lower_running(Call& call) {
  const Expr x = cast(call.tensor("self"), call.result_format());
  if (x.rank() == 0) {
    call.returns(x);
    return;
  }
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  const Shape shape = x.shape(), strides = row_major_strides(shape);
  std::vector<Expr> pieces = prefixes(call, x, dim, combine);
  std::vector<View> views;
  for (Expr& piece : pieces) {
    views.push_back({piece.shape(), strides, static_cast<std::int64_t>(views.size()) * strides[dim]});
    piece = cast(piece, x.format());
  }
  call.returns(assemble(call.emitter(), shape, std::nullopt, pieces, std::move(views), x.format()));
}

// The largest (or smallest) so far along a dimension, and the last place that holds it.
template <bool largest>
void lower_running_extreme(Call& call) {
  const Expr x = call.tensor("self");
  Emitter& emitter = call.emitter();
  if (x.rank() == 0) {
    call.returns(0, x);
    call.returns(1, emitter.constant(0, Format::kInt64));
    return;
  }
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  const std::int64_t n = x.size(dim);
  if (n < 1 || n > kChainMax) call.unsupported("a chain of " + std::to_string(n) + " elements");
  const Shape shape = x.shape(), strides = row_major_strides(shape);
  Expr best = narrow(x, dim, 0, 1), place = expand(emitter.constant(0, Format::kInt64), best.shape());
  std::vector<Expr> values{best}, places{place};
  std::vector<View> views{{best.shape(), strides, 0}};
  for (std::int64_t i = 1; i < n; ++i) {
    const Expr next = narrow(x, dim, i, 1);
    const Expr taken = compare(largest ? Primitive::kGreaterEqual : Primitive::kLessEqual, next, best);
    best = select(taken, next, best);
    place = select(taken, emitter.constant(static_cast<double>(i), Format::kInt64), place);
    values.push_back(best);
    places.push_back(place);
    views.push_back({best.shape(), strides, i * strides[dim]});
  }
  call.returns(0, assemble(emitter, shape, std::nullopt, values, views, x.format()));
  call.returns(1, assemble(emitter, shape, std::nullopt, places, views, Format::kInt64));
}

// Points [..., p, m] and [..., r, m], as differences [..., p, r, m].
Expr differences(Call& call) {
  const Expr a = call.tensor("x1"), b = call.tensor("x2");
  if (a.rank() < 2 || b.rank() < 2 || a.count() == 0 || b.count() == 0) call.unsupported("empty points");
  Shape left = a.shape(), right = b.shape();
  left.insert(left.end() - 1, 1);
  right.insert(right.end() - 2, 1);
  return reshape(a, left) - reshape(b, right);
}

// The norms of differences along the last dimension.
void return_distances(Call& call, Expr d) {
  const double p = call.real("p", 2);
  const auto along = last_dim(d);
  const auto norm = [&] {
    if (p == 0) return sum(cast(not_equal(d, 0), call.emitter().compute()), along);
    if (p == 1) return sum(abs(d), along);
    if (p == 2) return reduce(Primitive::kNorm, d, along);  // Which has a slope at 0, as sqrt has not.
    if (std::isinf(p)) return amax(abs(d), along);
    const Expr order = call.operand("p");
    return binary(Primitive::kPow, sum(binary(Primitive::kPow, abs(d), order), along), 1.0 / order);
  };
  call.returns(reshape(norm(), call.result_shape()));
}

// What each difference gets of its distance's gradient: dy |d|^(p-1) / dist^(p-1), with the sign of d.
Expr distance_gradients(Call& call, Expr d, Expr dy, Expr dist) {
  const double p = call.real("p");
  Shape column = dist.shape();
  column.push_back(1);
  const Expr gradient = reshape(dy, column), zero = call.emitter().constant(0);
  if (p == 0) return zero * d;
  const Expr signed_gradient = select(d > 0.0, gradient, select(d < 0.0, -gradient, zero));
  if (p == 1) return signed_gradient;
  const Expr distance = reshape(dist, column);
  if (std::isinf(p)) return select(compare(Primitive::kEqual, abs(d), distance), signed_gradient, zero);
  const Expr same = equal(distance, 0), one = call.emitter().constant(1), safe = select(same, one, distance);
  if (p == 2) return select(same, zero, gradient * d / safe);
  const Expr still = equal(d, 0), length = select(still, one, abs(d));
  const auto powered = [&](Expr x) { return binary(Primitive::kPow, x, call.operand("p") - 1.0); };
  return select(logical_not(logical_and(logical_not(same), logical_not(still))), zero,
                signed_gradient * powered(length) / powered(safe));
}

void lower_cdist(Call& call) { return_distances(call, differences(call)); }

// One product of (-2a, |a|^2, 1) and (b, 1, |b|^2), whose root is taken (native/Distance.cpp).
void lower_euclidean_distances(Call& call) {
  const Expr a = call.tensor("x1"), b = call.tensor("x2");
  if (a.rank() < 2 || b.rank() < 2 || a.count() == 0 || b.count() == 0) call.unsupported("empty points");
  const auto joined = [&](const std::vector<Expr>& pieces) {
    Shape shape = pieces[0].shape();
    shape.back() += 2;
    const Shape strides = row_major_strides(shape);
    std::vector<View> views;
    std::int64_t start = 0;
    for (const Expr& piece : pieces) {
      views.push_back({piece.shape(), strides, start});
      start += piece.shape().back();
    }
    return assemble(call.emitter(), shape, std::nullopt, pieces, std::move(views), a.format());
  };
  const auto length = [&](Expr x) { return cast(sum(cast(square(x), x.format()), last_dim(x)), x.format()); };
  const auto ones = [&](Expr x) { return expand(call.emitter().constant(1, x.format()), length(x).shape()); };
  const Expr left = joined({cast(-2.0 * a, a.format()), length(a), ones(a)}), right = joined({b, ones(b), length(b)});
  const Expr squares = cast(matmul(left, transposed(right)), a.format());
  call.returns(sqrt(maximum(squares, call.emitter().constant(0))));
}

// Its name in PyTorch before 2.12 is the shorter one.
Expr given_gradient(Call& call) { return call.tensor(call.has("grad_output") ? "grad_output" : "grad"); }

// The gradient of the first points is a sum over the others.
void lower_cdist_backward(Call& call) {
  const Expr parts = distance_gradients(call, differences(call), given_gradient(call), call.tensor("cdist"));
  call.returns(reshape(sum(parts, {static_cast<std::int64_t>(parts.rank()) - 2}), call.result_shape()));
}

// All pairs of rows i < j: which, and their difference.
struct Pairs {
  Expr first, second, difference;
};

Pairs pairs_of(Call& call) {
  const Expr x = call.tensor("self");
  Emitter& emitter = call.emitter();
  const std::int64_t n = x.size(0), count = n * (n - 1) / 2;
  if (count == 0 || x.count() == 0) call.unsupported("no pairs");
  const auto numbers = [&](auto number) {
    std::vector<Expr> pieces;
    std::vector<View> views;
    for (std::int64_t i = 0, begin = 0; i + 1 < n; begin += n - 1 - i++) {
      pieces.push_back(number(i));
      views.push_back({{n - 1 - i}, {1}, begin});
    }
    return assemble(emitter, {count}, std::nullopt, pieces, std::move(views), Format::kInt64);
  };
  const auto row = [&](std::int64_t i) {
    return expand(emitter.constant(static_cast<double>(i), Format::kInt64), {n - 1 - i});
  };
  const auto later = [&](std::int64_t i) {
    return iota(emitter, {n - 1 - i}, static_cast<double>(i + 1), 1, Format::kInt64);
  };
  const Expr first = numbers(row), second = numbers(later);
  return {first, second, gather_rows(x, first) - gather_rows(x, second)};
}

void lower_pdist(Call& call) { return_distances(call, pairs_of(call).difference); }

void lower_pdist_backward(Call& call) {
  const Pairs pairs = pairs_of(call);
  const Expr parts = distance_gradients(call, pairs.difference, given_gradient(call), call.tensor("pdist"));
  const auto added = [&](Expr each, Expr rows) {
    return scatter_add(each, rows, call.result_shape().at(0), call.emitter().compute());
  };
  call.returns(added(parts, pairs.first) - added(parts, pairs.second));
}

}  // namespace

std::span<const Rule> function_rules() {
  static const Rule kRules[] = {
      {"cummax", {"default"}, lower_running_extreme<true>, kOut},
      {"cummin", {"default"}, lower_running_extreme<false>, kOut},
      {"log2", {"default"}, lower_log2, kPointwise},
      {"log10", {"default"}, lower_log10, kPointwise},
      {"exp2", {"default"}, lower_exp2, kInPlace | kOut},
      {"tan", {"default"}, lower_tan, kPointwise},
      {"sinh", {"default"}, lower_sinh, kPointwise},
      {"cosh", {"default"}, lower_cosh, kPointwise},
      {"asin", {"default"}, lower_asin, kPointwise},
      {"acos", {"default"}, lower_acos, kPointwise},
      {"atan", {"default"}, lower_atan, kPointwise},
      {"erfc", {"default"}, lower_erfc, kInPlace | kOut},
      {"asinh", {"default"}, lower_asinh, kInPlace | kOut},
      {"acosh", {"default"}, lower_acosh, kInPlace | kOut},
      {"atanh", {"default"}, lower_atanh, kInPlace | kOut},
      {"xlogy", {"Tensor", "Scalar_Self", "Scalar_Other"}, lower_xlogy, kInPlace},
      {"logaddexp", {"default"}, lower_logaddexp, kOut},
      {"prod", {"default", "dim_int"}, lower_prod},
      {"cumprod", {"default"}, lower_running<product>, kInPlace},
      {"logcumsumexp", {"default"}, lower_running<log_add_exp>},
      {"_cdist_forward", {"default"}, lower_cdist},
      {"_euclidean_dist", {"default"}, lower_euclidean_distances},
      {"_cdist_backward", {"default"}, lower_cdist_backward},
      {"_pdist_forward", {"default"}, lower_pdist},
      {"_pdist_backward", {"default"}, lower_pdist_backward},
  };
  return kRules;
}

}  // namespace plumbline
