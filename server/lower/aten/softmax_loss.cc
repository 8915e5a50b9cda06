// Softmax and losses (ATen: native/SoftMax.cpp, native/LossNLL.cpp, native/Loss.cpp).
#include <limits>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

enum Reduction : std::int64_t { kNone = 0, kMean = 1, kSum = 2 };

// A number alone, as a row of one.
Expr row(Expr x) { return x.rank() == 0 ? reshape(x, {1}) : x; }

// x with `dim` exchanged with the last one. Its own inverse.
Expr last(Expr x, std::size_t dim) { return x.rank() == 0 ? x : exchanged(x, dim, x.rank() - 1); }

// 16-bit numbers in 16-bit results: along the last dimension the sum and its logarithm are held in their format, along
// another one the exponentials, but for those of whole vectors (native/cpu/SoftMaxKernel.cpp).
Expr narrow_softmax(Expr x, std::int64_t dim) {
  const Expr e = exp(x - amax(x, {dim}));
  return cast(e, x.format()) / sum(e, {dim});
}
Expr narrow_log_softmax(Expr x, std::int64_t dim) {
  const Expr shifted = x - amax(x, {dim}), total = cast(sum(exp(shifted), {dim}), x.format());
  return shifted - cast(log(total), x.format());
}

template <Primitive primitive>
void lower_softmax(Call& call) {
  const Expr self = row(call.tensor("self"));
  const Expr x = is_float(self.format()) ? self : cast(self, call.result_format());
  const std::size_t dim = call.dim("dim", x.rank(), -1);
  const auto returns = [&](Expr made) { call.returns(reshape(made, call.result_shape())); };
  const bool narrow = x.format() == call.result_format() && compute_format(x.format()) != x.format();
  if (narrow && (primitive == Primitive::kLogSoftmax) == (dim + 1 == x.rank())) {
    const auto along = static_cast<std::int64_t>(dim);
    returns(primitive == Primitive::kSoftmax ? narrow_softmax(x, along) : narrow_log_softmax(x, along));
    return;
  }
  returns(last(unary(primitive, last(x, dim)), dim));
}

// Rows of -inf alone give 0.
void lower_safe_softmax(Call& call) {
  const Expr x = call.tensor("self");
  if (x.rank() == 0) call.unsupported("no dimension");
  Emitter& emitter = call.emitter();
  const std::size_t dim = call.dim("dim", x.rank(), -1);
  const Expr rows = last(cast(x, call.result_format()), dim);
  const Expr empty = equal(amax(rows, last_dim(rows)), -std::numeric_limits<double>::infinity());
  const Expr safe = select(empty, emitter.constant(0), rows);
  call.returns(last(select(empty, emitter.constant(0), unary(Primitive::kSoftmax, safe)), dim));
}

// dx = (dy - sum(dy y)) y
void lower_softmax_backward(Call& call) {
  const Expr dy = row(call.tensor("grad_output")), y = row(call.tensor("output"));
  const std::int64_t dim = static_cast<std::int64_t>(call.dim("dim", y.rank(), -1));
  call.returns(reshape((dy - sum(dy * y, {dim})) * y, call.result_shape()));
}

// dx = dy - exp(y) sum(dy)
void lower_log_softmax_backward(Call& call) {
  const Expr dy = row(call.tensor("grad_output")), y = row(call.tensor("output"));
  const std::int64_t dim = static_cast<std::int64_t>(call.dim("dim", y.rank(), -1));
  call.returns(reshape(dy - exp(y) * sum(dy, {dim}), call.result_shape()));
}

// max + log(sum exp(x - max)), a max of infinity taken as 0 (native/ReduceOps.cpp); operations of their own, whose
// results are held in the elements' format.
void lower_logsumexp(Call& call) {
  const Expr self = row(call.tensor("self"));
  const Expr x = is_float(self.format()) ? self : cast(self, call.result_format());
  Emitter& emitter = call.emitter();
  const auto dims = call.dims("dim", x.rank());
  const Expr largest = amax(x, dims);
  const Expr infinite = equal(abs(largest), std::numeric_limits<double>::infinity());
  const Expr shift = select(infinite, emitter.constant(0), largest);
  const Expr e = cast(exp(cast(x - shift, x.format())), x.format()), total = cast(sum(e, dims), x.format());
  call.returns(reshape(cast(log(total), x.format()) + shift, call.result_shape()));
}

