// Fused optimizer steps and gradient scaling (ATen: native/cpu/FusedAdamKernel.cpp, FusedSGDKernel.cpp,
// native/AmpKernels.cpp). Unfused optimizers are pointwise and foreach operations.
#include <cmath>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

void require_length(const char* name, std::size_t expected, std::size_t found) {
  if (expected != found)
    throw LowerError("argument '" + std::string(name) + "': " + std::to_string(expected) +
                     " tensors were expected, found " + std::to_string(found));
}

// The gradient divided by the loss scale; where an overflow was found, steps are skipped: their results are the old
// values.
struct Scaling {
  std::optional<Expr> scale, found;

  Expr unscaled(Expr gradient) const { return scale ? gradient / reshape(*scale, {}) : gradient; }
  Expr kept(Expr before, Expr after) const {
    if (!found) return after;
    return select(equal(reshape(*found, {}), 1), before, after);
  }
};

Scaling scaling_of(Call& call) { return {call.optional_tensor("grad_scale"), call.optional_tensor("found_inf")}; }

// Numbers of a fused optimizer. The CPU's kernels compute with them in double and round what enters the vector code to
// fp32. CUDA's hold them in fp32 first (native/cuda/fused_adam_utils.cuh), so that 1 - beta is off by what beta is, and
// contract: beta m + (g - beta g) in two roundings. Which of the two a device does is its profile's narrow_numbers.
class Numbers {
 public:
  explicit Numbers(Emitter& emitter, Format held) : emitter_(emitter), held_(held) {}

  Expr number(double x) const { return emitter_.narrowed_constant(x, off(x)); }
  Expr rest(double x) const { return emitter_.narrowed_constant(1 - x, off(x)); }

  // A number that the host computes, after `roundings` of them.
  Expr computed(Expr x, int roundings) const {
    return x * emitter_.narrowed_constant(1, roundings * 1.01 * unit_roundoff(held_));
  }

  // 1 - beta^step in fp64. In fp32 the power, at most 1, is off by 8.5 ulps (CUDA C++ Programming Guide, powf), 17 u,
  // and the difference by u.
  Expr correction(double beta, Expr step) const {
    const Expr power = binary(Primitive::kPow, number(beta), step);
    return 1.0 - power + emitter_.narrowed_constant(0, 18.01 * unit_roundoff(held_));
  }

  // a + weight (b - a), weight = 1 - beta, as the CPU's kernel forms it: from the nearer end. CUDA's b - beta b errs by
  // u weight |b|, which is more than the roundings here where a and b are near.
  Expr lerp(Expr a, Expr b, double beta) const {
    b = emitter_.contracted(b);
    if (std::fabs(1 - beta) < 0.5) return rest(beta) * (b - a) + a;
    return -number(beta) * (b - a) + b;
  }

 private:
  double off(double x) const { return std::fabs(round_to(held_, x) - x); }

  Emitter& emitter_;
  Format held_;
};

