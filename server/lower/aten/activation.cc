// Activations and their gradients (ATen: native/cpu/Activation.cpp, BinaryOpsKernel.cpp).
#include <cmath>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

constexpr double kSqrt2 = 1.41421356237309504880;          // M_SQRT2
constexpr double kInverseSqrt2 = 0.70710678118654752440;   // M_SQRT1_2
constexpr double kTwoOverSqrtPi = 1.12837916709551257390;  // M_2_SQRTPI
constexpr double kGeluKappa = 0.044715;
constexpr double kGeluBeta = kSqrt2 * kTwoOverSqrtPi * 0.5;
constexpr double kGeluDensity = kTwoOverSqrtPi * kInverseSqrt2 * 0.5;

// x where x > 0, otherwise `negative`; the comparison is the operation's decision.
void decide_positive(Call& call, Expr x, Expr negative) {
  const Expr positive = x > 0.0;
  call.decides(positive);
  call.returns(select(positive, x, negative));
}

void lower_relu(Call& call) {
  const Expr x = call.tensor("self");
  decide_positive(call, x, call.emitter().constant(0, x.format()));
}

void lower_leaky_relu(Call& call) {
  const Expr x = call.tensor("self");
  const Expr slope = call.operand_or("negative_slope", 0.01);
  decide_positive(call, x, x * slope);
}

// The comparison that an earlier relu made where `x` is its result seen through windows and casts: the gradient then
// follows the side that the forward took.
std::optional<Expr> comparison_of_relu(Expr x) {
  Emitter& emitter = *x.emitter;
  const Node& node = emitter.node(x.id);
  if (node.primitive == Primitive::kSelect) {
    const Node& condition = emitter.node(node.inputs[0]);
    if (condition.primitive != Primitive::kGreater || condition.inputs[0] != node.inputs[1]) return std::nullopt;
    const Node& bound = emitter.node(condition.inputs[1]);
    if (bound.primitive != Primitive::kConstant || bound.attributes.scalar != 0) return std::nullopt;
    return Expr{&emitter, node.inputs[0]};
  }
  if (node.primitive != Primitive::kWindow && node.primitive != Primitive::kCast) return std::nullopt;
  const bool windowed = node.primitive == Primitive::kWindow;
  const View view = node.attributes.view;
  const auto inner = comparison_of_relu({&emitter, node.inputs[0]});
  if (!inner) return std::nullopt;
  return windowed ? emitter.window(*inner, view) : *inner;
}

Expr positive_side(Expr x) {
  const auto known = comparison_of_relu(x);
  return known ? *known : x > 0.0;
}

void lower_threshold(Call& call) {
  const Expr x = call.tensor("self");
  const Expr above = compare(Primitive::kGreater, x, call.operand("threshold"));
  call.returns(select(above, x, call.operand("value")));
}

void lower_threshold_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self");
  const double threshold = call.real("threshold");
  const Expr above = threshold == 0 ? positive_side(x) : x > threshold;
  call.returns(select(above, gradient, call.emitter().constant(0, gradient.format())));
}

void lower_leaky_relu_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self");
  call.returns(select(positive_side(x), gradient, gradient * call.operand("negative_slope")));
}

void lower_hardtanh(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(minimum(maximum(x, call.operand_or("min_val", -1)), call.operand_or("max_val", 1)));
}

void lower_hardtanh_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self");
  const Expr inside = logical_and(compare(Primitive::kGreater, x, call.operand("min_val")),
                                  compare(Primitive::kLess, x, call.operand("max_val")));
  call.returns(select(inside, gradient, call.emitter().constant(0, gradient.format())));
}

bool tanh_form(Call& call) {
  const std::string approximate = call.text("approximate", "none");
  if (approximate != "none" && approximate != "tanh") call.unsupported("approximate = " + approximate);
  return approximate == "tanh";
}

void lower_gelu(Call& call) {
  const Expr x = call.tensor("self");
  if (tanh_form(call)) {
    const Expr inner = kGeluBeta * (x + kGeluKappa * (x * x * x));
    call.returns(0.5 * x * (1.0 + tanh(inner)));
  } else {
    call.returns(x * 0.5 * (1.0 + erf(x * kInverseSqrt2)));
  }
}

void lower_gelu_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self");
  if (tanh_form(call)) {
    const Expr squared = x * x;
    const Expr inner = kGeluBeta * (x + kGeluKappa * (squared * x));
    const Expr t = tanh(inner);
    const Expr left = 0.5 * x, right = 1.0 + t;
    const Expr inner_derivative = kGeluBeta * (1.0 + 3 * kGeluKappa * squared);
    const Expr right_derivative = left * (1.0 - t * t) * inner_derivative;
    call.returns(gradient * (0.5 * right + right_derivative));
  } else {
    const Expr distribution = 0.5 * (1.0 + erf(x * kInverseSqrt2));
    const Expr density = kGeluDensity * exp(x * x * -0.5);
    call.returns(gradient * (distribution + x * density));
  }
}

void lower_silu(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(x * sigmoid(x));
}

void lower_silu_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self");
  const Expr s = sigmoid(x);
  call.returns(gradient * s * (1.0 + x * (1.0 - s)));
}

// mish(x) = x tanh(log1p(exp(x)))
void lower_mish(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(x * tanh(log1p(exp(x))));
}

void lower_mish_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self");
  const Expr t = tanh(log1p(exp(x)));
  call.returns(gradient * (t + x * sigmoid(x) * (1.0 - t * t)));
}

