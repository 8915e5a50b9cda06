// Reductions (ATen: native/ReduceOps.cpp, native/cpu/SumKernel.cpp).
#include <cmath>
#include <limits>

#include "server/lower/integer.h"
#include "server/lower/registry.h"

namespace plumbline {
namespace {

// Without the reduced dimensions unless keepdim asks for them.
Expr squeezed(Expr x, const std::vector<std::int64_t>& dims, bool keep) {
  if (keep) return x;
  Shape shape;
  std::size_t next = 0;
  const Shape from = x.shape();
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (next < dims.size() && dims[next] == static_cast<std::int64_t>(d)) {
      ++next;
    } else {
      shape.push_back(from[d]);
    }
  }
  return reshape(x, shape);
}

// Elements that are reduced to one.
double group_size(const Expr& x, const std::vector<std::int64_t>& dims) {
  double n = 1;
  for (std::int64_t dim : dims) n *= static_cast<double>(x.size(static_cast<std::size_t>(dim)));
  return n;
}

// `dtype=` converts the operand before anything is added.
Expr converted(Call& call) {
  const Expr x = call.tensor("self");
  const Format format = call.result_format();
  if (call.has("dtype") && is_float(format) && is_float(x.format())) return cast(x, format);
  return x;
}

void lower_sum(Call& call) {
  const Expr x = converted(call);
  const auto dims = call.dims("dim", x.rank());
  const Format format = call.result_format();
  const bool whole = is_integer(x.format()) && is_integer(format);
  const Expr made = whole ? whole_total(Primitive::kSum, x, dims, format) : sum(x, dims);
  call.returns(squeezed(made, dims, call.boolean("keepdim", false)));
}

// Missing numbers count as 0. Over several dimensions 16-bit sums are held in their format between rows.
void lower_nansum(Call& call) {
  const Expr x = converted(call);
  if (!is_float(x.format())) call.unsupported("sums of integers");
  const auto dims = call.dims("dim", x.rank());
  const Expr present = select(compare(Primitive::kNotEqual, x, x), x.emitter->constant(0, x.format()), x);
  const ComputeIn held(call.emitter(), dims.size() > 1 ? x.format() : call.emitter().compute());
  call.returns(squeezed(sum(present, dims), dims, call.boolean("keepdim", false)));
}

void lower_count_nonzero(Call& call) {
  const Expr x = cast(not_equal(call.tensor("self"), 0), Format::kInt64);
  const auto dims = call.dims("dim", x.rank());
  call.returns(squeezed(whole_total(Primitive::kSum, x, dims, Format::kInt64), dims, false));
}

// 16-bit means are taken in fp32 and rounded once (mean_out, native/ReduceOps.cpp).
void lower_mean(Call& call) {
  const Expr x = converted(call);
  const auto dims = call.dims("dim", x.rank());
  call.returns(squeezed(sum(x, dims) / group_size(x, dims), dims, call.boolean("keepdim", false)));
}

template <Primitive primitive>
Expr extreme(Expr x, const std::vector<std::int64_t>& dims) {
  return dims.empty() ? x : reduce(primitive, x, dims);
}

template <Primitive primitive>
void lower_extreme(Call& call) {
  const Expr x = call.tensor("self");
  const auto dims = call.dims("dim", x.rank());
  call.returns(squeezed(extreme<primitive>(x, dims), dims, call.boolean("keepdim", false)));
}

// The least and the largest, over one dimension or all.
void lower_least_and_largest(Call& call) {
  const Expr x = call.tensor("self");
  const auto dims = call.dims("dim", x.rank());
  const bool keep = call.boolean("keepdim", false);
  call.returns(0, squeezed(extreme<Primitive::kAmin>(x, dims), dims, keep));
  call.returns(1, squeezed(extreme<Primitive::kAmax>(x, dims), dims, keep));
}

// sum (x - mean)^2 / max(0, n - correction)
Expr variance(Call& call, Expr x, const std::vector<std::int64_t>& dims, Expr* mean_out) {
  const double n = group_size(x, dims);
  double correction = call.has("correction") ? call.real("correction") : 1;
  if (call.has("unbiased")) correction = call.boolean("unbiased", true) ? 1 : 0;
  const Expr mean = running_mean(x, dims, n);
  if (mean_out) *mean_out = mean;
  return sum(square(x - mean), dims) / std::fmax(0.0, n - correction);
}

template <bool root>
void lower_variance(Call& call) {
  const Expr x = call.tensor("self");
  const auto dims = call.dims("dim", x.rank());
  const Expr v = variance(call, x, dims, nullptr);
  call.returns(squeezed(root ? sqrt(v) : v, dims, call.boolean("keepdim", false)));
}

template <bool root>
void lower_variance_mean(Call& call) {
  const Expr x = call.tensor("self");
  const auto dims = call.dims("dim", x.rank());
  const bool keep = call.boolean("keepdim", false);
  Expr mean;
  const Expr v = variance(call, x, dims, &mean);
  call.returns(0, squeezed(root ? sqrt(v) : v, dims, keep));
  call.returns(1, squeezed(mean, dims, keep));
}

Expr norm(Expr x, double order, const std::vector<std::int64_t>& dims) {
  // Without dimensions a norm of another order than 1 and infinity is computed all the same.
  if (dims.empty() && (order == 1 || std::isinf(order))) return abs(x);
  if (dims.empty() && order == 2) return sqrt(x * x);
  if (order == 2) return reduce(Primitive::kNorm, x, dims);
  if (order == 1) return sum(abs(x), dims);
  if (order == 0) return sum(cast(not_equal(x, 0), x.emitter->compute()), dims);
  if (std::isinf(order)) return reduce(order > 0 ? Primitive::kAmax : Primitive::kAmin, abs(x), dims);
  const Expr exponent = x.emitter->constant(order), root = x.emitter->constant(1 / order);
  return binary(Primitive::kPow, sum(binary(Primitive::kPow, abs(x), exponent), dims), root);
}

void lower_norm(Call& call) {
  const Expr x = converted(call);
  if (!is_float(x.format())) call.unsupported("norm of integers");
  const double order = call.has("ord") ? call.real("ord") : call.real("p", 2);
  const auto dims = call.dims("dim", x.rank());
  call.returns(squeezed(norm(x, order, dims), dims, call.boolean("keepdim", false)));
}

// The norm of a difference, which is held in the operands' own format.
void lower_distance(Call& call) {
  const Expr a = call.tensor("self"), b = call.tensor("other"), d = cast(a - b, call.result_format());
  call.returns(reshape(norm(d, call.real("p", 2), all_dims(d)), {}));
}

// Parts along a dimension whose norm is above the limit are scaled down to it (native/cpu/RenormKernel.cpp).
void lower_renorm(Call& call) {
  const Expr x = call.tensor("self");
  const std::size_t kept = call.dim("dim", x.rank(), 0);
  std::vector<std::int64_t> dims = all_dims(x);
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(kept));
  const Expr length = norm(x, call.real("p"), dims), most = call.operand("maxnorm");
  const Expr factor = cast(most / (length + 1e-7), x.format());
  const Expr above = compare(Primitive::kGreater, length, most);
  call.returns(x * select(above, factor, call.emitter().constant(1)));
}

