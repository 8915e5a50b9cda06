// Normalisations (ATen: native/cpu/layer_norm_kernel.cpp, native/layer_norm.cpp, native/Normalization.cpp).
#include <algorithm>

#include "server/lower/aten/channels.h"
#include "server/lower/registry.h"
#include "server/lower/view.h"

namespace plumbline {
namespace {

// The input as rows [outer, inner], inner the normalised elements.
struct Rows {
  std::int64_t outer = 1, inner = 1;
};

Rows rows_of(Call& call, const Expr& x) {
  const auto normalized = call.integers("normalized_shape");
  const Shape shape = x.shape();
  if (normalized.empty() || normalized.size() > shape.size() ||
      !std::equal(normalized.rbegin(), normalized.rend(), shape.rbegin()))
    throw LowerError("argument 'normalized_shape': the last sizes of " + to_string(shape) + " were expected, found " +
                     to_string(normalized));
  Rows rows;
  const std::size_t split = shape.size() - normalized.size();
  for (std::size_t d = 0; d < shape.size(); ++d) (d < split ? rows.outer : rows.inner) *= shape[d];
  if (rows.inner == 0) call.unsupported("empty rows");
  return rows;
}

// (x - mean) rstd gamma + beta, row by row; also mean and rstd.
void lower_layer_norm(Call& call) {
  const Expr input = call.tensor("input");
  const Rows rows = rows_of(call, input);
  const Expr x = reshape(input, {rows.outer, rows.inner});
  const Expr mean = running_mean(x, {1}, static_cast<double>(rows.inner));
  const Expr rstd = reduce(Primitive::kVarianceRsqrt, x, {1}, call.real("eps"));
  Expr y = (x - mean) * rstd;
  if (const auto weight = call.optional_tensor("weight")) y = y * reshape(*weight, {1, rows.inner});
  if (const auto bias = call.optional_tensor("bias")) y = y + reshape(*bias, {1, rows.inner});
  call.returns(0, reshape(y, input.shape()));
  if (call.wants(1)) call.returns(1, reshape(mean, call.result_shape(1)));
  if (call.wants(2)) call.returns(2, reshape(rstd, call.result_shape(2)));
}

// LayerNormBackwardKernelImpl: dx = a dy gamma + b x + c with a = rstd, b = (mean sum(dy gamma) - sum(dy gamma x))
// a^3 / n, c = -b mean - a sum(dy gamma) / n. Cancellation between the terms is the kernel's own.
void lower_layer_norm_backward(Call& call) {
  const Expr input = call.tensor("input");
  const Rows rows = rows_of(call, input);
  const Shape flat{rows.outer, rows.inner}, column{rows.outer, 1}, row{1, rows.inner};
  const Expr x = reshape(input, flat), dy = reshape(call.tensor("grad_out"), flat);
  const Expr mean = reshape(call.tensor("mean"), column), rstd = reshape(call.tensor("rstd"), column);
  const auto weight = call.optional_tensor("weight");
  if (call.wants(0)) {
    const Expr weighted = weight ? dy * reshape(*weight, row) : dy;
    const double scale = 1.0 / static_cast<double>(rows.inner);
    const Expr ds = sum(weighted * x, {1}), db = sum(weighted, {1});
    const Expr b = (db * mean - ds) * rstd * rstd * rstd * scale;
    const Expr c = -b * mean - db * rstd * scale;
    call.returns(0, reshape(rstd * weighted + b * x + c, input.shape()));
  }
  // The sums over rows are kept in the input's format between rows, 16-bit ones too.
  const auto over_rows = [&](Expr terms) {
    const Format outer = call.emitter().compute();
    call.emitter().set_compute(x.format());
    const Expr total = sum(terms, {0});
    call.emitter().set_compute(outer);
    return total;
  };
  if (call.wants(1)) {
    const Expr normalized = rstd * x + -rstd * mean;
    call.returns(1, reshape(over_rows(dy * normalized), call.result_shape(1)));
  }
  if (call.wants(2)) call.returns(2, reshape(over_rows(dy), call.result_shape(2)));
}

// y = x rstd weight with rstd = (mean(x^2) + eps)^-1/2 (rms_norm_composite, native/layer_norm.cpp). By default eps is
// the distance of 1 from the next number of the compute format.
void lower_rms_norm(Call& call) {
  const Expr input = call.tensor("input");
  const Rows rows = rows_of(call, input);
  const Expr x = reshape(input, {rows.outer, rows.inner});
  const double eps = call.has("eps") ? call.real("eps") : 2 * unit_roundoff(call.emitter().compute());
  const Expr mean_square = sum(x * x, {1}) / static_cast<double>(rows.inner);
  const Expr rstd = unary(Primitive::kRsqrt, mean_square + eps);
  Expr y = x * rstd;
  if (const auto weight = call.optional_tensor("weight")) y = y * reshape(*weight, {1, rows.inner});
  call.returns(0, reshape(y, input.shape()));
  if (call.wants(1)) call.returns(1, reshape(rstd, call.result_shape(1)));
}

// Rows [n groups, channels of a group * positions] (native/cpu/group_norm_kernel.cpp).
struct Groups {
  std::int64_t n, channels, positions, groups;
  Shape rows() const { return {n * groups, channels / groups * positions}; }
  Shape cells() const { return {n, groups, channels / groups, positions}; }
  Shape by_group() const { return {n, groups, 1, 1}; }
  Shape by_channel() const { return {1, groups, channels / groups, 1}; }
};

Groups groups_of(Call& call, const Expr& x) {
  const Groups g{call.integer("N", 0), call.integer("C", 0), call.integer("HxW", 0), call.integer("group", 0)};
  if (g.n < 1 || g.channels < 1 || g.positions < 1 || g.groups < 1) call.unsupported("empty rows");
  if (g.channels % g.groups != 0 || x.rank() < 2 || x.size(0) != g.n || x.size(1) != g.channels ||
      x.count() / g.n / g.channels != g.positions)
    throw LowerError("argument 'input': N, C, HxW and groups that fit " + to_string(x.shape()) + " were expected");
  return g;
}

// 1 / sqrt(var + eps) of each group, and its mean. Where channels lie next to each other the CPU's kernel takes the
// variance as a difference of sums.
std::pair<Expr, Expr> moments(Call& call, const Groups& g, Expr rows) {
  const auto n = static_cast<double>(g.rows()[1]);
  const double eps = call.real("eps");
  if (!call.channels_last("input"))
    return {running_mean(rows, {1}, n), reduce(Primitive::kVarianceRsqrt, rows, {1}, eps)};
  const double each = 1 / n;
  const Expr mean = sum(rows, {1}) * each;
  const Expr variance = maximum(sum(rows * rows, {1}) * each - mean * mean, call.emitter().constant(0));
  return {mean, unary(Primitive::kRsqrt, variance + eps)};
}

// y = a x + (beta - a mean), a = rstd gamma.
void lower_group_norm(Call& call) {
  const Expr input = call.tensor("input");
  const Groups g = groups_of(call, input);
  const Expr rows = reshape(input, g.rows());
  const auto [row_means, row_rstds] = moments(call, g, rows);
  const Expr mean = reshape(row_means, g.by_group()), rstd = reshape(row_rstds, g.by_group());
  const auto weight = call.optional_tensor("weight"), bias = call.optional_tensor("bias");
  const Expr a = weight ? rstd * reshape(*weight, g.by_channel()) : rstd;
  const Expr shift = bias ? -a * mean + reshape(*bias, g.by_channel()) : -a * mean;
  call.returns(0, reshape(a * reshape(input, g.cells()) + shift, input.shape()));
  if (call.wants(1)) call.returns(1, reshape(mean, call.result_shape(1)));
  if (call.wants(2)) call.returns(2, reshape(rstd, call.result_shape(2)));
}

// dx = a dy + b x + c, b = (mean sum(dy gamma) - sum(dy x gamma)) rstd^3 / n, c = -b mean - sum(dy gamma) rstd / n;
// sums over positions first, then over the group's channels.
void lower_group_norm_backward(Call& call) {
  const Expr input = call.tensor("input");
  const Groups g = groups_of(call, input);
  const Expr x = reshape(input, g.cells()), dy = reshape(call.tensor("grad_out"), g.cells());
  const Expr mean = reshape(call.tensor("mean"), g.by_group()), rstd = reshape(call.tensor("rstd"), g.by_group());
  const Expr ds = sum(dy * x, {3}), db = sum(dy, {3});
  const auto weight = call.optional_tensor("weight");
  if (call.wants(0)) {
    const double scale = 1.0 / static_cast<double>(g.rows()[1]);
    const auto weighted = [&](Expr e) { return weight ? e * reshape(*weight, g.by_channel()) : e; };
    const Expr group_ds = sum(weighted(ds), {2}), group_db = sum(weighted(db), {2});
    const Expr b = (group_db * mean - group_ds) * rstd * rstd * rstd * scale;
    const Expr c = -b * mean - group_db * rstd * scale;
    call.returns(0, reshape(weighted(rstd) * dy + b * x + c, input.shape()));
  }
  if (call.wants(1)) call.returns(1, reshape(sum((ds - db * mean) * rstd, {0}), call.result_shape(1)));
  if (call.wants(2)) call.returns(2, reshape(sum(db, {0}), call.result_shape(2)));
}

bool in_one_layout(Call& call, std::initializer_list<std::string_view> names) {
  const auto [rows, channels_last] = memory_order(call, names);
  return rows || channels_last;
}

// Where memory is not contiguous, kernels round 16-bit numbers after each step, but for what moments in fp32 widen.
Format stepwise_format(Call& call, const Expr& x, Format moments, std::initializer_list<std::string_view> names) {
  const bool narrow = compute_format(x.format()) != x.format();
  return narrow && !in_one_layout(call, names) ? promote(x.format(), moments) : call.emitter().compute();
}

// cuDNN's operations compute the same, under other names.
const char* either(Call& call, const char* name, const char* of_cudnn) { return call.has(name) ? name : of_cudnn; }

// Training normalises with the batch's moments and moves the running ones; evaluation uses the running ones.
void lower_batch_norm(Call& call) {
  const Expr x = call.tensor("input");
  if (x.rank() < 2) call.unsupported("fewer than two dimensions");
  const bool training = call.boolean("training", call.base() == "_native_batch_norm_legit");
  const Shape channels{x.size(1)};
  const auto running_mean = call.optional_tensor("running_mean"), running_var = call.optional_tensor("running_var");
  const double eps = call.real(either(call, "eps", "epsilon"));
  const auto steps_of = [&](Format moments) { return stepwise_format(call, x, moments, {"input"}); };
  Expr mean, rstd;
  Format inner{};
  if (training) {
    const auto dims = batch_dims(x);
    const double n = static_cast<double>(x.count() / std::max<std::int64_t>(1, x.size(1)));
    mean = sum(x, dims) / n;
    rstd = reduce(Primitive::kVarianceRsqrt, x, dims, eps);
    const Format saved = call.wants(1) ? call.result_format(1) : call.emitter().compute();
    inner = steps_of(saved);
    const auto squares = [&] {
      const ComputeIn steps(call.emitter(), inner);
      return square(x - mean);
    };
    if (saved != call.emitter().compute()) {  // 16-bit moments are rounded before they are used.
      mean = cast(mean, saved);
      const Expr variance = sum(squares(), dims) / n;
      const ComputeIn steps(call.emitter(), inner);
      rstd = 1.0 / held(sqrt, cast(variance, saved) + eps);
    }
    if (running_mean && running_var) {
      const Expr unbiased = sum(squares(), dims) / (n - 1);
      // In the running moments' own format, step by step.
      const auto moved = [&](Expr running, Expr moment) {
        const ComputeIn own(call.emitter(), running.format());
        const Expr momentum = call.operand(either(call, "momentum", "exponential_average_factor"));
        return momentum * reshape(moment, channels) + (1.0 - momentum) * running;
      };
      call.writes("running_mean", moved(*running_mean, mean));
      call.writes("running_var", moved(*running_var, unbiased));
    }
    if (call.wants(1)) call.returns(1, reshape(mean, channels));
    if (call.wants(2)) call.returns(2, reshape(rstd, channels));
  } else {
    if (!running_mean || !running_var) call.unsupported("evaluation without running moments");
    inner = steps_of(running_mean->format());
    mean = per_channel(*running_mean, x);
    const ComputeIn steps(call.emitter(), inner);
    rstd = 1.0 / held(sqrt, per_channel(*running_var, x) + eps);
    // They stay as they are, and the saved moments are empty.
    call.writes("running_mean", *running_mean);
    call.writes("running_var", *running_var);
    for (std::size_t i : {1, 2})
      if (call.wants(i) && count(call.result_shape(i)) == 0)
        call.returns(i, expand(call.emitter().constant(0), call.result_shape(i)));
  }
  const auto weight = call.optional_tensor("weight"), bias = call.optional_tensor("bias");
  if (inner != call.emitter().compute()) {  // ((x - mean) rstd) weight + bias, each step rounded.
    const ComputeIn steps(call.emitter(), inner);
    const Expr normal = (x - mean) * rstd;
    const Expr scaled = weight ? normal * per_channel(*weight, x) : normal;
    return call.returns(0, bias ? scaled + per_channel(*bias, x) : scaled);
  }
  // x a + (bias - mean a), a = rstd weight: not centred, so that a large mean costs digits.
  const Expr a = weight ? rstd * per_channel(*weight, x) : rstd;
  call.returns(0, x * a + (bias ? per_channel(*bias, x) - mean * a : -(mean * a)));
}

// batch_norm_backward_cpu: training dx = (dy - mean(dy) - (x - mean) rstd^2 mean(dy (x - mean))) rstd weight.
void lower_batch_norm_backward(Call& call) {
  const Expr dy = call.tensor(either(call, "grad_out", "grad_output")), x = call.tensor("input");
  if (x.rank() < 2) call.unsupported("fewer than two dimensions");
  const bool training = call.boolean("train", true);
  const Shape channels{x.size(1)};
  Expr mean, rstd;
  if (training) {
    mean = per_channel(call.tensor("save_mean"), x);
    rstd = per_channel(call.tensor(either(call, "save_invstd", "save_var")), x);
  } else {
    mean = per_channel(call.tensor("running_mean"), x);
    rstd = 1.0 / sqrt(per_channel(call.tensor("running_var"), x) + call.real("eps"));
  }
  const auto weight = call.optional_tensor("weight");
  const bool scattered = compute_format(x.format()) != x.format() && !in_one_layout(call, {"input", "grad_out"});
  const Format inner = stepwise_format(call, x, mean.format(), {"input", "grad_out"});
  const Expr added = sum_of_gradients(call, x, dy, false), total = scattered ? cast(added, x.format()) : added;
  const auto stepwise = [&](auto make) {
    const ComputeIn steps(call.emitter(), inner);
    return make();
  };
  const Expr centred = stepwise([&] { return x - mean; });
  const Expr product = sum_of_gradients(call, x, stepwise([&] { return centred * dy; }), true);
  if (call.wants(0)) {
    Expr dx = dy;
    if (training) {
      const double n = static_cast<double>(x.count() / std::max<std::int64_t>(1, x.size(1)));
      const Format own = scattered ? x.format() : call.emitter().compute();
      const Expr slope = cast(cast(product, own) * rstd * rstd / n, own);
      const Expr shift = cast(total / n, own), tilt = cast(centred * slope, own);
      const ComputeIn narrow(call.emitter(), own);
      dx = dy - shift - tilt;
    }
    const ComputeIn moments(call.emitter(), inner);
    dx = dx * rstd;
    call.returns(0, weight ? dx * per_channel(*weight, x) : dx);
  }
  if (call.wants(1)) call.returns(1, reshape(product * rstd, channels));
  if (call.wants(2)) call.returns(2, reshape(total, channels));
}

std::vector<std::int64_t> all_but(std::size_t dim, const Expr& x) {
  std::vector<std::int64_t> dims = all_dims(x);
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(dim));
  return dims;
}

// w = v (g / |v|), |v| along all dimensions but one (native/cpu/WeightNormKernel.cpp).
void lower_weight_norm(Call& call) {
  const Expr v = call.tensor("v"), g = call.tensor("g");
  if (v.rank() == 0) call.unsupported("shapes");
  const Expr norm = reduce(Primitive::kNorm, v, all_but(call.dim("dim", v.rank(), 0), v));
  // Kernels divide either number by the norm; CUDA's multiply by its rounded reciprocal.
  call.returns(0, v * (reshape(g, norm.shape()) * unary(Primitive::kReciprocal, norm)));
  if (call.wants(1)) call.returns(1, reshape(norm, call.result_shape(1)));
}

// dg = sum(dw v) / |v|; dv = a dw - b v with a = g / |v|, b = a dg / |v|.
void lower_weight_norm_backward(Call& call) {
  const Expr dw = call.tensor("grad_w"), v = call.tensor("saved_v");
  if (v.rank() == 0) call.unsupported("shapes");
  const Expr sums = sum(dw * v, all_but(call.dim("dim", v.rank(), 0), v));
  const Expr norm = reshape(call.tensor("saved_norms"), sums.shape());
  const Expr dg = sums / norm, a = reshape(call.tensor("saved_g"), sums.shape()) / norm;
  if (call.wants(0)) call.returns(0, a * dw - a * dg / norm * v);
  if (call.wants(1)) call.returns(1, reshape(dg, call.result_shape(1)));
}

}  // namespace

std::span<const Rule> norm_rules() {
  static const Rule kRules[] = {
      {"_weight_norm_interface", {"default"}, lower_weight_norm},
      {"_weight_norm_interface_backward", {"default"}, lower_weight_norm_backward},
      {"native_layer_norm", {"default"}, lower_layer_norm},
      {"native_layer_norm_backward", {"default"}, lower_layer_norm_backward},
      {"_fused_rms_norm", {"default"}, lower_rms_norm},
      {"native_group_norm", {"default"}, lower_group_norm},
      {"native_group_norm_backward", {"default"}, lower_group_norm_backward},
      {"native_batch_norm", {"default"}, lower_batch_norm},
      {"_native_batch_norm_legit", {"default", "no_stats"}, lower_batch_norm},
      {"_native_batch_norm_legit_no_training", {"default"}, lower_batch_norm},
      {"native_batch_norm_backward", {"default"}, lower_batch_norm_backward},
      {"cudnn_batch_norm", {"default"}, lower_batch_norm},
      {"cudnn_batch_norm_backward", {"default"}, lower_batch_norm_backward},
  };
  return kRules;
}

}  // namespace plumbline
