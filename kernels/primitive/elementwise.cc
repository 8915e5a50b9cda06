#include "kernels/cpu/vector_math.h"
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
void pull_back1(const Attributes&, Inputs in, const Array& out, const Array& cotangent, std::span<Array* const> into) {
  if (!into[0]) return;
  contribute(
      *into[0], in[0].shape(),
      [] PLUMBLINE_HOST_DEVICE(double g, double a, double t) { return scalar::pull(g, F::derivative(a, t)); },
      cotangent, in[0], out);
}

// cotangent * sign * f(x), for derivatives that are vector functions.
template <class F, int kSign>
void pull_back_vector(const Attributes&, Inputs in, const Array& out, const Array& cotangent,
                      std::span<Array* const> into) {
  if (!into[0]) return;
  const Array slope = evaluate_vector<F>({}, out.shape(), in);
  contribute(
      *into[0], in[0].shape(), [] PLUMBLINE_HOST_DEVICE(double g, double d) { return scalar::pull(g, kSign * d); },
      cotangent, slope);
}

// 2/sqrt(pi) exp(-x^2)
void pull_back_erf(const Attributes&, Inputs in, const Array& out, const Array& cotangent,
                   std::span<Array* const> into) {
  if (!into[0]) return;
  Array exponent = Array::uninitialized(out.shape());
  loop::map(
      exponent, [] PLUMBLINE_HOST_DEVICE(double a) { return -a * a; }, in[0]);
  const Array bell = evaluate_vector<scalar::Exp>({}, out.shape(), {&exponent, 1});
  contribute(
      *into[0], in[0].shape(),
      [] PLUMBLINE_HOST_DEVICE(double g, double b) { return scalar::pull(g, 1.1283791670955126 * b); }, cotangent,
      bell);
}

// Derivative 1: the cotangent itself.
void pull_back_identity(const Attributes&, Inputs, const Array&, const Array& cotangent, std::span<Array* const> into) {
  if (into[0]) contribute_array(*into[0], cotangent);
}

void pull_back_none(const Attributes&, Inputs, const Array&, const Array&, std::span<Array* const>) {}

template <class F>
Array evaluate2(const Attributes&, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(shape);
  loop::map(out, scalar::Value<F>{}, in[0], in[1]);
  return out;
}

