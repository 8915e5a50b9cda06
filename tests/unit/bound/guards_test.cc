#include "server/bound/findings/guards.h"

#include <gtest/gtest.h>

#include <numbers>

#include "server/bound/replay/certain.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using Why = GuardFinding::Why;

// lr = 1 + cos(x), as cosine decay ends; at x = pi the exact value is 0 and rounding decides its sign.
struct Cosine {
  explicit Cosine(double x, bool clamped = false) {
    NodeId node = builder.op(Primitive::kCos, {builder.leaf({1}, {x})}, {1});
    node = builder.op(Primitive::kAdd, {node, constant(1)}, {1});
    if (clamped) node = builder.op(Primitive::kMax, {node, constant(0)}, {1});
    lr = node;
  }
  NodeId constant(double value) {
    Attributes attributes;
    attributes.scalar = value;
    return builder.op(Primitive::kConstant, {}, {1}, Format::kFloat32, attributes);
  }
  std::vector<GuardFinding> guarded(double observed, Guard guard) {
    builder.tap("lr", TapKind::kValue, lr, {observed});
    builder.graph.taps.back().guard = guard;
    const Replay exact = replay(builder.graph, leaf_values(builder.graph), Precision::kExact);
    return check_guards(builder.graph, exact, profile);
  }
  test::GraphBuilder builder;
  Profile profile;
  NodeId lr = 0;
};

constexpr double kPi = std::numbers::pi_v<float>;

TEST(Guards, RoundingAloneCanMakeTheRateNegative) {
  const auto findings = Cosine(kPi).guarded(0, {.minimum = 0});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].why, Why::kRounding);
  EXPECT_LT(findings[0].low, 0);
  EXPECT_EQ(findings[0].share, 0);
  EXPECT_TRUE(findings[0].owner.has_value());
}

TEST(Guards, ObservedBeyondTheLimitIsCounted) {
  const auto findings = Cosine(kPi).guarded(-1e-7, {.minimum = 0});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].why, Why::kRounding);
  EXPECT_EQ(findings[0].share, 1);
}

TEST(Guards, AClampIsARemedy) { EXPECT_TRUE(Cosine(kPi, true).guarded(0, {.minimum = 0}).empty()); }

TEST(Guards, ASquareIsARemedy) {
  Cosine cosine(kPi);
  cosine.lr = cosine.builder.op(Primitive::kMul, {cosine.lr, cosine.lr}, {1});
  EXPECT_TRUE(cosine.guarded(0, {.minimum = 0}).empty());
}

TEST(Guards, FarFromTheLimitNothingIsSaid) {
  EXPECT_TRUE(Cosine(1).guarded(1.54, {.minimum = 0, .maximum = 2}).empty());
}

TEST(Guards, MathematicsIsNotRounding) {
  const auto findings = Cosine(0).guarded(2, {.maximum = 1.5});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].why, Why::kMathematics);
  EXPECT_FALSE(findings[0].minimum);
}

TEST(Guards, AnIllegalValueIsNotRoundingEither) {
  const auto findings = Cosine(1).guarded(-3, {.minimum = 0});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].why, Why::kExecution);
}

TEST(Guards, ACosineThatKeepsItsRangeKeepsTheGuard) {
  Cosine promised(kPi);
  promised.profile = ieee();
  EXPECT_TRUE(promised.guarded(0, {.minimum = 0}).empty());
}

TEST(Guards, NanNeverKeepsAGuard) {
  EXPECT_EQ(Cosine(1).guarded(std::numeric_limits<double>::quiet_NaN(), {.minimum = 0}).size(), 1u);
}

TEST(Certain, OnlyWhatNoRoundingChanges) {
  test::GraphBuilder builder;
  const NodeId x = builder.leaf({2}, {-1, 3}), y = builder.leaf({2}, {1, 2});
  const NodeId product = builder.op(Primitive::kMul, {y, y}, {2});
  const NodeId cosine = builder.op(Primitive::kCos, {x}, {2});
  const NodeId magnitude = builder.op(Primitive::kAbs, {x}, {2});
  const NodeId lowest = builder.op(Primitive::kMin, {x, y}, {2});
  const NodeId difference = builder.op(Primitive::kSub, {y, x}, {2});
  builder.tap("all", TapKind::kValue, difference, {2, -1});
  const std::vector<NodeId> wanted{product, cosine, magnitude, lowest, difference};
  const Replay values = replay(builder.graph, leaf_values(builder.graph), Precision::kExact);
  const std::vector<Interval> ranges = certain_ranges(builder.graph, values, wanted, Profile());
  EXPECT_EQ(ranges[product].low, 0);
  EXPECT_EQ(ranges[cosine].low, -std::numeric_limits<double>::infinity()) << "a device's cosine may leave [-1, 1]";
  EXPECT_EQ(certain_ranges(builder.graph, values, wanted, ieee())[cosine].low, -1) << "but not one that promises";
  EXPECT_EQ(ranges[magnitude].high, 3);
  EXPECT_EQ(ranges[magnitude].low, 0);
  EXPECT_EQ(ranges[lowest].high, 2);
  EXPECT_EQ(ranges[difference].low, -std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace plumbline