// Where the targets of [n, c, s...] log probabilities lie in their row-major elements.
struct Targets {
  std::int64_t rows = 1, classes = 1, positions = 1;  // n, c, product of s.
  Expr valid;                                         // [n * positions], false where ignored.
  Expr label;                                         // Class, 0 where ignored.
  Expr index;                                         // Element of the log probabilities.
};

Targets targets_of(Call& call, const Expr& scores) {
  Emitter& emitter = call.emitter();
  Targets t;
  const Shape shape = scores.shape();
  if (shape.empty()) call.unsupported("scores without classes");
  const std::size_t class_dim = shape.size() == 1 ? 0 : 1;
  t.classes = shape[class_dim];
  if (class_dim == 1) t.rows = shape[0];
  for (std::size_t d = class_dim + 1; d < shape.size(); ++d) t.positions *= shape[d];
  const std::int64_t n = t.rows * t.positions;
  const Expr target = reshape(call.tensor("target"), {n});
  const Format outer = emitter.compute();
  emitter.set_compute(Format::kInt64);
  t.valid = not_equal(target, static_cast<double>(call.integer("ignore_index", -100)));
  t.label = select(t.valid, target, emitter.constant(0, Format::kInt64));
  const double stride = static_cast<double>(t.positions);
  Expr start = iota(emitter, {t.rows, 1}, 0, static_cast<double>(t.classes) * stride, Format::kInt64);
  if (t.positions > 1) start = start + iota(emitter, {1, t.positions}, 0, 1, Format::kInt64);
  t.index = reshape(start, {n}) + (t.positions > 1 ? t.label * stride : t.label);
  emitter.set_compute(outer);
  return t;
}

// Weight of each target, 0 where ignored.
Expr target_weights(Call& call, const Targets& t) {
  const Expr zero = call.emitter().constant(0);
  if (const auto weight = call.optional_tensor("weight")) {
    const Expr chosen = gather_rows(reshape(*weight, {weight->count(), 1}), t.label);
    return select(t.valid, reshape(chosen, {chosen.count()}), zero);
  }
  return select(t.valid, call.emitter().constant(1), zero);
}

// output = -sum w_i x[i, t_i], divided by total_weight = sum w_i for the mean.
void lower_nll_loss(Call& call) {
  const Expr scores = call.tensor("self");
  call.emitter().set_compute(scores.format());  // Sums are kept in the scores' format, 16-bit ones too.
  const Targets t = targets_of(call, scores);
  const Expr picked = gather_rows(reshape(scores, {scores.count(), 1}), t.index);
  const Expr weights = target_weights(call, t);
  const Expr zero = call.emitter().constant(0);
  const Expr value = reshape(picked, {picked.count()});
  const Expr losses = select(t.valid, call.has("weight") ? -value * weights : -value, zero);
  const std::int64_t reduction = call.integer("reduction", kMean);
  if (reduction == kNone) {
    call.returns(0, reshape(losses, call.result_shape(0)));
    // For one sample without a batch the kernel gives the weight.
    const Expr weight = scores.rank() == 1 ? reshape(sum(weights, {0}), {}) : zero;
    if (call.wants(1)) call.returns(1, expand(weight, call.result_shape(1)));
    return;
  }
  const Expr total_weight = reshape(sum(weights, {0}), {});
  const Expr total = reshape(sum(losses, {0}), {});
  call.returns(0, reduction == kMean ? total / total_weight : total);
  call.returns(1, total_weight);
}

// dx[i, t_i] = -w_i dy, dy divided by total_weight for the mean; 0 elsewhere.
void lower_nll_loss_backward(Call& call) {
  const Expr scores = call.tensor("self");
  call.emitter().set_compute(scores.format());
  const Targets t = targets_of(call, scores);
  const std::int64_t n = t.rows * t.positions;
  Expr gradient = -call.tensor("grad_output");
  const std::int64_t reduction = call.integer("reduction", kMean);
  if (reduction == kMean) gradient = gradient / call.tensor("total_weight");
  gradient = reduction == kNone ? reshape(gradient, {n}) : expand(reshape(gradient, {}), {n});
  Expr each = call.has("weight") ? target_weights(call, t) * gradient : gradient;
  each = select(t.valid, each, call.emitter().constant(0));
  // An ignored target adds 0 to class 0.
  const Expr scattered = scatter_add(reshape(each, {n, 1}), t.index, scores.count(), call.emitter().compute());
  call.returns(reshape(scattered, scores.shape()));
}

