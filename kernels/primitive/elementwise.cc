#include <array>

#include "kernels/cpu/vector_math.h"
#include "kernels/primitive/element.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

template <class E>
Array evaluate_each(const Attributes&, const Shape& shape, Inputs in) {
  constexpr scalar::Value<typename E::Value> kValue;
  Array out = Array::uninitialized(shape);
  if constexpr (E::kArity == 1) loop::map(out, kValue, in[0]);
  if constexpr (E::kArity == 2) loop::map(out, kValue, in[0], in[1]);
  if constexpr (E::kArity == 3) loop::map(out, kValue, in[0], in[1], in[2]);
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

// Whose operands are often broadcast: a bias, a mean, a scale.
constexpr bool often_summed(Primitive primitive) {
  return primitive >= Primitive::kAdd && primitive <= Primitive::kDiv;
}

// A loop that sums what is handed on is compiled for what is often summed; for others it is written down before.
template <class E, int kOperand>
void hand_on(Inputs in, const Array& out, const Array& cotangent, std::span<Array* const> into) {
  if constexpr (element::hands_on(E::kPrimitive, kOperand)) {
    if (!into[kOperand]) return;
    Array& to = *into[kOperand];
    const Array &a = in[0], &b = E::kArity > 1 ? in[1] : in[0];
    const Shape &shape = in[kOperand].shape(), &full = out.shape();
    constexpr element::HandedOn<E, kOperand> kHandedOn;
    if constexpr (often_summed(E::kPrimitive)) {
      contribute_summed(to, shape, full, kHandedOn, cotangent, a, b, out);
    } else if (count(shape) == count(full)) {
      contribute_reshaped(to, shape, full, kHandedOn, cotangent, a, b, out);
    } else {
      Array each = Array::uninitialized(full);
      loop::map(each, kHandedOn, cotangent, a, b, out);
      contribute_summed(to, shape, full, loop::Copy{}, each);
    }
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

// The registry row of an element. Its pull_back, local_error and radius are those of its rules (registry.cc).
struct RowOf {
  std::string_view name;

  template <class E>
  constexpr PrimitiveTraits operator()(E) const {
    using F = typename E::Value;
    PrimitiveTraits row{E::kPrimitive, name, E::kArity, E::Error::kBitwise, evaluate_each<E>};
    if constexpr (E::kPrimitive == Primitive::kPow) {
      row.evaluate = evaluate_pow;
    } else if constexpr (E::kPrimitive == Primitive::kAtan2) {
      row.evaluate = evaluate_atan2;
    } else if constexpr (cpu::kHasVector<F>) {
      row.evaluate = evaluate_vector<F>;
    }
    if constexpr (E::Error::kSecondSign != 0) row.charges = noise_add<E::Error::kSecondSign>;
    return row;
  }
};

using enum Primitive;

struct Named {
  Primitive primitive;
  std::string_view name;
};
constexpr Named kNames[] = {
    {kNeg, "neg"},
    {kAbs, "abs"},
    {kSign, "sign"},
    {kExp, "exp"},
    {kExpm1, "expm1"},
    {kLog, "log"},
    {kLog1p, "log1p"},
    {kSqrt, "sqrt"},
    {kRsqrt, "rsqrt"},
    {kReciprocal, "reciprocal"},
    {kSin, "sin"},
    {kCos, "cos"},
    {kTanh, "tanh"},
    {kErf, "erf"},
    {kSigmoid, "sigmoid"},
    {kFloor, "floor"},
    {kCeil, "ceil"},
    {kRound, "round"},
    {kTrunc, "trunc"},
    {kIsFinite, "isfinite"},
    {kLogicalNot, "logical_not"},
    {kCast, "cast"},
    {kAdd, "add"},
    {kSub, "sub"},
    {kMul, "mul"},
    {kDiv, "div"},
    {kPow, "pow"},
    {kAtan2, "atan2"},
    {kMax, "max"},
    {kMin, "min"},
    {kFmod, "fmod"},
    {kLess, "less"},
    {kLessEqual, "less_equal"},
    {kGreater, "greater"},
    {kGreaterEqual, "greater_equal"},
    {kEqual, "equal"},
    {kNotEqual, "not_equal"},
    {kLogicalAnd, "logical_and"},
    {kLogicalOr, "logical_or"},
    {kSelect, "select"},
};

constexpr bool all_named() {
  auto next = static_cast<int>(kNeg);
  for (const Named& named : kNames)
    if (static_cast<int>(named.primitive) != next++) return false;
  return next == static_cast<int>(kSelect) + 1;
}
static_assert(all_named());

constexpr auto kRows = [] {
  std::array<PrimitiveTraits, std::size(kNames)> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = element::visit(kNames[i].primitive, RowOf{kNames[i].name});
  return rows;
}();

}  // namespace

std::span<const PrimitiveTraits> elementwise_rows() { return kRows; }

decltype(PrimitiveTraits::pull_back) element_pull_back(Primitive primitive) {
  return element::visit(primitive, PullBackOf{});
}

}  // namespace plumbline::primitive
