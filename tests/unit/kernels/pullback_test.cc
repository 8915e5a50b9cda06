// A chain's cotangents and charges in one pass against the same node by node.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "tests/unit/kernels/pullback_cases.h"

namespace plumbline {
namespace {

TEST(Pullback, IsThatOfItsNodes) {
  testing::for_each_chain(31, [](const testing::PulledChain& chain) {
    const testing::Pulled expected = testing::pulled_by_nodes(chain);
    testing::expect_near(testing::pulled_in_one_pass(chain, 1), expected);
    testing::expect_near(testing::pulled_in_one_pass(chain, 3), expected);
  });
}

// A step hands its cotangent to both of its operands, and these may be one.
TEST(Pullback, BothOperandsMayBeOne) {
  std::mt19937_64 rng(5);
  const Shape shape = {700};
  const Profile profile = ieee();
  for (const Primitive primitive : {Primitive::kMul, Primitive::kAdd, Primitive::kSub, Primitive::kDiv}) {
    SCOPED_TRACE(traits(primitive).name);
    const Array x = testing::random_array(rng, shape, 1, 2);
    testing::PulledChain chain({"", primitive, {}, shape, {x, x}}, profile, 4);
    chain.nodes[0].inputs = {0, 0};
    chain.nodes[2].inputs = {chain.sources.size() + 1, chain.sources.size() + 1};
    testing::expect_near(testing::pulled_in_one_pass(chain, 1), testing::pulled_by_nodes(chain));
  }
}

// Elements that are not finite, with cotangents that are 0 and others that overflow when they are squared.
TEST(Pullback, ElementsBeyondMomentsCountOneByOne) {
  std::mt19937_64 rng(9);
  const Shape shape = {600};
  const Profile profile = ieee();
  for (const double far : {HUGE_VAL, -HUGE_VAL, std::nan(""), 1e300, 1e-100})
    for (const double g : {0.0, 1.0, 1e160, -1e200}) {
      SCOPED_TRACE(std::to_string(far) + " with " + std::to_string(g));
      testing::Case c{"mul",
                      Primitive::kMul,
                      {},
                      shape,
                      {testing::random_array(rng, shape, -1, 1), testing::random_array(rng, shape, -1, 1)}};
      testing::PulledChain chain(c, profile, 3);
      for (const std::int64_t i : {5, 599}) {
        chain.sources[0].data()[i] = far;
        for (std::vector<Array>& seeds : chain.seeds)
          for (Array& seed : seeds)
            if (seed) seed.data()[i] = g;
      }
      testing::expect_near(testing::pulled_in_one_pass(chain, 1), testing::pulled_by_nodes(chain));
    }
}

// Blocks each of whose moments are finite, and whose sum is not.
TEST(Pullback, SumsOfMomentsDoNotOverflow) {
  const Shape shape = {2048};
  const Profile profile = ieee();
  const Array x = Array::full(shape, 0.25).materialize();
  testing::PulledChain chain({"", Primitive::kAdd, {}, shape, {x, x}}, profile, 3);
  for (std::vector<Array>& seeds : chain.seeds)
    for (Array& seed : seeds)
      if (seed) seed = Array::full(shape, 5e152).materialize();
  const testing::Pulled found = testing::pulled_in_one_pass(chain, 1);
  for (const std::vector<Charges>& charges : found.charges)
    for (const Charges& charge : charges)
      for (const Charge& side : {charge.target, charge.own}) {
        EXPECT_TRUE(std::isfinite(side.whole));
        EXPECT_TRUE(std::isfinite(side.noise.squares));
      }
  testing::expect_near(found, testing::pulled_by_nodes(chain));
}

// Sums of moments charge no less than the elements do one by one, and hardly more: errors with and without an offset,
// below and above the width of the events, results from subnormal to large.
TEST(Pullback, MomentsChargeWhatElementsDo) {
  std::mt19937_64 rng(7);
  std::uniform_real_distribution<double> exponent(-45, 6), factor(-2, 2);
  constexpr double kU = 0x1p-24, kEta = 0x1p-150;
  for (const double slope : {0.5 * kU, kU * (1 + 0x1p-20), 3 * kU, 0x1p-9})
    for (const double offset : {0.0, kEta, 0x1p-20})
      for (const double held : {0.0, 0x1p-9}) {
        primitive::ElementRounding rounding;
        rounding.error.none = false;
        rounding.error.slope = slope;
        rounding.error.offset = offset;
        rounding.events = {kU, kEta, held, held * 0x1p-120, 1};
        ASSERT_TRUE(rounding.linear());
        primitive::Moments moments;
        double whole = 0, bias = 0, squares = 0, above = 0;
        for (int i = 0; i < 1000; ++i) {
          const double g = factor(rng), t = factor(rng) * std::pow(10, exponent(rng));
          const double size = std::fabs(g), product = size * std::fabs(t), e = rounding.error.of(t);
          moments.g += size;
          moments.gt += product;
          moments.gg += size * size;
          moments.ggt += size * product;
          moments.ggtt += product * product;
          const Totals<2> one = rounding.events.charge(g, t, e);
          whole += primitive::whole_charge(g, e);
          bias += one.of[0];
          squares += one.of[1];
          above += size * size * (e * e + rounding.events.charge(1, t, HUGE_VAL).of[1]);
        }
        const Charge found = primitive::charge_of(rounding, moments);
        const auto least = [](double x) { return x * (1 - 1e-12); };
        EXPECT_GE(found.whole, least(whole));
        EXPECT_LE(found.whole, whole * (1 + 1e-12));
        EXPECT_GE(found.noise.bias, least(bias));
        EXPECT_LE(found.noise.bias, whole * (1 + 1e-12));
        EXPECT_GE(found.noise.squares, least(squares));
        EXPECT_LE(found.noise.squares, above);
      }
}

}  // namespace
}  // namespace plumbline
