// Activations and losses that are put together from pieces, with their gradients (ATen: native/cpu/Activation.cpp,
// BinaryOpsKernel.cpp, PointwiseOpsKernel.cpp).
#include "server/lower/registry.h"

namespace plumbline {
namespace {

Expr zero_like(Expr x) { return x.emitter->constant(0, x.format()); }
Expr positive(Expr x) { return x > 0.0; }

struct Elu {
  Expr alpha, scale, input_scale;
};

Elu elu_of(Call& call) {
  Emitter& emitter = call.emitter();
  if (call.base() != "celu")
    return {call.operand_or("alpha", 1), call.operand_or("scale", 1), call.operand_or("input_scale", 1)};
  const Expr alpha = call.operand_or("alpha", 1);
  return {alpha, emitter.constant(1), 1.0 / alpha};
}

// scale x where x > 0, otherwise alpha scale (exp(input_scale x) - 1).
void lower_elu(Call& call) {
  const Expr x = call.tensor("self");
  const Elu elu = elu_of(call);
  const Expr below = unary(Primitive::kExpm1, minimum(x, zero_like(x)) * elu.input_scale) * (elu.alpha * elu.scale);
  call.returns(select(positive(x), x * elu.scale, below));
}

void lower_elu_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self_or_result");
  const Elu elu = elu_of(call);
  const Expr slope = elu.alpha * elu.scale, below = gradient * elu.input_scale;
  const Expr left = call.boolean("is_result", false) ? below * (x + slope)
                                                     : below * slope * exp(minimum(x, zero_like(x)) * elu.input_scale);
  call.returns(select(positive(x), gradient * elu.scale, left));
}

// min(max(x + 3, 0), 6)
Expr ramp(Expr x) {
  Emitter& emitter = *x.emitter;
  return minimum(maximum(x + 3.0, emitter.constant(0)), emitter.constant(6));
}

void lower_hardsigmoid(Call& call) { call.returns(ramp(call.tensor("self")) / 6.0); }
// The kernel holds 1/6 in fp32, in fp64 too.
void lower_hardsigmoid_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self");
  const double sixth = call.emitter().compute() == Format::kFloat64 ? round_to(Format::kFloat32, 1.0 / 6) : 1.0 / 6;
  call.returns(select(logical_and(x > -3.0, x < 3.0), gradient * sixth, zero_like(gradient)));
}

void lower_hardswish(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(x * ramp(x) / 6.0);
}
// At -3 and 3 some kernels take the derivative from the left, others that from the right.
void lower_hardswish_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self");
  Emitter& emitter = call.emitter();
  const Expr inside = select(equal(x, 3), emitter.inexact_constant(1.25, 0.25),
                             select(equal(x, -3), emitter.inexact_constant(-0.25, 0.25), x / 3.0 + 0.5));
  call.returns(select(x > 3.0, gradient, select(x < -3.0, zero_like(gradient), gradient * inside)));
}

// Kernels hold it in the elements' own format.
Expr lambd_of(Call& call, Expr x) {
  return call.has("lambd") ? call.operand("lambd", x.format()) : call.emitter().constant(0.5, x.format());
}

// 0 within lambd of it; beyond, x moved towards 0 by lambd (soft) or x itself (hard).
void lower_softshrink(Call& call) {
  const Expr x = call.tensor("self"), lambd = lambd_of(call, x);
  const Expr above = compare(Primitive::kGreater, x, lambd), below = compare(Primitive::kLess, x, -lambd);
  call.returns(select(above, x - lambd, select(below, x + lambd, zero_like(x))));
}
void lower_hardshrink(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(select(compare(Primitive::kLessEqual, abs(x), lambd_of(call, x)), zero_like(x), x));
}
void lower_shrink_backward(Call& call) {
  const Expr gradient = call.tensor(call.has("grad_out") ? "grad_out" : "grad_output"), x = call.tensor("self");
  const Expr inside = compare(Primitive::kLessEqual, abs(x), lambd_of(call, x));
  call.returns(select(inside, zero_like(gradient), gradient));
}

void lower_prelu(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(select(positive(x), x, x * call.tensor("weight")));
}
void lower_prelu_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self"), side = positive(x);
  if (call.wants(0)) call.returns(0, select(side, gradient, gradient * call.tensor("weight")));
  if (call.wants(1)) call.returns(1, select(side, zero_like(gradient), x * gradient));
}

// The first half times the sigmoid of the second.
struct Halves {
  Expr first, second;
  std::size_t dim;
};

Halves halves_of(Call& call) {
  const Expr x = call.tensor("self");
  if (x.rank() == 0) call.unsupported("no dimension");
  const std::size_t dim = call.dim("dim", x.rank(), -1);
  const std::int64_t half = x.size(dim) / 2;
  return {narrow(x, dim, 0, half), narrow(x, dim, half, half), dim};
}

