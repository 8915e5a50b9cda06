// Matrix products (ATen: native/LinearAlgebra.cpp, native/Linear.cpp).
#include <algorithm>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

constexpr std::int64_t kBatchMax = 256;  // So many products are rounded one by one.

void lower_mm(Call& call) { call.returns(matmul(call.tensor("self"), call.tensor("mat2"))); }

// alpha, where it is not 1, and beta self, where beta is not 0. 16-bit kernels may hold them in their own format.
struct Scaled {
  std::optional<Expr> alpha, bias;
};
Scaled scaled(Call& call, Format own) {
  Scaled s;
  if (call.has("alpha") && call.known_number("alpha") != 1.0) s.alpha = call.operand("alpha", own);
  const std::optional<double> beta = call.has("beta") ? call.known_number("beta") : 1.0;
  if (beta != 0.0) {
    const Expr self = call.tensor("self");
    s.bias = beta == 1.0 ? self : cast(call.operand("beta", own) * self, own);
  }
  return s;
}

// alpha a b + beta self. BLAS libraries begin the sum with the bias, others end with it. beta = 0 ignores
// it, NaN in it included.
void with_bias(Call& call, Expr a, Expr b) {
  const Format own = is_float(call.result_format()) ? call.result_format() : call.emitter().compute();
  const Shape shape = call.result_shape();
  Scaled s = scaled(call, own);
  if (s.bias) {
    Shape product = a.shape();
    product.back() = b.shape().back();
    s.bias = reshape(expand(*s.bias, shape), product);
  }
  call.returns(reshape(matmul(a, b, s.bias, s.alpha), shape));
}

void lower_addmm(Call& call) { with_bias(call, call.tensor("mat1"), call.tensor("mat2")); }
void lower_baddbmm(Call& call) { with_bias(call, call.tensor("batch1"), call.tensor("batch2")); }

Expr column(Expr vector) { return reshape(vector, {vector.count(), 1}); }

void lower_mv(Call& call) {
  const Expr product = matmul(call.tensor("self"), column(call.tensor("vec")));
  call.returns(reshape(product, {product.count()}));
}

// In 16 bits the product with a matrix that lies by columns is rounded before the bias is added.
void lower_addmv(Call& call) {
  const Expr a = call.tensor("mat"), b = column(call.tensor("vec"));
  const Format own = call.result_format();
  if (!is_float(own) || own == call.emitter().compute()) return with_bias(call, a, b);
  const Scaled s = scaled(call, own);
  Expr product = cast(matmul(a, b, std::nullopt, s.alpha), own);
  product = reshape(product, {product.count()});
  call.returns(s.bias ? product + *s.bias : product);
}

void lower_dot(Call& call) {
  const Expr a = call.tensor("self");
  const Expr b = call.tensor(call.base() == "vdot" ? "other" : "tensor");
  call.returns(reshape(matmul(reshape(a, {1, a.count()}), column(b)), {}));
}

// The sum of a batch's products. In 16 bits each is rounded before the next is added.
void lower_addbmm(Call& call) {
  const Expr a = call.tensor("batch1"), b = call.tensor("batch2");
  if (a.rank() != 3 || b.rank() != 3) call.unsupported("shapes");
  const std::int64_t batch = a.size(0), n = a.size(1), m = a.size(2), p = b.size(2);
  if (call.result_format() == call.emitter().compute() || batch == 0)
    return with_bias(call, reshape(permute(a, {1, 0, 2}), {n, batch * m}), reshape(b, {batch * m, p}));
  if (batch > kBatchMax) call.unsupported("so many products of 16-bit numbers");
  const Format own = call.result_format();
  const Scaled s = scaled(call, own);
  std::optional<Expr> total;
  if (s.bias) total = expand(*s.bias, {n, p});
  for (std::int64_t i = 0; i < batch; ++i) {
    const Expr left = reshape(narrow(a, 0, i, 1), {n, m}), right = reshape(narrow(b, 0, i, 1), {m, p});
    total = cast(matmul(left, right, total, s.alpha), own);
  }
  call.returns(*total);
}