void lower_cumsum(Call& call) {
  const Expr x = converted(call);
  if (x.rank() == 0) {
    call.returns(x);
    return;
  }
  Attributes attributes;
  attributes.dims = {static_cast<std::int64_t>(call.dim("dim", x.rank(), 0))};
  if (is_integer(x.format()) && is_integer(call.result_format())) {
    call.returns(whole_total(Primitive::kCumsum, x, attributes.dims, call.result_format()));
    return;
  }
  call.returns(call.emitter().arithmetic(Primitive::kCumsum, {x}, x.shape(), attributes));
}

Expr truth(Expr x) { return not_equal(x, 0); }

// any = max of the truth values, all = min of them.
template <Primitive primitive>
void lower_quantifier(Call& call) {
  const Expr x = truth(call.tensor("self"));
  const auto dims = call.dims("dim", x.rank());
  Expr reduced = x;
  if (!dims.empty()) {
    reduced = reduce(primitive, x, dims);
    Node& node = call.emitter().graph().nodes[reduced.id];
    node.result = node.compute = Format::kBool;
  }
  call.returns(squeezed(reduced, dims, call.boolean("keepdim", false)));
}

}  // namespace

std::span<const Rule> reduce_rules() {
  using enum Primitive;
  static const Rule kRules[] = {
      {"sum", {"default", "dim_IntList"}, lower_sum, kOut},
      {"sum", {"IntList"}, lower_sum, kOut},
      {"nansum", {"default"}, lower_nansum, kOut},
      {"count_nonzero", {"default", "dim_IntList"}, lower_count_nonzero, kOut},
      {"mean", {"default", "dim"}, lower_mean, kOut},
      {"amax", {"default"}, lower_extreme<kAmax>, kOut},
      {"amin", {"default"}, lower_extreme<kAmin>, kOut},
      {"max", {"default"}, lower_extreme<kAmax>},
      {"min", {"default"}, lower_extreme<kAmin>},
      {"aminmax", {"default"}, lower_least_and_largest},
      {"var", {"default", "dim", "correction"}, lower_variance<false>},
      {"std", {"default", "dim", "correction"}, lower_variance<true>},
      {"var_mean", {"default", "dim", "correction"}, lower_variance_mean<false>},
      {"std_mean", {"default", "dim", "correction"}, lower_variance_mean<true>},
      {"linalg_vector_norm", {"default"}, lower_norm, kOut},
      {"norm", {"Scalar", "ScalarOpt_dim", "ScalarOpt_dtype", "ScalarOpt_dim_dtype"}, lower_norm, kForeach},
      {"dist", {"default"}, lower_distance, kOut},
      {"renorm", {"default"}, lower_renorm, kInPlace | kOut},
      {"cumsum", {"default"}, lower_cumsum, kInPlace | kOut},
      {"_is_any_true", {"default"}, lower_quantifier<kAmax>},
      {"_is_all_true", {"default"}, lower_quantifier<kAmin>},
      {"any", {"default", "dim", "dims"}, lower_quantifier<kAmax>},
      {"all", {"default", "dim", "dims"}, lower_quantifier<kAmin>},
  };
  return kRules;
}

}  // namespace plumbline