void lower_tanh(Call& call) { call.returns(tanh(call.tensor("self"))); }
void lower_tanh_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), out = call.tensor("output");
  const ComputeIn own(call.emitter(), out.format());  // On CUDA 16-bit numbers are rounded after each step.
  call.returns(gradient * (1.0 - out * out));
}

void lower_sigmoid(Call& call) { call.returns(sigmoid(call.tensor("self"))); }
void lower_sigmoid_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), out = call.tensor("output");
  const ComputeIn own(call.emitter(), out.format());  // 16-bit numbers are rounded after each step.
  call.returns(gradient * (1.0 - out) * out);
}

// log(sigmoid(x)) = min(x, 0) - log1p(exp(-|x|)); the buffer keeps exp(-|x|).
void lower_log_sigmoid(Call& call) {
  const Expr x = call.tensor("self");
  const Expr buffer = exp(-abs(x));
  call.returns(0, minimum(x, call.emitter().constant(0)) - log1p(buffer));
  if (call.wants(1) && call.result_shape(1) == buffer.shape()) call.returns(1, buffer);
}

void lower_log_sigmoid_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self");
  // exp(-|x|) as the forward pass kept it, where it did.
  const auto kept = call.optional_tensor("buffer");
  const Expr z = kept && kept->shape() == x.shape() ? *kept : exp(-abs(x));
  const Expr fraction = z / (1.0 + z);
  const Expr negative = x < 0.0;
  call.returns(gradient * select(negative, 1.0 - fraction, fraction));
}

// Beyond its threshold a kernel takes x for softplus(x) = log(1 + exp(beta x)) / beta, and 1 for its derivative. That
// is off by less than exp(-threshold), relative to beta x or to 1. Where fp32 rounds as much away (at PyTorch's 20:
// 2e-9), it is rounding, as another program may compute the function all the way: the replay does. In fp64 that is more
// than its roundings, and charged beside them. A smaller threshold is mathematics.
bool rounds_away(double threshold) { return std::exp(-threshold) <= unit_roundoff(Format::kFloat32) / 2; }

Expr taken_beyond(Call& call, Expr exact, double off) {
  return call.emitter().compute() == Format::kFloat64 ? exact + call.emitter().inexact_constant(0, off) : exact;
}

// softplus(x) = log1p(exp(beta x)) / beta, beyond the threshold x + log1p(exp(-beta x)) / beta.
void lower_softplus(Call& call) {
  const Expr x = call.tensor("self"), beta = call.operand_or("beta", 1);
  const double threshold = call.real("threshold", 20);
  const Expr scaled = x * beta;
  const Expr linear = compare(Primitive::kGreater, scaled, call.operand_or("threshold", 20));
  Expr beyond = x;
  if (rounds_away(threshold))
    beyond = taken_beyond(call, x + log1p(exp(-scaled)) / beta, std::exp(-threshold) / std::fabs(call.real("beta", 1)));
  call.returns(select(linear, beyond, log1p(exp(scaled)) / beta));
}

// gradient z / (z + 1) with z = exp(beta x), beyond the threshold gradient / (1 + exp(-beta x)).
void lower_softplus_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), x = call.tensor("self");
  const double threshold = call.real("threshold");
  const Expr scaled = x * call.operand("beta");
  const Expr linear = compare(Primitive::kGreater, scaled, call.operand("threshold"));
  Expr beyond = gradient;
  if (rounds_away(threshold)) beyond = gradient / taken_beyond(call, exp(-scaled) + 1.0, std::exp(-threshold));
  const Expr z = exp(scaled);
  call.returns(select(linear, beyond, gradient * z / (z + 1.0)));
}

}  // namespace

std::span<const Rule> activation_rules() {
  constexpr auto kPositive = DecisionKind::kPositiveSide;
  static const Rule kRules[] = {
      {"relu", {"default"}, lower_relu, kInPlace | kOut, kPositive},
      {"leaky_relu", {"default"}, lower_leaky_relu, kInPlace | kOut, kPositive},
      {"leaky_relu_backward", {"default"}, lower_leaky_relu_backward},
      {"threshold", {"default"}, lower_threshold, kInPlace | kOut},
      {"threshold_backward", {"default"}, lower_threshold_backward},
      {"hardtanh", {"default"}, lower_hardtanh, kInPlace | kOut},
      {"hardtanh_backward", {"default"}, lower_hardtanh_backward},
      {"gelu", {"default"}, lower_gelu, kInPlace | kOut},
      {"gelu_backward", {"default"}, lower_gelu_backward},
      {"silu", {"default"}, lower_silu, kInPlace | kOut},
      {"silu_backward", {"default"}, lower_silu_backward},
      {"mish", {"default"}, lower_mish, kInPlace | kOut},
      {"mish_backward", {"default"}, lower_mish_backward},
      {"tanh", {"default"}, lower_tanh, kPointwise},
      {"tanh_backward", {"default"}, lower_tanh_backward},
      {"sigmoid", {"default"}, lower_sigmoid, kPointwise},
      {"sigmoid_backward", {"default"}, lower_sigmoid_backward},
      {"log_sigmoid_forward", {"default"}, lower_log_sigmoid},
      {"log_sigmoid_backward", {"default"}, lower_log_sigmoid_backward},
      {"softplus", {"default"}, lower_softplus, kOut},
      {"softplus_backward", {"default"}, lower_softplus_backward},
  };
  return kRules;
}

}  // namespace plumbline
