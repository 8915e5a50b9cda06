// Sums whose second term may stand for infinity (kernels/primitive/absorb.h).
#include "kernels/primitive/absorb.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/primitive/primitive.h"

namespace plumbline::soundness {
namespace {

// The derivation in absorb.h: what is said to be absorbed is so in every format.
TEST(Absorb, RoundingToNearestGivesTheLargerTerm) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> of(1, 2), sign(-1, 1);
  for (const Format format : {Format::kFloat32, Format::kBFloat16, Format::kFloat64}) {
    std::uniform_int_distribution<int> exponent(65, traits(format).exponent_max - 1);
    for (int i = 0; i < 20000; ++i) {
      // Powers of two too, below which the grid is finer.
      const double mantissa = i % 2 == 0 ? 1 : round_to(format, of(random));
      const double b = std::copysign(std::ldexp(mantissa, exponent(random)), sign(random));
      const double a =
          std::copysign(std::fabs(b) * primitive::kAbsorbed * (i % 3 == 0 ? 1 : of(random) / 2), sign(random));
      ASSERT_TRUE(primitive::absorbed(a, b));
      ASSERT_EQ(round_to(format, a + b), b) << a << " + " << b;
      ASSERT_EQ(round_to(format, a - b), -b) << a << " - " << b;
    }
  }
}

// An execution whose operands lie anywhere within their balls, on whichever side of the step between both meanings,
// lies within what the balls make of the sum and its rounding at their farthest points.
TEST(Absorb, RadiusAndRoundingHoldExecutionsOnBothSidesOfTheStep) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> unit(0, 1);
  const auto between = [&](double low, double high) { return low + (high - low) * unit(random); };
  const Profile profile;
  Attributes absorbs;
  absorbs.scalar = 1;
  int flips = 0;
  for (const Format format : {Format::kFloat32, Format::kFloat64}) {
    for (int i = 0; i < 40000; ++i) {
      const double size = std::ldexp(between(1, 2), static_cast<int>(between(62, 120)));
      const double b = round_to(format, std::copysign(size, between(-1, 1)));
      const double a = b * std::ldexp(between(-2, 2), static_cast<int>(between(-78, -50)));
      const double ra = std::fabs(a) * std::ldexp(between(0, 2), static_cast<int>(between(-30, 3))),
                   rb = i % 2 == 0 ? 0 : std::fabs(b) * std::ldexp(1, -static_cast<int>(between(10, 60)));
      const std::vector<Array> centres{Array::scalar(a), Array::scalar(b)};
      const std::vector<Bound> radii{{Array::scalar(ra)}, {Array::scalar(rb)}};
      const auto& sum = traits(Primitive::kAdd);
      const Array t = sum.evaluate(absorbs, {}, centres);
      const double carried = sum.radius(absorbs, centres, radii, t).values.item();
      const std::vector<Array> far{Array::scalar(std::fabs(a) + ra), Array::scalar(std::fabs(b) + rb)};
      const Bound error = sum.local_error(absorbs, {format, format, &profile}, far,
                                          Array::scalar(std::copysign(std::fabs(t.item()) + carried, t.item())));
      const double radius = carried * (1 + 0x1p-40) + error.values.item();

      const double x = a + between(-1, 1) * ra, y = round_to(format, b + between(-1, 1) * rb);
      if (std::fabs(y - b) > rb) continue;  // Rounded out of it.
      using Wide = __float128;
      const Wide exact = primitive::absorbed(a, b) ? Wide(b) : Wide(a) + b;
      const Wide executed = round_to(format, x + y);
      const Wide off = executed > exact ? executed - exact : exact - executed;
      ASSERT_LE(static_cast<double>(off), radius) << a << " + " << b << " within " << ra << " and " << rb;
      flips += primitive::absorbed(a, b) != primitive::absorbed(x, y);
    }
  }
  EXPECT_GT(flips, 100);
}

}  // namespace
}  // namespace plumbline::soundness
