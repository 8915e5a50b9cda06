// Functions with cases of their own (ATen: native/cpu/UnaryOpsKernel.cpp, BinaryOpsKernel.cpp,
// RangeFactoriesKernel.cpp, CrossKernel.cpp). Loops of 16-bit elements round each step to them, or compute in fp32:
// what is allowed covers both.
#include <cmath>
#include <limits>
#include <numbers>

#include "server/lower/operands.h"
#include "server/lower/registry.h"
#include "server/lower/view.h"

namespace plumbline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void lower_deg2rad(Call& call) { call.returns(call.tensor("self") * (std::numbers::pi / 180)); }
void lower_rad2deg(Call& call) { call.returns(call.tensor("self") * (180 / std::numbers::pi)); }

void lower_frac(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(x - unary(Primitive::kTrunc, x));
}

// sin(pi x) / (pi x), and 1 at 0.
void lower_sinc(Call& call) {
  const Expr x = call.tensor("self"), zero = equal(x, 0), one = call.emitter().constant(1);
  const Expr product = select(zero, one, x * std::numbers::pi);
  call.returns(select(zero, one, unary(Primitive::kSin, product) / product));
}

// log(z / (1 - z)), z = x or, with an eps, x between eps and 1 - eps.
void lower_logit(Call& call) {
  Expr z = call.tensor("self");
  const ComputeIn own(call.emitter(), call.result_format());
  if (call.has("eps")) {
    const Expr x = z, low = call.operand("eps"), high = 1.0 - low;
    z = select(compare(Primitive::kLess, x, low), low, select(compare(Primitive::kGreater, x, high), high, x));
  }
  call.returns(held(log, z / (1.0 - z)));
}

// dy / (x (1 - x)); beyond its domain, or its eps, there is no derivative.
void lower_logit_backward(Call& call) {
  const Expr x = call.tensor("self"), dy = call.tensor("grad_output");
  Emitter& emitter = call.emitter();
  const ComputeIn own(emitter, call.result_format());
  const bool clamped = call.has("eps");
  const Expr low = clamped ? call.operand("eps") : emitter.constant(0);
  const Expr outside =
      compare(Primitive::kLogicalOr, compare(Primitive::kLess, x, low), compare(Primitive::kGreater, x, 1.0 - low));
  call.returns(select(outside, emitter.constant(clamped ? 0 : kNaN), dy / (x * (1.0 - x))));
}

// log2(2^a + 2^b)
void lower_logaddexp2(Call& call) {
  const Format common = common_format(call);
  const Expr a = held(call, "self", common), b = held(call, "other", common);
  const Expr same = logical_and(equal(abs(a), kInfinity), compare(Primitive::kEqual, a, b));
  const Expr distance = select(same, call.emitter().constant(0), abs(a - b));
  const Expr more = log1p(exp(-distance * std::numbers::ln2)) / std::numbers::ln2;
  call.returns(select(same, a, maximum(a, b) + more));
}

// -x log x, 0 at 0.
void lower_entr(Call& call) {
  const Expr x = call.tensor("self");
  Emitter& emitter = call.emitter();
  const ComputeIn own(emitter, call.result_format());
  const Expr positive = x > 0.0, safe = select(positive, x, emitter.constant(1));
  const Expr below = select(x < 0.0, emitter.constant(-kInfinity), emitter.constant(0));
  const Expr outside = select(compare(Primitive::kNotEqual, x, x), x, below);
  call.returns(select(positive, -x * held(log, safe), outside));
}

// 0 where self is 0, otherwise self log(1 + other).
void lower_xlog1py(Call& call) {
  const ComputeIn own(call.emitter(), call.result_format());
  const Expr self = call.operand("self"), other = call.operand("other");
  const Expr zero = logical_and(equal(self, 0), compare(Primitive::kEqual, other, other));
  const Expr none = call.emitter().constant(0);
  call.returns(select(zero, none, self * held(log1p, select(zero, none, other))));
}

// base^(start + i step)
void lower_logspace(Call& call) {
  const double start = call.real("start"), end = call.real("end");
  const Shape shape = call.result_shape();
  if (!is_float(call.result_format()) || compute_format(call.result_format()) != call.result_format())
    call.unsupported("16-bit or integer exponents");
  const std::int64_t steps = count(shape);
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  const Expr exponent = iota(call.emitter(), shape, start, step, call.result_format());
  call.returns(binary(Primitive::kPow, call.emitter().constant(call.real("base", 10)), exponent));
}

// beta self + alpha vec1 vec2^T
void lower_addr(Call& call) {
  const Expr first = call.tensor("vec1"), second = call.tensor("vec2");
  if (!is_float(call.result_format()) || first.rank() != 1 || second.rank() != 1) call.unsupported("integers");
  const ComputeIn own(call.emitter(), call.result_format());
  Expr product = reshape(first, {first.count(), 1});
  if (call.has("alpha") && call.known_number("alpha") != 1.0) product = call.operand("alpha") * product;
  product = product * reshape(second, {1, second.count()});
  const std::optional<double> beta = call.has("beta") ? call.known_number("beta") : 1.0;
  if (beta == 0.0) {
    call.returns(product);
    return;
  }
  const Expr self = expand(call.tensor("self"), product.shape());
  call.returns((beta == 1.0 ? self : call.operand("beta") * self) + product);
}

// Vectors of three along a dimension give a_i b_j - a_j b_i.
void lower_cross(Call& call) {
  const Shape shape = call.result_shape();
  const std::size_t dim = call.dim("dim", shape.size(), -1);
  if (shape.empty() || !is_float(call.result_format())) call.unsupported("shapes");
  const Expr a = expand(call.tensor("self"), shape), b = expand(call.tensor("other"), shape);
  const ComputeIn own(call.emitter(), call.result_format());
  const Shape strides = row_major_strides(shape);
  std::vector<Expr> pieces;
  std::vector<View> views;
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto at = [&](Expr x, std::int64_t k) { return narrow(x, dim, k % 3, 1); };
    pieces.push_back(at(a, i + 1) * at(b, i + 2) - at(a, i + 2) * at(b, i + 1));
    views.push_back({pieces.back().shape(), strides, i * strides[dim]});
  }
  call.returns(assemble(call.emitter(), shape, std::nullopt, pieces, std::move(views), call.result_format()));
}

}  // namespace

std::span<const Rule> special_rules() {
  static const Rule kRules[] = {
      {"deg2rad", {"default"}, lower_deg2rad, kInPlace | kOut},
      {"rad2deg", {"default"}, lower_rad2deg, kInPlace | kOut},
      {"frac", {"default"}, lower_frac, kPointwise},
      {"sinc", {"default"}, lower_sinc, kInPlace | kOut},
      {"logit", {"default"}, lower_logit, kInPlace | kOut},
      {"logit_backward", {"default"}, lower_logit_backward},
      {"logaddexp2", {"default"}, lower_logaddexp2, kOut},
      {"special_entr", {"default"}, lower_entr, kOut},
      {"special_xlog1py", {"default", "self_scalar", "other_scalar"}, lower_xlog1py, kOut},
      {"logspace", {"default"}, lower_logspace, kOut | kObserved},
      {"addr", {"default"}, lower_addr, kInPlace | kOut},
      {"linalg_cross", {"default"}, lower_cross, kOut},
  };
  return kRules;
}

}  // namespace plumbline
