#include "kernels/cpu/vector_math.h"
#include "kernels/primitive/derivative.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

template <class F>
Array evaluate1(const Attributes&, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(shape);
  loop::map(out, scalar::Value<F>{}, in[0]);
  return out;
}

// The same through a vector function.
template <class F>
Array evaluate_vector(const Attributes&, const Shape& shape, Inputs in) {
  const Array x = in[0].expand(shape).materialize();
  Array out = Array::uninitialized(shape);
  loop::map_wide<F, cpu::kVector<F>>(out, x);
  return out;
}

template <class F>
Array evaluate2(const Attributes&, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(shape);
  loop::map(out, scalar::Value<F>{}, in[0], in[1]);
  return out;
}

// One exponent for all elements, if it is small, as products; others through the vector function.
Array evaluate_pow(const Attributes&, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(shape);
  const double b = in[1].count() == 1 ? in[1].item() : 0.5;
  if (scalar::is_small_power(b)) {
    loop::map(
        out, [b] PLUMBLINE_HOST_DEVICE(double a) { return scalar::small_power(a, b); }, in[0]);
  } else {
    const Array x = in[0].expand(shape).materialize(), y = in[1].expand(shape).materialize();
    loop::map_wide<scalar::Pow, cpu::vector_pow>(out, x, y);
  }
  return out;
}

Array evaluate_atan2(const Attributes&, const Shape& shape, Inputs in) {
  const Array y = in[0].expand(shape).materialize(), x = in[1].expand(shape).materialize();
  Array out = Array::uninitialized(shape);
  loop::map_wide<scalar::Atan2, cpu::vector_atan2>(out, y, x);
  return out;
}

Array evaluate_select(const Attributes&, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(shape);
  loop::map(out, scalar::Value<scalar::Select>{}, in[0], in[1], in[2]);
  return out;
}

template <class E, int kOperand>
void hand_on(Inputs in, const Array& out, const Array& cotangent, std::span<Array* const> into) {
  if constexpr (element::hands_on(E::kPrimitive, kOperand)) {
    if (!into[kOperand]) return;
    contribute_summed(*into[kOperand], in[kOperand].shape(), out.shape(), element::HandedOn<E, kOperand>{}, cotangent,
                      in[0], E::kArity > 1 ? in[1] : in[0], out);
  }
}

template <class E>
void pull_back_element(const Attributes&, Inputs in, const Array& out, const Array& cotangent,
                       std::span<Array* const> into) {
  hand_on<E, 0>(in, out, cotangent, into);
  if constexpr (E::kArity > 1) hand_on<E, 1>(in, out, cotangent, into);
  if constexpr (E::kArity > 2) hand_on<E, 2>(in, out, cotangent, into);
}

struct PullBackOf {
  template <class E>
  auto operator()(E) const {
    return &pull_back_element<E>;
  }
};

using enum Primitive;
namespace s = scalar;

// Columns: primitive, name, arity, bitwise, evaluate, and the noise of additions. Errors and radii are in element.h,
// derivatives in derivative.h.
constexpr PrimitiveTraits kRows[] = {
    {kNeg, "neg", 1, true, evaluate1<s::Neg>},
    {kAbs, "abs", 1, true, evaluate1<s::Abs>},
    {kSign, "sign", 1, true, evaluate1<s::Sign>},
    {kExp, "exp", 1, false, evaluate_vector<s::Exp>},
    {kExpm1, "expm1", 1, false, evaluate_vector<s::Expm1>},
    {kLog, "log", 1, false, evaluate_vector<s::Log>},
    {kLog1p, "log1p", 1, false, evaluate_vector<s::Log1p>},
    {kSqrt, "sqrt", 1, false, evaluate1<s::Sqrt>},
    {kRsqrt, "rsqrt", 1, false, evaluate1<s::Rsqrt>},
    {kReciprocal, "reciprocal", 1, false, evaluate1<s::Reciprocal>},
    {kSin, "sin", 1, false, evaluate_vector<s::Sin>},
    {kCos, "cos", 1, false, evaluate_vector<s::Cos>},
    {kTanh, "tanh", 1, false, evaluate_vector<s::Tanh>},
    {kErf, "erf", 1, false, evaluate_vector<s::Erf>},
    {kSigmoid, "sigmoid", 1, false, evaluate_vector<s::Sigmoid>},
    {kFloor, "floor", 1, true, evaluate1<s::Floor>},
    {kCeil, "ceil", 1, true, evaluate1<s::Ceil>},
    {kRound, "round", 1, true, evaluate1<s::Round>},
    {kTrunc, "trunc", 1, true, evaluate1<s::Trunc>},
    {kIsFinite, "isfinite", 1, true, evaluate1<s::IsFinite>},
    {kLogicalNot, "logical_not", 1, true, evaluate1<s::LogicalNot>},
    {kCast, "cast", 1, true, evaluate1<s::Identity>},
    {kQuantize, "quantize", 1, false, evaluate1<s::Identity>},

    {kAdd, "add", 2, false, evaluate2<s::Add>, nullptr, nullptr, nullptr, noise_add<1>},
    {kSub, "sub", 2, false, evaluate2<s::Sub>, nullptr, nullptr, nullptr, noise_add<-1>},
    {kMul, "mul", 2, false, evaluate2<s::Mul>},
    {kDiv, "div", 2, false, evaluate2<s::Div>},
    {kPow, "pow", 2, false, evaluate_pow},
    {kAtan2, "atan2", 2, false, evaluate_atan2},
    {kMax, "max", 2, true, evaluate2<s::Maximum>},
    {kMin, "min", 2, true, evaluate2<s::Minimum>},
    {kFmod, "fmod", 2, true, evaluate2<s::Fmod>},
    {kLess, "less", 2, true, evaluate2<s::Less>},
    {kLessEqual, "less_equal", 2, true, evaluate2<s::LessEqual>},
    {kGreater, "greater", 2, true, evaluate2<s::Greater>},
    {kGreaterEqual, "greater_equal", 2, true, evaluate2<s::GreaterEqual>},
    {kEqual, "equal", 2, true, evaluate2<s::Equal>},
    {kNotEqual, "not_equal", 2, true, evaluate2<s::NotEqual>},
    {kLogicalAnd, "logical_and", 2, true, evaluate2<s::LogicalAnd>},
    {kLogicalOr, "logical_or", 2, true, evaluate2<s::LogicalOr>},

    {kSelect, "select", 3, true, evaluate_select},
};

}  // namespace

std::span<const PrimitiveTraits> elementwise_rows() { return kRows; }

decltype(PrimitiveTraits::pull_back) element_pull_back(Primitive primitive) {
  return element::visit(primitive, PullBackOf{});
}

}  // namespace plumbline::primitive