void lower_glu(Call& call) {
  const Halves x = halves_of(call);
  call.returns(x.first * sigmoid(x.second));
}
void lower_glu_backward(Call& call) {
  const Halves x = halves_of(call);
  const ComputeIn own(call.emitter(), x.first.format());  // Rounded after each step.
  const Expr gradient = call.tensor("grad_output"), s = sigmoid(x.second);
  const Shape shape = call.result_shape(), strides = row_major_strides(shape);
  const Format format = call.result_format();
  const std::vector<Expr> pieces{cast(s * gradient, format), cast((1.0 - s) * s * gradient * x.first, format)};
  const std::int64_t after = x.first.size(x.dim) * strides[x.dim];
  call.returns(assemble(call.emitter(), shape, std::nullopt, pieces,
                        {{x.first.shape(), strides, 0}, {x.first.shape(), strides, after}}, format));
}

// How far self lies from target. Kernels round 16-bit numbers after each step.
Expr difference_of(Call& call) {
  const Expr self = call.tensor("self");
  call.emitter().set_compute(call.result_format());
  return self - call.tensor("target");
}

// none, mean, sum
Expr reduced(Call& call, Expr losses) {
  const std::int64_t reduction = call.integer("reduction", 1);
  if (reduction == 0) return losses;
  call.emitter().set_compute(compute_format(losses.format()));
  const Expr total = reshape(sum(losses, all_dims(losses)), {});
  return reduction == 1 ? total / static_cast<double>(losses.count()) : total;
}

double mean_factor(Call& call, const Expr& x) {
  return call.integer("reduction", 1) == 1 ? 1.0 / static_cast<double>(x.count()) : 1.0;
}

// Where the distance is within `beta`: its square halved, over beta; beyond: itself less beta / 2.
void lower_smooth_l1_loss(Call& call) {
  const Expr distance = abs(difference_of(call)), beta = call.operand_or("beta", 1);
  if (call.known_number("beta").value_or(1) == 0) call.unsupported("beta = 0");
  const Expr square = 0.5 * distance * distance / beta;
  call.returns(reduced(call, select(compare(Primitive::kLess, distance, beta), square, distance - 0.5 * beta)));
}
void lower_smooth_l1_loss_backward(Call& call) {
  const Expr difference = difference_of(call), beta = call.operand("beta");
  if (call.known_number("beta").value_or(1) == 0) call.unsupported("beta = 0");
  const Expr gradient = call.tensor("grad_output") * mean_factor(call, difference);
  const Expr slope = minimum(maximum(difference, -beta), beta);
  call.returns(slope * gradient / beta);
}

// The same, times beta.
void lower_huber_loss(Call& call) {
  const Expr distance = abs(difference_of(call)), delta = call.operand_or("delta", 1);
  const Expr inside = compare(Primitive::kLessEqual, distance, delta);
  call.returns(reduced(call, select(inside, 0.5 * distance * distance, delta * (distance - 0.5 * delta))));
}
void lower_huber_loss_backward(Call& call) {
  const Expr difference = difference_of(call), delta = call.operand("delta");
  const Expr gradient = call.tensor("grad_output") * mean_factor(call, difference);
  call.returns(minimum(maximum(difference, -delta), delta) * gradient);
}

// log(1 + exp(-target self)), each step rounded to the elements' own format.
void lower_soft_margin_loss(Call& call) {
  const Expr x = call.tensor("self");
  const ComputeIn own(call.emitter(), x.format());
  call.returns(reduced(call, held(log1p, held(exp, -x * call.tensor("target")))));
}
void lower_soft_margin_loss_backward(Call& call) {
  const Expr x = call.tensor("self"), y = call.tensor("target");
  const ComputeIn own(call.emitter(), x.format());
  const Expr z = held(exp, -y * x);
  call.returns(y * z * -mean_factor(call, x) / (z + 1.0) * call.tensor("grad_output"));
}

// Each row's loss is the sum over the classes j but the target t of max(0, margin - x_t + x_j)^p, over the number of
// classes.
struct Margins {
  Expr hinge, own;  // [rows, classes]: what is above 0; whether the class is the target.
  Expr weight;      // [rows, 1], or a number: with p = 2, twice the weight is the square's slope.
  bool squared;
};

