// Adversarial inputs that come within a factor 2 of the bound: were u halved, or eta dropped, each would exceed it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/primitive/primitive.h"

namespace plumbline::soundness {
namespace {

constexpr double kU = 0x1p-24;

// The bound of a one-element result.
double bound_of(Primitive primitive, const Attributes& attributes, const std::vector<Array>& in, const Shape& shape,
                Format result = Format::kFloat32, const Profile& profile = ieee()) {
  const PrimitiveTraits& row = traits(primitive);
  const Array t = row.evaluate(attributes, shape, in);
  return row.local_error(attributes, {Format::kFloat32, result, &profile}, in, t).values.item();
}

// Legal, and only just: above half the bound.
void expect_witness(double error, double bound) {
  EXPECT_LE(error, bound);
  EXPECT_GT(error, bound / 2);
}

TEST(Witness, Add) {
  const float out = 1.0F + 0x1p-24F;
  expect_witness(std::fabs(out - (1 + 0x1p-24)),
                 bound_of(Primitive::kAdd, {}, {Array::scalar(1), Array::scalar(kU)}, {}));
}

TEST(Witness, Mul) {
  const double x = 1 + 0x1p-12;
  const float out = static_cast<float>(x) * static_cast<float>(x);
  expect_witness(std::fabs(out - x * x), bound_of(Primitive::kMul, {}, {Array::scalar(x), Array::scalar(x)}, {}));
}

TEST(Witness, MulUnderflow) {  // All of the bound is eta.
  const double x = 0x1p-75;
  const float out = static_cast<float>(x) * static_cast<float>(x);
  EXPECT_EQ(out, 0.0F);  // A tie of half the smallest subnormal, to even.
  expect_witness(x * x, bound_of(Primitive::kMul, {}, {Array::scalar(x), Array::scalar(x)}, {}));
}

TEST(Witness, Sum) {  // Every addend is half an ulp of the running sum: none moves it.
  const std::int64_t n = 4096;
  Array x = Array::full({1, n}, kU);
  x.data()[0] = 1;
  float out = 0;
  double exact = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    out += static_cast<float>(x.data()[i]);
    exact += x.data()[i];
  }
  Attributes over;
  over.dims = {1};
  expect_witness(std::fabs(out - exact), bound_of(Primitive::kSum, over, {x}, {1, 1}));
}

TEST(Witness, Matmul) {  // As the sum; rows and columns are parallel, so that Cauchy-Schwarz is an equality.
  const std::int64_t n = 64;
  Array a = Array::full({1, n}, 0x1p-12);
  a.data()[0] = 1;
  float out = 0;
  double exact = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto v = static_cast<float>(a.data()[i]);
    out = std::fma(v, v, out);
    exact += a.data()[i] * a.data()[i];
  }
  expect_witness(std::fabs(out - exact), bound_of(Primitive::kMatmul, {}, {a, a.reshape({n, 1})}, {1, 1}));
}

TEST(Witness, MatmulBegunWithABias) {  // Half an ulp of the bias each: none of the products moves it.
  const std::int64_t n = 64;
  const Array a = Array::full({1, n}, 0x1p-12), b = Array::full({n, 1}, 0x1p-12);
  float out = 1;
  for (std::int64_t i = 0; i < n; ++i) out = std::fma(0x1p-12F, 0x1p-12F, out);
  const double exact = 1 + static_cast<double>(n) * kU;
  expect_witness(std::fabs(out - exact), bound_of(Primitive::kMatmul, {}, {a, b, Array::full({1, 1}, 1)}, {1, 1}));
}

TEST(Witness, Cumsum) {
  const std::int64_t n = 256;
  Array x = Array::full({n}, kU);
  x.data()[0] = 1;
  Attributes over;
  over.dims = {0};
  const Profile profile = ieee();
  const std::vector<Array> in = {x};
  const PrimitiveTraits& row = traits(Primitive::kCumsum);
  const Array t = row.evaluate(over, {n}, in);
  const Bound bound = row.local_error(over, {Format::kFloat32, Format::kFloat32, &profile}, in, t);
  for (std::int64_t i = 1; i < n; ++i) expect_witness(t.data()[i] - 1, bound.values.data()[i]);  // It stays at 1.
  EXPECT_EQ(bound.values.data()[0], 0);
}

TEST(Witness, ScatterAdd) {
  const std::int64_t n = 128;
  Array x = Array::full({n, 1}, kU);
  x.data()[0] = 1;
  Attributes one;
  one.size = 1;
  expect_witness(static_cast<double>(n - 1) * kU,
                 bound_of(Primitive::kScatterAdd, one, {x, Array::zeros({n})}, {1, 1}));
}

TEST(Witness, StorageRounding) {
  const double tie = 1 + 0x1p-8;  // Halfway between two bf16 numbers.
  const double out = round_to(Format::kBFloat16, tie);
  expect_witness(std::fabs(out - tie), bound_of(Primitive::kCast, {}, {Array::scalar(tie)}, {}, Format::kBFloat16));
}