Expr reduced(Call& call, Expr losses) {
  const std::int64_t reduction = call.integer("reduction", kMean);
  if (reduction == kNone) return losses;
  const double n = static_cast<double>(losses.count());
  const Expr total = reshape(sum(losses, all_dims(losses)), {});
  return reduction == kMean ? total / n : total;
}

// The factor of a mean, 1 / n, which the kernels form in double.
double mean_factor(Call& call, const Expr& x) {
  return call.integer("reduction", kMean) == kMean ? 1.0 / static_cast<double>(x.count()) : 1.0;
}

// Losses of 16-bit numbers are computed step by step in the numbers' own format, then reduced in fp32.
template <class Losses>
void return_losses(Call& call, Losses losses) {
  const auto make = [&] {
    const ComputeIn own(call.emitter(), call.tensor("self").format());
    return losses();
  };
  call.returns(reduced(call, make()));
}

void lower_mse_loss(Call& call) {
  return_losses(call, [&] { return square(call.tensor("self") - call.tensor("target")); });
}

void lower_mse_loss_backward(Call& call) {
  const Expr x = call.tensor("self"), target = call.tensor("target");
  const ComputeIn own(call.emitter(), x.format());
  call.returns(2 * mean_factor(call, x) * (x - target) * call.tensor("grad_output"));
}

Expr log_sigmoid(Expr x) { return minimum(x, x.emitter->constant(0)) - log1p(exp(-abs(x))); }

// (1 - t) x - log_sigmoid(x) (1 + (pos_weight - 1) t)
void lower_bce_with_logits(Call& call) {
  const Expr x = call.tensor("self"), target = call.tensor("target");
  return_losses(call, [&] {
    Expr positive = held(log_sigmoid, x);
    if (const auto weight = call.optional_tensor("pos_weight")) positive = positive * ((*weight - 1.0) * target + 1.0);
    Expr losses = (1.0 - target) * x - positive;
    if (const auto weight = call.optional_tensor("weight")) losses = losses * *weight;
    return losses;
  });
}

// -(t max(log x, -100) + (1 - t) max(log(1 - x), -100))
void lower_bce(Call& call) {
  const Expr x = call.tensor("self"), target = call.tensor("target");
  return_losses(call, [&] {
    const Expr floor = call.emitter().constant(-100);
    Expr losses = (target - 1.0) * maximum(held(log1p, -x), floor) - target * maximum(held(log, x), floor);
    if (const auto weight = call.optional_tensor("weight")) losses = losses * *weight;
    return losses;
  });
}

void lower_bce_backward(Call& call) {
  const Expr x = call.tensor("self"), target = call.tensor("target"), dy = call.tensor("grad_output");
  const ComputeIn own(call.emitter(), x.format());
  const Expr denominator = maximum((1.0 - x) * x, call.emitter().constant(1e-12F));  // A float in fp64, too.
  Expr gradient = dy * (x - target) / denominator;
  if (const auto weight = call.optional_tensor("weight")) gradient = gradient * *weight;
  const double factor = mean_factor(call, x);
  call.returns(factor == 1.0 ? gradient : gradient / static_cast<double>(x.count()));
}

}  // namespace

std::span<const Rule> softmax_loss_rules() {
  static const Rule kRules[] = {
      {"_softmax", {"default"}, lower_softmax<Primitive::kSoftmax>, kOut},
      {"_log_softmax", {"default"}, lower_softmax<Primitive::kLogSoftmax>, kOut},
      {"_safe_softmax", {"default"}, lower_safe_softmax},
      {"logsumexp", {"default"}, lower_logsumexp, kOut},
      {"_softmax_backward_data", {"default"}, lower_softmax_backward, kOut},
      {"_log_softmax_backward_data", {"default"}, lower_log_softmax_backward, kOut},
      {"nll_loss_forward", {"default"}, lower_nll_loss},
      {"nll_loss_backward", {"default"}, lower_nll_loss_backward},
      {"nll_loss2d_forward", {"default"}, lower_nll_loss},
      {"nll_loss2d_backward", {"default"}, lower_nll_loss_backward},
      {"mse_loss", {"default"}, lower_mse_loss, kOut},
      {"mse_loss_backward", {"default"}, lower_mse_loss_backward, kOut},
      {"binary_cross_entropy_with_logits", {"default"}, lower_bce_with_logits},
      {"binary_cross_entropy", {"default"}, lower_bce, kOut},
      {"binary_cross_entropy_backward", {"default"}, lower_bce_backward, kOut},
  };
  return kRules;
}

}  // namespace plumbline