template <bool decoupled>
void lower_fused_adam(Call& call) {
  Emitter& emitter = call.emitter();
  const auto parameters = call.tensors("self"), gradients = call.tensors("grads"), first = call.tensors("exp_avgs"),
             second = call.tensors("exp_avg_sqs"), largest = call.tensors("max_exp_avg_sqs"),
             steps = call.tensors("state_steps");
  const bool amsgrad = call.boolean("amsgrad", false), maximize = call.boolean("maximize", false);
  const std::size_t n = parameters.size();
  require_length("grads", n, gradients.size());
  require_length("exp_avgs", n, first.size());
  require_length("exp_avg_sqs", n, second.size());
  require_length("state_steps", n, steps.size());
  if (amsgrad) require_length("max_exp_avg_sqs", n, largest.size());
  const double beta1 = call.real("beta1"), beta2 = call.real("beta2"), eps = call.real("eps");
  const double weight_decay = call.real("weight_decay");
  const Scaling scaling = scaling_of(call);

  for (std::size_t i = 0; i < n; ++i) {
    const Format format = parameters[i].format();
    emitter.set_compute(Format::kFloat64);
    const Numbers numbers(emitter, compute_format(format));
    const Expr lr = numbers.computed(reshape(call.operand("lr"), {}), 1);
    const Expr step = reshape(steps[i], {});
    const Expr step_size = lr / numbers.correction(beta1, step);
    const Expr root_correction = sqrt(numbers.correction(beta2, step));
    const Expr shrink = 1.0 - numbers.computed(lr * weight_decay, 2);
    emitter.set_compute(compute_format(format));
    const auto narrow = [&](Expr x) { return cast(x, emitter.compute()); };

    const Expr unscaled = scaling.unscaled(gradients[i]);
    Expr gradient = maximize ? -unscaled : unscaled;
    Expr parameter = parameters[i];
    if (weight_decay != 0) parameter = decoupled ? parameter * narrow(shrink) : parameter;
    if (weight_decay != 0 && !decoupled) gradient = gradient + parameter * weight_decay;
    const Expr m = numbers.lerp(first[i], gradient, beta1);
    const Expr v = second[i] * numbers.number(beta2) + numbers.rest(beta2) * gradient * gradient;
    Expr under_root = v;
    if (amsgrad) under_root = maximum(largest[i], v);
    const Expr denominator = sqrt(under_root) / narrow(root_correction) + eps;
    const Expr updated = parameter + -narrow(step_size) * m / denominator;
    // What is written is rounded, once all was computed from what is not.
    call.writes("grads", unscaled, i);
    if (amsgrad) call.writes("max_exp_avg_sqs", scaling.kept(largest[i], under_root), i);
    call.writes("self", scaling.kept(parameters[i], updated), i);
    call.writes("exp_avgs", scaling.kept(first[i], m), i);
    call.writes("exp_avg_sqs", scaling.kept(second[i], v), i);
  }
}

// The rate is formed in double from the step's value. The last elements of 16-bit tensors round after each operation.
void lower_fused_adagrad(Call& call) {
  Emitter& emitter = call.emitter();
  const auto parameters = call.tensors("self"), gradients = call.tensors("grads"), sums = call.tensors("state_sums"),
             steps = call.tensors("state_steps");
  require_length("grads", parameters.size(), gradients.size());
  require_length("state_sums", parameters.size(), sums.size());
  require_length("state_steps", parameters.size(), steps.size());
  const double lr_decay = call.real("lr_decay"), weight_decay = call.real("weight_decay"), eps = call.real("eps");
  const bool maximize = call.boolean("maximize", false);
  const Scaling scaling = scaling_of(call);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Format format = parameters[i].format();
    if (compute_format(format) != format) call.unsupported("parameters of 16 bits");
    emitter.set_compute(Format::kFloat64);
    const Numbers numbers(emitter, format);
    const Expr step = reshape(steps[i], {});
    const Expr rate = numbers.computed(reshape(call.operand("lr"), {}) / (1.0 + (step - 1.0) * lr_decay), 6);
    emitter.set_compute(format);
    const Expr unscaled = scaling.unscaled(gradients[i]);
    Expr gradient = maximize ? -unscaled : unscaled;
    if (weight_decay != 0) gradient = gradient + parameters[i] * weight_decay;
    const Expr total = sums[i] + gradient * gradient;
    const Expr updated = parameters[i] - cast(rate, format) * gradient / (sqrt(total) + eps);
    call.writes("grads", unscaled, i);
    call.writes("self", scaling.kept(parameters[i], updated), i);
    call.writes("state_sums", scaling.kept(sums[i], total), i);
    call.writes("state_steps", steps[i], i);
  }
}