// The sum over some dimensions of the product of three tensors, in which dimensions of 1 are put. In 16 bits three sums
// are rounded each: over what the third tensor does not have, over what is left but one dimension, and over that one.
void lower_trilinear(Call& call) {
  const auto spread = [&](const char* name, const char* dims) {
    const Expr x = call.tensor(name);
    std::vector<std::int64_t> put = call.integers(dims);
    std::ranges::sort(put);
    Shape shape = x.shape();
    for (const std::int64_t dim : put) {
      if (dim < 0 || dim > static_cast<std::int64_t>(shape.size())) call.unsupported("shapes");
      shape.insert(shape.begin() + dim, 1);
    }
    return reshape(x, shape);
  };
  const Expr first = spread("i1", "expand1"), second = spread("i2", "expand2"), third = spread("i3", "expand3");
  std::vector<std::int64_t> over = call.integers("sumdim");
  std::ranges::sort(over);
  const Format own = call.result_format();
  if (own == call.emitter().compute())
    return call.returns(reshape(sum(first * second * third, over), call.result_shape()));
  const std::vector<std::int64_t> put = call.integers("expand3");
  const std::int64_t last = call.integer("unroll_dim", 1);
  std::vector<std::int64_t> early, late;
  for (const std::int64_t dim : over)
    if (dim != last) (std::ranges::find(put, dim) != put.end() ? early : late).push_back(dim);
  Expr made = cast(sum(first * second, early), own);
  made = cast(sum(made * third, late), own);
  if (std::ranges::find(over, last) != over.end()) {
    const ComputeIn narrow_format(call.emitter(), own);
    made = sum(made, {last});
  }
  call.returns(reshape(made, call.result_shape()));
}

// x W^T + bias, the leading dimensions of x taken as rows.
void lower_linear(Call& call) {
  const Expr x = call.tensor("input"), weight = call.tensor("weight");
  if (x.rank() == 0 || weight.rank() != 2) call.unsupported("shapes");
  Shape shape = x.shape();
  const std::int64_t width = shape.back();
  if (width == 0) call.unsupported("an empty product");
  const Expr rows = reshape(x, {x.count() / width, width});
  const Expr out = matmul(rows, transposed(weight), call.optional_tensor("bias"));
  shape.back() = weight.size(0);
  call.returns(reshape(out, shape));
}

// Products of fp8 elements, times a scale for each matrix or for each row of a and column of b, plus bias.
void lower_scaled_mm(Call& call) {
  const Expr a = call.tensor("self"), b = call.tensor("mat2");
  if (a.rank() != 2 || b.rank() != 2) call.unsupported("shapes");
  if (call.has("scale_result")) call.unsupported("a scale of the result");
  const auto scale = [&](const char* name, const Shape& of_lines) {
    const Expr given = call.tensor(name);
    if (given.format() != Format::kFloat32) call.unsupported("scales of blocks");
    if (given.count() == 1) return reshape(given, {});
    if (given.shape() != of_lines) call.unsupported("scales of blocks");
    return given;
  };
  Expr out = matmul(a, b) * scale("scale_a", {a.size(0), 1}) * scale("scale_b", {1, b.size(1)});
  if (const auto bias = call.optional_tensor("bias")) out = out + *bias;
  call.returns(out);
}

}  // namespace

std::span<const Rule> matmul_rules() {
  static const Rule kRules[] = {
      {"mm", {"default", "dtype"}, lower_mm, kOut},
      {"bmm", {"default", "dtype"}, lower_mm, kOut},
      {"addmm", {"default", "dtype"}, lower_addmm, kInPlace | kOut},
      {"baddbmm", {"default", "dtype"}, lower_baddbmm, kInPlace | kOut},
      {"addbmm", {"default"}, lower_addbmm, kInPlace | kOut},
      {"_trilinear", {"default"}, lower_trilinear, kOut},
      {"mv", {"default"}, lower_mv, kOut},
      {"addmv", {"default"}, lower_addmv, kInPlace | kOut},
      {"dot", {"default"}, lower_dot, kOut},
      {"vdot", {"default"}, lower_dot, kOut},
      {"linear", {"default"}, lower_linear, kOut},
      {"_scaled_mm", {"default"}, lower_scaled_mm, kOut},
  };
  return kRules;
}

}  // namespace plumbline