Margins margins_of(Call& call, Expr x) {
  Emitter& emitter = call.emitter();
  const Expr target = call.tensor("target");
  const double p = call.real("p", 1);
  if (p != 1 && p != 2) call.unsupported("p is not 1 or 2");
  const std::int64_t rows = x.size(0), classes = x.size(1);
  const Expr index = reshape(target, {rows});
  const Expr column = iota(emitter, {1, classes}, 0, 1, Format::kInt64),
             first = iota(emitter, {rows}, 0, static_cast<double>(classes), Format::kInt64);
  const Expr own = compare(Primitive::kEqual, column, reshape(index, {rows, 1}));
  Expr place = first;
  {
    const ComputeIn integers(emitter, Format::kInt64);
    place = first + index;
  }
  const Expr of_target = gather_rows(reshape(x, {x.count(), 1}), place), zero = emitter.constant(0);
  const Expr above = call.operand_or("margin", 1) - of_target + x;
  Expr weight = emitter.constant(1);
  if (call.has("weight")) weight = gather_rows(reshape(call.tensor("weight"), {classes, 1}), index);
  return {select(own, zero, maximum(above, zero)), own, weight, p == 2};
}

// Rows of one alone are a vector.
Expr as_rows(Expr x) { return x.rank() < 2 ? reshape(x, {1, x.count()}) : x; }

void lower_multi_margin_loss(Call& call) {
  const Expr x = as_rows(call.tensor("self"));
  const Margins margins = margins_of(call, x);
  const Expr terms = (margins.squared ? square(margins.hinge) : margins.hinge) * margins.weight;
  const Expr losses = sum(terms, {1}) / static_cast<double>(x.size(1));
  call.returns(reshape(reduced(call, losses), call.result_shape()));
}

void lower_multi_margin_loss_backward(Call& call) {
  const Expr x = as_rows(call.tensor("self"));
  Emitter& emitter = call.emitter();
  const Margins margins = margins_of(call, x);
  const double rows = call.integer("reduction", 1) == 1 ? static_cast<double>(x.size(0)) : 1;
  const Expr scale = margins.weight * (1.0 / (rows * static_cast<double>(x.size(1))));
  const Expr slope = margins.squared ? 2.0 * margins.hinge : cast(positive(margins.hinge), emitter.compute());
  Expr gradient = call.tensor("grad_output");
  if (gradient.rank() > 0) gradient = reshape(gradient, {gradient.count(), 1});
  const Expr others = slope * scale;
  const Expr all = select(margins.own, -sum(others, {1}), others) * gradient;
  call.returns(reshape(all, call.result_shape()));
}

// Some loops round the scale to the elements' own format. The forward pass on CUDA rounds twice to get it: 1 / (1 - p),
// both in the compute format (native/cuda/Dropout.cu). Factors of 1 are charged for that.
void lower_native_dropout_backward(Call& call) {
  const Expr scale = call.operand("scale", call.result_format());
  const Expr kept = call.tensor("grad_output") * call.tensor("mask") * scale;
  call.returns(call.op().phase == Phase::kBackward ? kept : kept * 1.0 * 1.0);
}

}  // namespace

std::span<const Rule> piecewise_rules() {
  static const Rule kRules[] = {
      {"elu", {"default"}, lower_elu, kInPlace | kOut},
      {"elu_backward", {"default"}, lower_elu_backward},
      {"celu", {"default"}, lower_elu, kInPlace | kOut},
      {"hardsigmoid", {"default"}, lower_hardsigmoid, kInPlace | kOut},
      {"hardsigmoid_backward", {"default"}, lower_hardsigmoid_backward},
      {"hardswish", {"default"}, lower_hardswish, kInPlace | kOut},
      {"hardswish_backward", {"default"}, lower_hardswish_backward},
      {"softshrink", {"default"}, lower_softshrink, kOut},
      {"softshrink_backward", {"default"}, lower_shrink_backward},
      {"hardshrink", {"default"}, lower_hardshrink, kOut},
      {"hardshrink_backward", {"default"}, lower_shrink_backward},
      {"_prelu_kernel", {"default"}, lower_prelu},
      {"_prelu_kernel_backward", {"default"}, lower_prelu_backward},
      {"glu", {"default"}, lower_glu, kOut},
      {"glu_backward", {"default"}, lower_glu_backward},
      {"smooth_l1_loss", {"default"}, lower_smooth_l1_loss},
      {"smooth_l1_loss_backward", {"default"}, lower_smooth_l1_loss_backward},
      {"huber_loss", {"default"}, lower_huber_loss},
      {"huber_loss_backward", {"default"}, lower_huber_loss_backward},
      {"soft_margin_loss", {"default"}, lower_soft_margin_loss, kOut},
      {"soft_margin_loss_backward", {"default"}, lower_soft_margin_loss_backward},
      {"multi_margin_loss", {"default"}, lower_multi_margin_loss, kOut},
      {"multi_margin_loss_backward", {"default"}, lower_multi_margin_loss_backward},
      {"native_dropout_backward", {"default"}, lower_native_dropout_backward},
  };
  return kRules;
}

}  // namespace plumbline