TEST(Witness, Constant) {
  Attributes attributes;
  attributes.scalar = 1 + 0x1p-24;
  const float out = static_cast<float>(attributes.scalar);
  expect_witness(std::fabs(out - attributes.scalar), bound_of(Primitive::kConstant, attributes, {}, {}));
  attributes.scalar = 0.5;
  const Profile profile = ieee();
  EXPECT_FALSE(traits(Primitive::kConstant)
                   .local_error(attributes, {Format::kFloat32, Format::kBFloat16, &profile}, {}, Array::scalar(0.5)));
}

TEST(Witness, Divide) {
  double worst = 0;
  for (int i = 1; i < 2000; ++i) {
    const auto a = static_cast<float>(i), b = 1.0F + 0x1p-23F * static_cast<float>(7 * i);
    const double t = static_cast<double>(a) / b;
    const double bound = bound_of(Primitive::kDiv, {}, {Array::scalar(a), Array::scalar(b)}, {});
    const double error = std::fabs(static_cast<double>(a / b) - t);
    ASSERT_LE(error, bound);
    worst = std::max(worst, error / bound);
  }
  EXPECT_GT(worst, 0.5);
}

// As devices divide by one number for all elements: a product with its rounded reciprocal.
TEST(Witness, DivideByNumber) {
  Profile profile = ieee();
  profile.functions[static_cast<int>(Function::kDivideByNumber)].ulp = 0.51;  // Of the profiles cuda-sm80 and -sm90.
  Attributes by_number;
  by_number.scalar = 1;
  double worst = 0;
  for (int i = 1; i < 2000; ++i) {
    const auto a = static_cast<float>(4001 - i), b = 1.0F + 0x1p-23F * static_cast<float>(4099 * i);
    const double t = static_cast<double>(a) / b;
    const std::vector<Array> in = {Array::scalar(a), Array::scalar(b)};
    const double bound = bound_of(Primitive::kDiv, by_number, in, {}, Format::kFloat32, profile);
    const double error = std::fabs(static_cast<double>(a * (1 / b)) - t);
    ASSERT_LE(error, bound);
    worst = std::max(worst, error / bound);
    EXPECT_EQ(bound_of(Primitive::kDiv, by_number, in, {}), bound_of(Primitive::kDiv, {}, in, {})) << "elsewhere";
  }
  EXPECT_GT(worst, 0.6);  // Beyond what one rounding may do.
}

// As devices with narrow_numbers average: beta is held in fp32, and g - beta g rounds once, its sum with beta m again.
TEST(Witness, NarrowNumbers) {
  Profile profile = ieee(), narrow = ieee();
  narrow.narrow_numbers = true;
  Attributes rest, contracted;
  rest.size = 1;
  contracted.scalar = 1;
  double worst = 0;
  for (int i = 1; i < 2000; ++i) {
    const double beta = 0.61001 + 1.3701e-4 * i;
    const auto held = static_cast<float>(beta), g = static_cast<float>(1 + 0x1p-23 * (4099 * i));
    const std::vector<Array> in = {Array::scalar(g), Array::scalar(1)};
    rest.scalar = 1 - beta;
    rest.scalar2 = std::fabs(held - beta);
    const double bound = bound_of(Primitive::kConstant, rest, {}, {}, Format::kFloat32, narrow) * g +
                         bound_of(Primitive::kMul, contracted, in, {}, Format::kFloat32, narrow) * (1 - beta);
    const double error = std::fabs(static_cast<double>(std::fma(-held, g, g)) - (1 - beta) * static_cast<double>(g));
    ASSERT_LE(error, bound);
    worst = std::max(worst, error / bound);
    // Elsewhere the number alone is rounded.
    EXPECT_LE(bound_of(Primitive::kConstant, rest, {}, {}), 0x1p-25 * (1 + 0x1p-19));
    EXPECT_FALSE(traits(Primitive::kMul)
                     .local_error(contracted, {Format::kFloat32, Format::kFloat32, &profile}, in, Array::scalar(g)));
  }
  EXPECT_GT(worst, 0.6);
}

// As devices with narrow_numbers hold a factor without dimensions: in the 16 bits of what it meets.
TEST(Witness, HeldNarrow) {
  Profile narrow = ieee();
  const Profile wide = ieee();
  narrow.narrow_numbers = true;
  Attributes held;
  held.scalar = 1;
  for (const Format format : {Format::kBFloat16, Format::kFloat16}) {
    held.narrow = format;
    double worst = 0;
    for (int i = 1; i < 2000; ++i) {
      const auto x = static_cast<double>(static_cast<float>(std::ldexp(1 + 1.3701e-4 * i, -i % 30)));
      const std::vector<Array> in = {Array::scalar(x), Array::scalar(1)};
      const double error = std::fabs(round_to(format, x) - x);
      const double bound = bound_of(Primitive::kMul, held, in, {}, Format::kFloat32, narrow);
      ASSERT_LE(error, bound);
      worst = std::max(worst, error / bound);
      EXPECT_FALSE(traits(Primitive::kMul).local_error(held, {Format::kFloat32, Format::kFloat32, &wide}, in, in[0]));
    }
    EXPECT_GT(worst, 0.9);
  }
}

