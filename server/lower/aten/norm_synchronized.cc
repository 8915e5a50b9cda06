// The parts of a batch norm whose moments are those of several ranks (ATen: native/cuda/Normalization.cu), as
// SyncBatchNorm calls them: moments of a rank, of all ranks, and the elements; then the same of the gradients.
#include "server/lower/aten/channels.h"
#include "server/lower/registry.h"

namespace plumbline {
namespace {

constexpr std::int64_t kRanksMax = 4096;  // So many are joined one by one.

Expr input_of(Call& call) {
  const Expr x = call.tensor("input");
  if (x.rank() < 2 || x.count() == 0) call.unsupported("shapes");
  return x;
}

void lower_stats(Call& call) {
  const Expr x = input_of(call);
  const Shape channels{x.size(1)};
  const auto dims = batch_dims(x);
  const double n = static_cast<double>(x.count() / x.size(1));
  if (call.wants(0)) call.returns(0, reshape(sum(x, dims) / n, channels));
  if (call.wants(1)) call.returns(1, reshape(reduce(Primitive::kVarianceRsqrt, x, dims, call.real("eps")), channels));
}

// Mean and sum of squared distances from it, rank by rank: of n elements and `count` more.
void lower_gather(Call& call) {
  const Expr means = call.tensor("mean"), invstds = call.tensor("invstd");
  if (means.rank() != 2 || means.shape() != invstds.shape() || means.size(0) < 1) call.unsupported("shapes");
  const std::int64_t ranks = means.size(0), channels = means.size(1);
  if (ranks > kRanksMax) call.unsupported("so many ranks");
  const double eps = call.real("eps");
  const auto counts = call.is_tensor("counts") ? std::optional(call.tensor("counts")) : std::nullopt;
  if (counts && counts->count() != ranks) call.unsupported("shape of counts");
  Emitter& emitter = call.emitter();
  Expr mean = expand(emitter.constant(0), {channels}), squares = mean, n = emitter.constant(0);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const Expr count = counts ? reshape(narrow(reshape(*counts, {ranks}), 0, rank, 1), {})
                              : emitter.constant(static_cast<double>(call.integer("count", 0)));
    const Expr own = reshape(narrow(means, 0, rank, 1), {channels});
    const Expr deviation = 1.0 / reshape(narrow(invstds, 0, rank, 1), {channels});
    const Expr factor = 1.0 / (n + count);
    squares = squares + ((deviation * deviation - eps) * count + square(mean - own) * n * count * factor);
    mean = n * factor * mean + count * factor * own;
    n = n + count;
  }
  const auto moved = [&](const char* name, Expr moment) {
    const auto running = call.optional_tensor(name);
    if (!running) return;
    const ComputeIn wide(emitter, promote(running->format(), emitter.compute()));
    const Expr momentum = call.operand("momentum");
    call.writes(name, (1.0 - momentum) * *running + momentum * moment);
  };
  moved("running_mean", mean);
  moved("running_var", squares / (n - 1.0));
  if (call.wants(0)) call.returns(0, mean);
  if (call.wants(1)) call.returns(1, 1.0 / sqrt(squares / n + eps));
}

void lower_elements(Call& call) {
  const Expr x = input_of(call);
  const auto weight = call.optional_tensor("weight"), bias = call.optional_tensor("bias");
  Expr y = (x - per_channel(call.tensor("mean"), x)) * per_channel(call.tensor("invstd"), x);
  if (weight) y = y * per_channel(*weight, x);
  if (bias) y = y + per_channel(*bias, x);
  call.returns(0, y);
}

// sum(dy), sum(dy (x - mean)), and the gradients of weight and bias from this rank's elements.
void lower_reduced_gradients(Call& call) {
  const Expr x = input_of(call), dy = call.tensor("grad_out");
  const Shape channels{x.size(1)};
  const Expr total = reshape(sum_of_gradients(call, x, dy, false), channels);
  const Expr products = dy * (x - per_channel(call.tensor("mean"), x));
  const Expr product = reshape(sum_of_gradients(call, x, products, true), channels);
  if (call.wants(0)) call.returns(0, total);
  if (call.wants(1)) call.returns(1, product);
  if (call.wants(2)) call.returns(2, product * call.tensor("invstd"));
  if (call.wants(3)) call.returns(3, total);
}

// (dy - mean(dy) - (x - mean) invstd^2 mean(dy (x - mean))) invstd weight, the means over all ranks' elements.
void lower_gradient_elements(Call& call) {
  const Expr x = input_of(call), dy = call.tensor("grad_out"), count = call.tensor("count");
  const Expr invstd = call.tensor("invstd");
  const Expr share = 1.0 / reshape(sum(cast(count, call.emitter().compute()), all_dims(count)), {});
  const Expr shift = per_channel(call.tensor("sum_dy") * share, x);
  const Expr slope = per_channel(invstd * invstd * call.tensor("sum_dy_xmu") * share, x);
  const auto weight = call.optional_tensor("weight");
  const Expr factor = per_channel(weight ? *weight * invstd : invstd, x);
  call.returns(0, (dy - shift - (x - per_channel(call.tensor("mean"), x)) * slope) * factor);
}

}  // namespace

std::span<const Rule> synchronized_norm_rules() {
  static const Rule kRules[] = {
      {"batch_norm_stats", {"default"}, lower_stats},
      {"batch_norm_gather_stats", {"default"}, lower_gather},
      {"batch_norm_gather_stats_with_counts", {"default"}, lower_gather},
      {"batch_norm_elemt", {"default"}, lower_elements},
      {"batch_norm_backward_reduce", {"default"}, lower_reduced_gradients},
      {"batch_norm_backward_elemt", {"default"}, lower_gradient_elements},
  };
  return kRules;
}

}  // namespace plumbline