template <class F>
void pull_back2(const Attributes&, Inputs in, const Array& out, const Array& cotangent, std::span<Array* const> into) {
  const Shape& full = out.shape();
  if (into[0]) {
    contribute_summed(
        *into[0], in[0].shape(), full,
        [] PLUMBLINE_HOST_DEVICE(double g, double a, double b, double t) { return scalar::pull(g, F::first(a, b, t)); },
        cotangent, in[0], in[1], out);
  }
  if (into[1]) {
    contribute_summed(
        *into[1], in[1].shape(), full,
        [] PLUMBLINE_HOST_DEVICE(double g, double a, double b, double t) {
          return scalar::pull(g, F::second(a, b, t));
        },
        cotangent, in[0], in[1], out);
  }
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

// d/da = b a^(b-1), d/db = a^b log a, by their special cases (scalar::pow_first, pow_second).
void pull_back_pow(const Attributes& attributes, Inputs in, const Array& out, const Array& cotangent,
                   std::span<Array* const> into) {
  if (into[0]) {
    Array exponent = Array::uninitialized(in[1].shape());
    loop::map(
        exponent, [] PLUMBLINE_HOST_DEVICE(double b) { return b - 1; }, in[1]);
    const std::vector<Array> lower_in = {in[0], exponent};
    const Array lower = evaluate_pow(attributes, out.shape(), lower_in);
    contribute_summed(
        *into[0], in[0].shape(), out.shape(),
        [] PLUMBLINE_HOST_DEVICE(double g, double b, double power) {
          return b == 0 ? 0.0 : scalar::pull(g, b * power);
        },
        cotangent, in[1], lower);
  }
  if (into[1]) {
    contribute_summed(
        *into[1], in[1].shape(), out.shape(),
        [] PLUMBLINE_HOST_DEVICE(double g, double a, double b, double t) {
          return scalar::pull(g, scalar::pow_second(a, b, t));
        },
        cotangent, in[0], in[1], out);
  }
}

// The sum over a broadcast, or the cotangent itself.
void contribute_cotangent(Array& target, const Shape& shape, const Array& cotangent, double sign) {
  if (sign > 0 && shape == cotangent.shape()) return contribute_array(target, cotangent);
  contribute_summed(
      target, shape, cotangent.shape(), [sign] PLUMBLINE_HOST_DEVICE(double g) { return sign * g; }, cotangent);
}

template <int kSecondSign>
void pull_back_sum(const Attributes&, Inputs in, const Array&, const Array& cotangent, std::span<Array* const> into) {
  if (into[0]) contribute_cotangent(*into[0], in[0].shape(), cotangent, 1);
  if (into[1]) contribute_cotangent(*into[1], in[1].shape(), cotangent, kSecondSign);
}

// Separate from pull_back2: only what each side needs is read.
void pull_back_mul(const Attributes&, Inputs in, const Array& out, const Array& cotangent,
                   std::span<Array* const> into) {
  const auto product = [] PLUMBLINE_HOST_DEVICE(double g, double x) { return scalar::pull(g, x); };
  if (into[0]) contribute_summed(*into[0], in[0].shape(), out.shape(), product, cotangent, in[1]);
  if (into[1]) contribute_summed(*into[1], in[1].shape(), out.shape(), product, cotangent, in[0]);
}

void pull_back_div(const Attributes&, Inputs in, const Array& out, const Array& cotangent,
                   std::span<Array* const> into) {
  if (into[0]) {
    contribute_summed(
        *into[0], in[0].shape(), out.shape(),
        [] PLUMBLINE_HOST_DEVICE(double g, double b) { return g == 0 ? 0.0 : g / b; }, cotangent, in[1]);
  }
  if (into[1]) {
    contribute_summed(
        *into[1], in[1].shape(), out.shape(),
        [] PLUMBLINE_HOST_DEVICE(double g, double b, double t) { return g == 0 ? 0.0 : -g * t / b; }, cotangent, in[1],
        out);
  }
}

Array evaluate_select(const Attributes&, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(shape);
  loop::map(out, scalar::Value<scalar::Select>{}, in[0], in[1], in[2]);
  return out;
}

void pull_back_select(const Attributes&, Inputs in, const Array& out, const Array& cotangent,
                      std::span<Array* const> into) {
  if (into[1]) {
    contribute_summed(
        *into[1], in[1].shape(), out.shape(), [] PLUMBLINE_HOST_DEVICE(double g, double c) { return c != 0 ? g : 0.0; },
        cotangent, in[0]);
  }
  if (into[2]) {
    contribute_summed(
        *into[2], in[2].shape(), out.shape(), [] PLUMBLINE_HOST_DEVICE(double g, double c) { return c != 0 ? 0.0 : g; },
        cotangent, in[0]);
  }
}

using enum Primitive;
namespace s = scalar;

// Columns: primitive, name, arity, bitwise, evaluate, pull_back. Errors and radii are in element.h.
constexpr PrimitiveTraits kRows[] = {
    {kNeg, "neg", 1, true, evaluate1<s::Neg>, pull_back1<s::Neg>},
    {kAbs, "abs", 1, true, evaluate1<s::Abs>, pull_back1<s::Abs>},
    {kSign, "sign", 1, true, evaluate1<s::Sign>, pull_back_none},
    {kExp, "exp", 1, false, evaluate_vector<s::Exp>, pull_back1<s::Exp>},
    {kExpm1, "expm1", 1, false, evaluate_vector<s::Expm1>, pull_back1<s::Expm1>},
    {kLog, "log", 1, false, evaluate_vector<s::Log>, pull_back1<s::Log>},
    {kLog1p, "log1p", 1, false, evaluate_vector<s::Log1p>, pull_back1<s::Log1p>},
    {kSqrt, "sqrt", 1, false, evaluate1<s::Sqrt>, pull_back1<s::Sqrt>},
    {kRsqrt, "rsqrt", 1, false, evaluate1<s::Rsqrt>, pull_back1<s::Rsqrt>},
    {kReciprocal, "reciprocal", 1, false, evaluate1<s::Reciprocal>, pull_back1<s::Reciprocal>},
    {kSin, "sin", 1, false, evaluate_vector<s::Sin>, pull_back_vector<s::Cos, 1>},
    {kCos, "cos", 1, false, evaluate_vector<s::Cos>, pull_back_vector<s::Sin, -1>},
    {kTanh, "tanh", 1, false, evaluate_vector<s::Tanh>, pull_back1<s::Tanh>},
    {kErf, "erf", 1, false, evaluate_vector<s::Erf>, pull_back_erf},
    {kSigmoid, "sigmoid", 1, false, evaluate_vector<s::Sigmoid>, pull_back1<s::Sigmoid>},
    {kFloor, "floor", 1, true, evaluate1<s::Floor>, pull_back_none},
    {kCeil, "ceil", 1, true, evaluate1<s::Ceil>, pull_back_none},
    {kRound, "round", 1, true, evaluate1<s::Round>, pull_back_none},
    {kTrunc, "trunc", 1, true, evaluate1<s::Trunc>, pull_back_none},
    {kIsFinite, "isfinite", 1, true, evaluate1<s::IsFinite>, pull_back_none},
    {kLogicalNot, "logical_not", 1, true, evaluate1<s::LogicalNot>, pull_back_none},
    {kCast, "cast", 1, true, evaluate1<s::Identity>, pull_back_identity},
    {kQuantize, "quantize", 1, false, evaluate1<s::Identity>, pull_back_identity},

    {kAdd, "add", 2, false, evaluate2<s::Add>, pull_back_sum<1>, nullptr, nullptr, noise_add<1>},
    {kSub, "sub", 2, false, evaluate2<s::Sub>, pull_back_sum<-1>, nullptr, nullptr, noise_add<-1>},
    {kMul, "mul", 2, false, evaluate2<s::Mul>, pull_back_mul},
    {kDiv, "div", 2, false, evaluate2<s::Div>, pull_back_div},
    {kPow, "pow", 2, false, evaluate_pow, pull_back_pow},
    {kAtan2, "atan2", 2, false, evaluate_atan2, pull_back2<s::Atan2>},
    {kMax, "max", 2, true, evaluate2<s::Maximum>, pull_back2<s::Maximum>},
    {kMin, "min", 2, true, evaluate2<s::Minimum>, pull_back2<s::Minimum>},
    {kFmod, "fmod", 2, true, evaluate2<s::Fmod>, pull_back2<s::Fmod>},
    {kLess, "less", 2, true, evaluate2<s::Less>, pull_back_none},
    {kLessEqual, "less_equal", 2, true, evaluate2<s::LessEqual>, pull_back_none},
    {kGreater, "greater", 2, true, evaluate2<s::Greater>, pull_back_none},
    {kGreaterEqual, "greater_equal", 2, true, evaluate2<s::GreaterEqual>, pull_back_none},
    {kEqual, "equal", 2, true, evaluate2<s::Equal>, pull_back_none},
    {kNotEqual, "not_equal", 2, true, evaluate2<s::NotEqual>, pull_back_none},
    {kLogicalAnd, "logical_and", 2, true, evaluate2<s::LogicalAnd>, pull_back_none},
    {kLogicalOr, "logical_or", 2, true, evaluate2<s::LogicalOr>, pull_back_none},

    {kSelect, "select", 3, true, evaluate_select, pull_back_select},
};

}  // namespace

std::span<const PrimitiveTraits> elementwise_rows() { return kRows; }

}  // namespace plumbline::primitive