// 512 lanes add 16-bit gradients as devices with narrow_numbers do: each product is rounded, and what a lane takes from
// another in nine exchanges.
double sum_of_lanes(const Array& x) {
  const auto held = [](double v) { return round_to(Format::kBFloat16, v); };
  std::vector<double> lanes;
  for (std::int64_t i = 0; i < x.count(); ++i) lanes.push_back(held(x.data()[i]));
  for (std::size_t half = lanes.size() / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) lanes[i] = round_to(Format::kFloat32, lanes[i] + held(lanes[i + half]));
  return lanes[0];
}

TEST(Witness, NarrowedParts) {
  Profile narrow = ieee();
  narrow.narrow_numbers = true;
  Attributes over;
  over.dims = {0};
  Attributes in_parts = over;
  in_parts.narrow = Format::kBFloat16;
  in_parts.scalar2 = 10;
  const auto bound = [&](const Array& x) {
    return bound_of(Primitive::kSum, in_parts, {x}, {1}, Format::kFloat32, narrow);
  };
  // The last lane's number is rounded up whenever it is handed on: who takes it adds a little more than half of what
  // bf16 tells apart.
  Array x = Array::zeros({512});
  const double more = 0x1p-8 * (1 + 0x1p-7);
  double exact = 1 + more;
  x.data()[511] = 1 + more;
  for (std::int64_t lane = 255; lane > 0; lane /= 2) {
    x.data()[lane] = more;
    exact += more;
  }
  expect_witness(std::fabs(sum_of_lanes(x) - exact), bound(x));
  EXPECT_EQ(bound_of(Primitive::kSum, in_parts, {x}, {1}), bound_of(Primitive::kSum, over, {x}, {1})) << "elsewhere";

  std::mt19937_64 rng(11);
  for (int draw = 0; draw < 400; ++draw) {
    std::uniform_real_distribution<double> number(draw % 2 == 0 ? -1 : 1, 1 + std::ldexp(1, -draw % 12));
    exact = 0;
    for (std::int64_t i = 0; i < x.count(); ++i) exact += x.data()[i] = round_to(Format::kFloat32, number(rng));
    ASSERT_LE(std::fabs(sum_of_lanes(x) - exact), bound(x));
  }
  // Below the smallest number of fp16 all is lost; where parts may overflow nothing is known.
  in_parts.narrow = Format::kFloat16;
  EXPECT_GE(bound(Array::full({512}, 0x1p-25)), 512 * 0x1p-25);
  EXPECT_LT(bound(Array::full({512}, 100)), HUGE_VAL);
  EXPECT_EQ(bound(Array::full({512}, 128)), HUGE_VAL);
}

// A mean that is kept while elements come: of whole numbers, whose sum is exact, and of numbers that are not.
TEST(Witness, RunningMean) {
  double worst = 0;
  for (int n = 2; n < 200; ++n) {
    for (const double step : {0.0, 0x1p-12, 0x1.8p-3}) {
      Attributes kept;
      kept.dims = {0};
      kept.scalar = 1;
      kept.size = static_cast<std::int64_t>(n + 7 + 3 * std::log(n + 1));  // running_mean, server/lower/emit.cc
      Array x = Array::uninitialized({n});
      float mean = 0;
      double exact = 0;
      for (int k = 0; k < n; ++k) {
        const auto element = static_cast<float>((k % 2 == 0 ? 1 : -1) + k * step);
        x.data()[k] = element;
        exact += element;
        mean += (element - mean) / static_cast<float>(k + 1);
      }
      const double bound = bound_of(Primitive::kSum, kept, {x}, {1}) / n;
      const double error = std::fabs(mean - exact / n);
      ASSERT_LE(error, bound) << n;
      worst = std::max(worst, error / bound);
    }
  }
  EXPECT_GT(worst, 0.05);  // Most of the bound is for sums that grow, of which each mean forgets a part.
}

// The compiler must not turn a * b + c into one rounding: the bounds speak of the arithmetic that is written.
TEST(Arithmetic, ContractionIsOff) {
  volatile double a = 1 + 0x1p-27, b = 1 - 0x1p-27, c = -1;
  const double x = a, y = b, z = c;
  EXPECT_EQ(x * y + z, 0.0);
  EXPECT_NE(std::fma(x, y, z), 0.0);
}

}  // namespace
}  // namespace plumbline::soundness
