// Every enclosure holds the images of points drawn from its ball, corners included, and is of use: finite for small
// radii, and not far above what the corners reach.
#include "kernels/primitive/rule/radius.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/chain.h"
#include "kernels/profile.h"
#include "tests/unit/kernels/cases.h"
#include "tests/unit/kernels/product_above_cases.h"

namespace plumbline {
namespace {

TEST(Radius, ProductsAreAboveAndNear) { testing::expect_products_above(); }

using testing::Case;

bool is_index(Primitive p, std::size_t input) {
  return (p == Primitive::kGatherRows || p == Primitive::kScatterAdd) && input == 1;
}

Bound random_radius(std::mt19937_64& rng, const Shape& shape, double scale) {
  Bound bound{testing::random_array(rng, shape, 0, scale)};
  for (std::int64_t i = 0; i < bound.values.count(); ++i) {
    if (rng() % 4 == 0) bound.values.data()[i] = 0;
  }
  return bound;
}

Array displaced(std::mt19937_64& rng, const Array& centre, const Bound& radius, bool corner) {
  const Array c = centre.materialize();
  if (!radius) return c;
  const Array r = radius.values.materialize();
  Array moved = Array::uninitialized(c.shape());
  std::uniform_real_distribution<double> unit(-1, 1);
  for (std::int64_t i = 0; i < c.count(); ++i) {
    const double step = corner ? (rng() % 2 == 0 ? 1.0 : -1.0) : unit(rng);
    moved.data()[i] = c.data()[i] + step * r.data()[i];
  }
  return moved;
}

class RadiusTest : public ::testing::TestWithParam<double> {};

TEST_P(RadiusTest, HoldsImagesOfTheBall) {
  const double scale = GetParam();
  std::mt19937_64 rng(11);
  for (const Case& c : testing::cases(5)) {
    SCOPED_TRACE(c.name);
    if (c.primitive == Primitive::kLeaf) continue;
    const PrimitiveTraits& row = traits(c.primitive);
    const Array out = row.evaluate(c.attributes, c.shape, c.inputs).materialize();
    for (int trial = 0; trial < 8; ++trial) {
      std::vector<Bound> radii(c.inputs.size());
      for (std::size_t i = 0; i < radii.size(); ++i) {
        const bool exact = is_index(c.primitive, i) || (trial > 0 && rng() % 3 == 0);
        if (!exact) radii[i] = random_radius(rng, c.inputs[i].shape(), scale);
      }
      const Bound bound = row.radius(c.attributes, c.inputs, radii, out);
      const Array limit = bound ? bound.values.materialize() : Array::zeros(c.shape);
      ASSERT_EQ(limit.shape(), c.shape);
      double reached = 0, largest = 0;
      for (int point = 0; point < 40; ++point) {
        std::vector<Array> moved;
        for (std::size_t i = 0; i < radii.size(); ++i) {
          moved.push_back(displaced(rng, c.inputs[i], radii[i], point % 2 == 0));
        }
        const Array image = row.evaluate(c.attributes, c.shape, moved).materialize();
        for (std::int64_t j = 0; j < out.count(); ++j) {
          const double b = limit.data()[j];
          ASSERT_FALSE(std::isnan(b));
          ASSERT_GE(b, 0);
          const double d = std::fabs(image.data()[j] - out.data()[j]);
          if (std::isnan(d)) continue;  // Outside the domain.
          ASSERT_LE(d, b * (1 + 1e-12) + 1e-13) << "element " << j << " trial " << trial;
          reached = std::max(reached, d);
          largest = std::max(largest, b);
        }
      }
      if (scale < 1e-3 && reached > 0) {
        EXPECT_LT(largest, std::isfinite(largest) ? 40 * reached + 1e-12 : 0) << "trial " << trial;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, RadiusTest, ::testing::Values(1e-9, 1e-4, 0.3, 5.0));

TEST(Radius, ExactInputsGiveExactOutputs) {
  for (const Case& c : testing::cases(6)) {
    SCOPED_TRACE(c.name);
    if (c.primitive == Primitive::kLeaf) continue;
    const PrimitiveTraits& row = traits(c.primitive);
    const Array out = row.evaluate(c.attributes, c.shape, c.inputs);
    const std::vector<Bound> exact(c.inputs.size());
    EXPECT_FALSE(row.radius(c.attributes, c.inputs, exact, out));
  }
}

// Radii of a operation b in a chain, whose blocks take a plain formula where no element is a special case.
std::vector<double> chained(Primitive operation, const std::vector<double> (&of)[4]) {
  const auto array = [](const std::vector<double>& values) {
    Array made = Array::uninitialized({std::ssize(values)});
    std::ranges::copy(values, made.data());
    return made;
  };
  const Profile profile = ieee();
  Chain chain({{false, true}, {false, true}}, true);
  chain.add(operation, {}, std::vector<std::size_t>{0, 1}, {Format::kFloat32, Format::kFloat32, &profile});
  chain.ask({2});
  const std::vector<ChainInput> inputs = {{array(of[0]), nullptr, Format::kUnknown, {array(of[1])}},
                                          {array(of[2]), nullptr, Format::kUnknown, {array(of[3])}}};
  const Array found = run(chain, inputs, std::ssize(of[0])).radii.front().values;
  return {found.data(), found.data() + found.count()};
}

TEST(Radius, OneSpecialElementChangesNoOtherOfAChain) {
  constexpr std::size_t kCount = 1000, kEvery = 100;  // Less than a block.
  std::mt19937_64 rng(3);
  const auto drawn = [&](double size) {
    const Array values = testing::random_array(rng, {kCount}, size, 2 * size);
    return std::vector<double>(values.data(), values.data() + kCount);
  };
  for (const Primitive operation : {Primitive::kAdd, Primitive::kSub, Primitive::kMul, Primitive::kDiv})
    for (const auto& [a, b] : {std::pair{1.0, 3.0}, {1e-20, 1e30}, {1e-150, 1e-160}, {1e150, 1e160}}) {
      SCOPED_TRACE(std::string(traits(operation).name) + " of " + std::to_string(std::log10(a)));
      std::vector<double> of[4] = {drawn(a), drawn(1e-7 * a), drawn(b), drawn(1e-7 * b)};
      for (std::size_t i = 0; i < kCount; i += 3) of[0][i] *= -1;
      const std::vector<double> plain = chained(operation, of);
      for (std::size_t i = kEvery / 2; i < kCount; i += kEvery) {
        of[0][i] = of[1][i] = of[3][i] = 0;
        of[2][i] = 1;
      }
      const std::vector<double> beside = chained(operation, of);
      for (std::size_t i = 0; i < kCount; ++i) {
        if (i % kEvery == kEvery / 2) continue;
        if (std::isinf(plain[i])) {
          EXPECT_EQ(beside[i], plain[i]);
        } else {
          EXPECT_GT(plain[i], 0);
          EXPECT_NEAR(beside[i], plain[i], 0x1p-39 * plain[i]);
        }
      }
    }
}

// The plain formulas against how far the ball's farthest corner is from its centre, a sum of positive terms that 64
// bits of a wider range hold to 2^-60, at all sizes of operands.
TEST(Radius, PlainFormulasAreAboveTheFarthestCorner) {
  namespace element = primitive::element;
  using Wide = long double;
  std::mt19937_64 rng(8);
  std::uniform_real_distribution<double> exponent(-1074, 1023), unit(-1, 1), digits(0, 60);
  const auto drawn = [&](bool near_one) {
    return unit(rng) * std::exp2(near_one ? exponent(rng) / 64 : exponent(rng));
  };
  int plain = 0;
  const auto look = [&](double radius, double t, Wide farthest) {
    if (!element::is_plain(radius, t)) return;
    ++plain;
    EXPECT_GE(radius * (1 + Wide{0x1p-40}), farthest * (1 + Wide{0x1p-60}));
    EXPECT_LE(radius, farthest * (1 + Wide{0x1p-50}));
  };
  for (int i = 0; i < 200000; ++i) {
    const bool near_one = i % 2 == 0;
    const double a = drawn(near_one), b = drawn(near_one);
    const double ra = std::fabs(i % 3 == 0 ? a * std::exp2(-digits(rng)) : drawn(near_one));
    const double rb = std::fabs(i % 5 == 0 ? std::nextafter(b, 0.0) : b * std::exp2(-digits(rng)));
    SCOPED_TRACE(std::to_string(i));
    const Wide x = std::fabs(a), y = std::fabs(b), rx = ra, ry = rb;
    look(element::Sum::plain(a, ra, b, rb, a + b), a + b, rx + ry);
    look(element::Product::plain(a, ra, b, rb, a * b), a * b, x * ry + y * rx + rx * ry);
    look(element::Quotient::plain(a, ra, b, rb, a / b), a / b, (rx + x / y * ry) / (y - ry));
  }
  EXPECT_GT(plain, 200000);
}

TEST(Radius, DivisionByABallAroundZeroIsUnbounded) {
  const std::vector<Array> in = {Array::scalar(1), Array::scalar(0.5)};
  const std::vector<Bound> radii = {Bound{}, Bound{Array::scalar(0.5)}};
  const Array out = Array::scalar(2);
  EXPECT_TRUE(std::isinf(traits(Primitive::kDiv).radius({}, in, radii, out).values.item()));
  const std::vector<Array> one = {Array::scalar(0.5)};
  const std::vector<Bound> radius = {Bound{Array::scalar(0.75)}};
  EXPECT_TRUE(std::isinf(traits(Primitive::kReciprocal).radius({}, one, radius, out).values.item()));
  EXPECT_TRUE(std::isinf(traits(Primitive::kLog).radius({}, one, radius, Array::scalar(std::log(0.5))).values.item()));
}

TEST(Radius, AnExactInfinityIsFarFromAFiniteBall) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<Array> in = {Array::scalar(3), Array::scalar(-infinity)};
  const auto radius = [&](double r) {
    const std::vector<Bound> radii = {Bound{Array::scalar(r)}, Bound{}};
    return traits(Primitive::kLess).radius({}, in, radii, Array::scalar(0)).values.item();
  };
  EXPECT_EQ(radius(1e30), 0);
  EXPECT_GE(radius(infinity), 1);
}

TEST(Radius, AnUndecidedSelectCoversBothSides) {
  const std::vector<Array> in = {Array::scalar(1), Array::scalar(3), Array::scalar(-2)};
  const std::vector<Bound> open = {Bound{Array::scalar(1)}, Bound{}, Bound{Array::scalar(0.5)}};
  EXPECT_GE(traits(Primitive::kSelect).radius({}, in, open, Array::scalar(3)).values.item(), 5.5);
  const std::vector<Bound> decided = {Bound{Array::scalar(0)}, Bound{}, Bound{Array::scalar(0.5)}};
  EXPECT_EQ(traits(Primitive::kSelect).radius({}, in, decided, Array::scalar(3)).values.item(), 0);
}

}  // namespace
}  // namespace plumbline
