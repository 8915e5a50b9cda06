// Every fp16 and bf16 input of every unary function, computed by the C library in fp32 and rounded to the format,
// against MPFR.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/soundness/exact.h"

namespace plumbline::soundness {
namespace {

struct Unary {
  Primitive primitive;
  float (*compute)(float);
};

const Unary kUnary[] = {
    {Primitive::kNeg, [](float x) { return -x; }},
    {Primitive::kAbs, [](float x) { return std::fabs(x); }},
    {Primitive::kSign, [](float x) { return static_cast<float>(x > 0) - static_cast<float>(x < 0); }},
    {Primitive::kExp, [](float x) { return std::exp(x); }},
    {Primitive::kExpm1, [](float x) { return std::expm1(x); }},
    {Primitive::kLog, [](float x) { return std::log(x); }},
    {Primitive::kLog1p, [](float x) { return std::log1p(x); }},
    {Primitive::kSqrt, [](float x) { return std::sqrt(x); }},
    {Primitive::kRsqrt, [](float x) { return 1.0F / std::sqrt(x); }},
    {Primitive::kReciprocal, [](float x) { return 1.0F / x; }},
    {Primitive::kSin, [](float x) { return std::sin(x); }},
    {Primitive::kCos, [](float x) { return std::cos(x); }},
    {Primitive::kTanh, [](float x) { return std::tanh(x); }},
    {Primitive::kErf, [](float x) { return std::erf(x); }},
    {Primitive::kSigmoid, [](float x) { return 1.0F / (1.0F + std::exp(-x)); }},
    {Primitive::kFloor, [](float x) { return std::floor(x); }},
    {Primitive::kCeil, [](float x) { return std::ceil(x); }},
    {Primitive::kRound, [](float x) { return std::nearbyint(x); }},
    {Primitive::kTrunc, [](float x) { return std::trunc(x); }},
    {Primitive::kIsFinite, [](float x) { return std::isfinite(x) ? 1.0F : 0.0F; }},
    {Primitive::kLogicalNot, [](float x) { return x == 0 ? 1.0F : 0.0F; }},
    {Primitive::kCast, [](float x) { return x; }},
};

// The C library keeps 2 ULP for all of these in fp32, and the sigmoid's three steps 3.
Profile c_library() {
  Profile profile = ieee();
  for (FunctionError& error : profile.functions) error.ulp = std::max(error.ulp, 2.0);
  profile.functions[static_cast<int>(Function::kSigmoid)] = {3, 0x1p-126};
  profile.functions[static_cast<int>(Function::kDivide)].ulp = 0;
  profile.functions[static_cast<int>(Function::kSqrt)].ulp = 0;
  return profile;
}

class Exhaustive : public ::testing::TestWithParam<Format> {};

TEST_P(Exhaustive, UnaryFunctionsStayWithinTheirBound) {
  const Format format = GetParam();
  const Profile profile = c_library();
  const Arithmetic arithmetic{Format::kFloat32, format, &profile};
  Array x = Array::uninitialized({65536});
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  decode(format, patterns.data(), 65536, x.data());
  const std::vector<Array> in = {x};
  const Attributes attributes;
  for (const Unary& unary : kUnary) {
    const PrimitiveTraits& row = traits(unary.primitive);
    SCOPED_TRACE(row.name);
    const Array t = row.evaluate(attributes, x.shape(), in);
    const Bound bound = row.local_error(attributes, arithmetic, in, t);
    int checked = 0;
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const Exact exact = exact_function(unary.primitive, x.data()[i]);
      const double truth = exact.value;
      const double out = round_to(format, unary.compute(static_cast<float>(x.data()[i])));
      const double b = bound ? bound.values.data()[i] : 0.0;
      if (std::isnan(truth)) {
        ASSERT_TRUE(std::isnan(out)) << x.data()[i];
      } else if (std::isinf(truth)) {
        ASSERT_EQ(out, t.data()[i]) << x.data()[i];  // At -0 MPFR's pole of rsqrt is positive, IEEE 754's negative.
      } else if (std::fabs(truth) + b > largest_finite(format)) {
        continue;  // Overflow is the range lane's.
      } else {
        ASSERT_LE(distance(out, exact), b) << "x " << x.data()[i] << " exact " << truth;
        ++checked;
      }
    }
    EXPECT_GT(checked, 10000);
  }
}

TEST(ExhaustiveRegistry, NoUnaryFunctionIsLeftOut) {
  for (const PrimitiveTraits& row : all_primitives()) {
    if (row.arity != 1 ||
        (class_of(row.primitive) != PrimitiveClass::kElementwise && row.primitive != Primitive::kCast))
      continue;
    EXPECT_EQ(std::count_if(std::begin(kUnary), std::end(kUnary),
                            [&row](const Unary& unary) { return unary.primitive == row.primitive; }),
              1)
        << row.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Exhaustive, ::testing::Values(Format::kFloat16, Format::kBFloat16),
                         [](const auto& info) { return std::string(traits(info.param).name); });

}  // namespace
}  // namespace plumbline::soundness