void lower_fused_sgd(Call& call) {
  const auto parameters = call.tensors("self"), gradients = call.tensors("grads"),
             buffers = call.tensors("momentum_buffer_list");
  const std::size_t n = parameters.size();
  require_length("grads", n, gradients.size());
  const double momentum = call.real("momentum"), dampening = call.real("dampening"),
               weight_decay = call.real("weight_decay");
  if (momentum != 0) require_length("momentum_buffer_list", n, buffers.size());
  const bool nesterov = call.boolean("nesterov", false), maximize = call.boolean("maximize", false),
             first_step = call.boolean("is_first_step", false);
  const Scaling scaling = scaling_of(call);
  Emitter& emitter = call.emitter();
  for (std::size_t i = 0; i < n; ++i) {
    emitter.set_compute(compute_format(parameters[i].format()));
    const Expr unscaled = scaling.unscaled(gradients[i]);
    Expr gradient = maximize ? -unscaled : unscaled;
    if (weight_decay != 0) gradient = gradient + parameters[i] * weight_decay;
    std::optional<Expr> kept;
    if (momentum != 0) {
      const Numbers numbers(emitter, emitter.compute());
      const Expr buffer = first_step ? gradient : buffers[i] * momentum + gradient * numbers.rest(dampening);
      kept = scaling.kept(buffers[i], buffer);
      gradient = nesterov ? gradient + buffer * momentum : buffer;
    }
    const Expr updated = parameters[i] - gradient * call.operand("lr");
    call.writes("grads", unscaled, i);
    if (kept) call.writes("momentum_buffer_list", *kept, i);
    call.writes("self", scaling.kept(parameters[i], updated), i);
  }
}

// self *= inv_scale, and found_inf becomes 1 where any element is not finite.
void lower_unscale(Call& call) {
  const auto gradients = call.tensors("self");
  const Expr inverse = reshape(call.tensor("inv_scale"), {});
  Expr found = call.tensor("found_inf");
  Emitter& emitter = call.emitter();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    emitter.set_compute(Format::kFloat32);
    const Expr finite = unary(Primitive::kIsFinite, gradients[i]);
    const Expr broken = 1.0 - reduce(Primitive::kAmin, finite, all_dims(gradients[i]));
    found = maximum(found, reshape(broken, found.shape()));
    call.writes("self", gradients[i] * inverse, i);
  }
  const Expr overflow = not_equal(found, 0);
  call.decides(overflow);
  call.writes("found_inf", cast(overflow, found.format()));
}

// After an overflow the scale backs off; after growth_interval clean steps it grows, where that stays finite.
void lower_update_scale(Call& call) {
  const Expr scale = call.tensor("self"), tracker = call.tensor("growth_tracker");
  const Expr overflow = not_equal(reshape(call.tensor("found_inf"), scale.shape()), 0);
  Emitter& emitter = call.emitter();
  const Format compute = emitter.compute();
  emitter.set_compute(Format::kInt32);
  const Expr successful = tracker + 1.0;
  const Expr full = equal(successful, static_cast<double>(call.integer("growth_interval", 2000)));
  const Expr counted = select(full, emitter.constant(0), successful);
  const Expr tracked = select(overflow, emitter.constant(0), counted);
  emitter.set_compute(compute);
  const Expr grown = scale * call.operand("scale_growth_factor");
  const Expr usable = unary(Primitive::kIsFinite, cast(grown, scale.format()));
  const Expr larger = select(logical_and(full, usable), grown, scale);
  const Expr next = select(overflow, scale * call.operand("scale_backoff_factor"), larger);
  call.writes("self", next);
  call.writes("growth_tracker", tracked);
}

}  // namespace

std::span<const Rule> optimizer_rules() {
  static const Rule kRules[] = {
      {"_fused_adam", {"default", "tensor_lr"}, lower_fused_adam<false>, kOnlyInPlace},
      {"_fused_adamw", {"default", "tensor_lr"}, lower_fused_adam<true>, kOnlyInPlace},
      {"_fused_adagrad", {"default"}, lower_fused_adagrad, kOnlyInPlace},
      {"_fused_sgd", {"default", "tensor_lr"}, lower_fused_sgd, kOnlyInPlace},
      {"_amp_foreach_non_finite_check_and_unscale",
       {"default"},
       lower_unscale,
       kOnlyInPlace,
       DecisionKind::kLastResult},
      {"_amp_update_scale", {"default"}, lower_update_scale, kOnlyInPlace},
  };
  return kRules;
}

}  // namespace plumbline
