#include "server/bound/findings/hazards.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

// Programs are written with the builder; `phase` is that of everything which follows.
class Hazards : public testing::Test {
 protected:
  NodeId op(Primitive primitive, std::vector<NodeId> inputs, Shape shape, Format format, Phase phase) {
    const NodeId node = builder_.op(primitive, std::move(inputs), std::move(shape), format);
    builder_.graph.origins.back().phase = phase;
    return node;
  }
  NodeId weight(const std::vector<double>& values, Format format) {
    return builder_.leaf({static_cast<std::int64_t>(values.size())}, values, format, "param:w", LeafRole::kParameter);
  }
  std::vector<HazardFinding> found(NodeId result, bool not_finite = false) {
    const Shape& shape = builder_.graph.nodes[result].shape;
    builder_.tap("result", TapKind::kValue, result, std::vector<double>(static_cast<std::size_t>(count(shape))));
    const Replay exact = replay(builder_.graph, leaf_values(builder_.graph), Precision::kExact);
    HazardSearch search(builder_.graph, exact, exact);
    look(builder_.graph, exact, search.looks());
    look(builder_.graph, exact, search.looks_between());
    return search.find(not_finite);
  }
  // A gradient of these values, cast to `format`.
  std::vector<HazardFinding> gradient(const std::vector<double>& values, Format format) {
    const NodeId wide = builder_.leaf({static_cast<std::int64_t>(values.size())}, values, Format::kFloat64);
    return found(op(Primitive::kCast, {wide}, {static_cast<std::int64_t>(values.size())}, format, Phase::kBackward));
  }
  test::GraphBuilder builder_;
};

TEST_F(Hazards, UnscaledGradientsUnderflowAndTheScaleSavesThem) {
  const std::vector<double> values{3e-8, -1e-8, 2e-8, 0};
  const auto findings = gradient(values, Format::kFloat16);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, HazardKind::kUnderflow);
  EXPECT_EQ(findings[0].share, 1);  // The zero counts for nothing.
  ASSERT_TRUE(findings[0].scale_min.has_value());
  std::vector<double> scaled;
  for (double value : values) scaled.push_back(std::ldexp(value, *findings[0].scale_min));
  for (double value : scaled)
    EXPECT_LE(std::fabs(value - round_to(Format::kFloat16, value)), std::ldexp(std::fabs(value), -8));
  EXPECT_LT(*findings[0].scale_min, *findings[0].scale_max);
}

// A difference of two terms of which rounding leaves nothing: what was observed is 0, and says nothing of how much
// there was.
TEST_F(Hazards, WhatCancelsWholeIsSeenInExactValues) {
  const NodeId x = builder_.leaf({2}, {1.0, 2.0}), near = builder_.leaf({2}, {1 + 0x1p-12, 2 + 0x1p-12});
  const NodeId one = builder_.leaf({}, {1.0});
  const NodeId a = op(Primitive::kMul, {near, one}, {2}, Format::kBFloat16, Phase::kForward),
               b = op(Primitive::kMul, {x, one}, {2}, Format::kBFloat16, Phase::kForward);
  const NodeId difference = op(Primitive::kSub, {a, b}, {2}, Format::kBFloat16, Phase::kForward);
  builder_.tap("result", TapKind::kValue, difference, {0, 0});
  const std::vector<LeafValue> leaves = leaf_values(builder_.graph);
  const Replay exact = replay(builder_.graph, leaves, Precision::kExact);
  Array rounded = Array::uninitialized({2});
  rounded.data()[0] = 1;
  rounded.data()[1] = 2;
  const Overrides observed = {{a, rounded}, {b, rounded}};
  const Replay between = replay(builder_.graph, leaves, Precision::kExact, observed, &exact);
  HazardSearch search(builder_.graph, exact, between);
  look(builder_.graph, exact, search.looks());
  look(builder_.graph, between, search.looks_between());
  const std::vector<HazardFinding> findings = search.find(false);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, HazardKind::kCancellation);
  EXPECT_EQ(findings[0].node, difference);
  EXPECT_GT(findings[0].harm, 0x1p12);
}

TEST_F(Hazards, TheTailOfAGradientIsNoHazard) {
  // Subnormal elements beside ordinary ones.
  EXPECT_TRUE(gradient({1e-2, -2e-2, 1e-6, 3e-7}, Format::kFloat16).empty());
}

TEST_F(Hazards, BrainFloatReachesAsFarAsSingle) { EXPECT_TRUE(gradient({3e-8, 1e-8}, Format::kBFloat16).empty()); }

TEST_F(Hazards, OverflowNamesTheShareAndTheScale) {
  const auto findings = gradient({1e6, 3, -1e5, 2}, Format::kFloat16);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, HazardKind::kOverflow);
  EXPECT_EQ(findings[0].share, 0.5);
  EXPECT_EQ(*findings[0].scale_max, -4);  // 1e6 / 16 = 62500 fits, 1e6 / 8 does not.
}

TEST_F(Hazards, WideFormatsAreLookedAtWhereATapIsNotFinite) {
  const NodeId x = builder_.leaf({2}, {1e30, 1}, Format::kFloat32);
  const NodeId square = op(Primitive::kMul, {x, x}, {2}, Format::kFloat32, Phase::kForward);
  const auto findings = found(square, true);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, HazardKind::kOverflow);
  EXPECT_FALSE(findings[0].scale_max.has_value());
}

TEST_F(Hazards, UpdatesBelowHalfAPlaceAreLost) {
  // A step is lost where its weight is over 2048 times larger, in fp16.
  const NodeId w = weight({1, 1, 1, 1}, Format::kFloat16);
  const NodeId step = builder_.leaf({4}, {1e-4, 2e-4, -1e-4, 2e-3}, Format::kFloat32);
  const NodeId scaled = op(Primitive::kMul, {step, step}, {4}, Format::kFloat32, Phase::kOptimizer);
  const NodeId next = op(Primitive::kAdd, {w, scaled}, {4}, Format::kFloat16, Phase::kOptimizer);
  const auto findings = found(next);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, HazardKind::kLostUpdates);
  EXPECT_EQ(findings[0].share, 1);
  EXPECT_EQ(findings[0].node, next);
}

TEST_F(Hazards, AWeightReadWideAndStoredNarrowLosesItsUpdateAsWell) {
  const NodeId w = weight({1, 1}, Format::kBFloat16);
  const NodeId wide = op(Primitive::kCast, {w}, {2}, Format::kFloat32, Phase::kOptimizer);
  const NodeId next =
      op(Primitive::kSub, {wide, builder_.leaf({2}, {1e-3, 1e-3})}, {2}, Format::kFloat32, Phase::kOptimizer);
  const auto findings = found(op(Primitive::kCast, {next}, {2}, Format::kBFloat16, Phase::kOptimizer));
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, HazardKind::kLostUpdates);
}

TEST_F(Hazards, AMasterCopyKeepsThem) {
  const NodeId w = weight({1, 1}, Format::kFloat32);
  const NodeId next =
      op(Primitive::kSub, {w, builder_.leaf({2}, {1e-4, 2e-4})}, {2}, Format::kFloat32, Phase::kOptimizer);
  EXPECT_TRUE(found(op(Primitive::kCast, {next}, {2}, Format::kFloat16, Phase::kOptimizer)).empty());
}

// Most of the large weight's tiles are not looked at: it must not count for less than the small one.
TEST_F(Hazards, OfLargeWeightsSomeTilesStandForAll) {
  constexpr std::int64_t kMany = std::int64_t{61} << 14;
  const auto step = [&](std::int64_t n, double by, NodeId w) {
    const NodeId addend = builder_.leaf({n}, std::vector<double>(static_cast<std::size_t>(n), by));
    return op(Primitive::kSub, {w, addend}, {n}, Format::kBFloat16, Phase::kOptimizer);
  };
  std::vector<double> values(kMany, 1);
  for (std::int64_t i = kMany / 2; i < kMany; ++i) values[static_cast<std::size_t>(i)] = 0;  // These move.
  const NodeId large = step(kMany, 1e-3, weight(values, Format::kBFloat16));
  const NodeId small = step(std::int64_t{1} << 14, 1e-3, weight(std::vector<double>(1 << 14, 0), Format::kBFloat16));
  builder_.tap("small", TapKind::kValue, small, std::vector<double>(1 << 14));
  const auto findings = found(large);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, HazardKind::kLostUpdates);
  EXPECT_EQ(findings[0].node, large);
  EXPECT_NEAR(findings[0].share, 0.5 * 61 / 62, 1.0 / 16);
}

// What lies in no chain is looked at as a whole, and counts for no more than it is.
TEST_F(Hazards, LargeWeightsOutsideOfChainsCountOnce) {
  constexpr std::int64_t kRows = 1024, kColumns = 1024;
  const NodeId w = builder_.leaf({kRows, kColumns}, std::vector<double>(kRows * kColumns, 1), Format::kBFloat16,
                                 "param:wide", LeafRole::kParameter);
  const NodeId column = builder_.leaf({kRows, 1}, std::vector<double>(kRows, 1e-3));
  const NodeId lost = op(Primitive::kSub, {w, column}, {kRows, kColumns}, Format::kBFloat16, Phase::kOptimizer);
  builder_.tap("lost", TapKind::kValue, lost, std::vector<double>(kRows * kColumns));
  constexpr std::int64_t kMoving = std::int64_t{1} << 14;
  const NodeId steps = builder_.leaf({kMoving}, std::vector<double>(kMoving, 1));
  const NodeId moved = op(Primitive::kSub, {weight(std::vector<double>(kMoving, 1), Format::kBFloat16), steps},
                          {kMoving}, Format::kBFloat16, Phase::kOptimizer);
  EXPECT_TRUE(found(moved).empty()) << "1049 of 17433 are lost";
}

class RunningSum : public Hazards {
 protected:
  // Adds `terms` ones to a start value, in a loop.
  std::vector<HazardFinding> summed(double start, int terms, Format format) {
    const NodeId one = builder_.leaf({}, {1}, format);
    NodeId sum = builder_.leaf({}, {start}, format);
    for (int i = 0; i < terms; ++i) {
      sum = op(Primitive::kAdd, {sum, one}, {}, format, Phase::kForward);
      builder_.graph.origins.back().source = "train.py:7";
    }
    return found(sum);
  }
};

TEST_F(RunningSum, StagnatesWhereIncrementsAreBelowHalfAPlace) {
  const auto findings = summed(4096, 16, Format::kFloat16);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, HazardKind::kStagnation);
}

TEST_F(RunningSum, DoesNotStagnateInAWiderFormat) { EXPECT_TRUE(summed(4096, 16, Format::kFloat32).empty()); }

TEST_F(RunningSum, NumbersOfAFormulaAreNoIncrements) { EXPECT_TRUE(summed(4096, 3, Format::kFloat16).empty()); }

TEST_F(Hazards, OnePassVarianceCancels) {
  const NodeId x = builder_.leaf({2}, {99.9, 100.1});
  const NodeId square = op(Primitive::kMul, {x, x}, {2}, Format::kFloat32, Phase::kForward);
  const NodeId doubled = op(Primitive::kAdd, {x, x}, {2}, Format::kFloat32, Phase::kForward);
  const NodeId other = op(Primitive::kMul, {doubled, doubled}, {2}, Format::kFloat32, Phase::kForward);
  const NodeId quarter =
      op(Primitive::kDiv, {other, builder_.leaf({2}, {4, 4})}, {2}, Format::kFloat32, Phase::kForward);
  const NodeId moved = op(Primitive::kAdd, {quarter, x}, {2}, Format::kFloat32, Phase::kForward);
  const NodeId far = op(Primitive::kSub, {moved, square}, {2}, Format::kFloat32, Phase::kForward);  // 100 of 10000: no
  const NodeId near = op(
      Primitive::kSub,
      {moved, op(Primitive::kAdd, {square, builder_.leaf({2}, {99.8, 100.2})}, {2}, Format::kFloat32, Phase::kForward)},
      {2}, Format::kFloat32, Phase::kForward);
  const auto findings = found(op(Primitive::kMul, {far, near}, {2}, Format::kFloat32, Phase::kForward));
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, HazardKind::kCancellation);
  EXPECT_EQ(findings[0].node, near);
  EXPECT_NEAR(findings[0].harm, 2e5, 1e4);
}

// Large elementwise programs are looked at in tiles: every other step is lost, and a difference of 2^-16 cancels.
TEST_F(Hazards, TilesAddUp) {
  constexpr std::int64_t kCount = 20001;
  std::vector<double> steps;
  for (std::int64_t i = 0; i < kCount; ++i) steps.push_back(i % 2 == 0 ? 0x1p-12 : 0x1p-10);
  const NodeId w = weight(std::vector<double>(kCount, 1), Format::kFloat16), step = builder_.leaf({kCount}, steps);
  const auto make = [&](Primitive primitive, NodeId a, NodeId b, Format format) {
    return op(primitive, {a, b}, {kCount}, format, Phase::kOptimizer);
  };
  const NodeId next = make(Primitive::kSub, w, step, Format::kFloat16);
  const NodeId first = make(Primitive::kMul, next, builder_.leaf({}, {1}), Format::kFloat32);
  const NodeId second = make(Primitive::kMul, next, builder_.leaf({}, {1 + 0x1p-16}), Format::kFloat32);
  const NodeId difference = make(Primitive::kSub, first, second, Format::kFloat32);
  const auto findings = found(difference);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].kind, HazardKind::kLostUpdates);
  EXPECT_EQ(findings[0].node, next);
  EXPECT_DOUBLE_EQ(findings[0].share, 10001.0 / 20001);
  EXPECT_DOUBLE_EQ(findings[0].harm, 10001.0 / (10001 + 4 * 10000));
  EXPECT_EQ(findings[1].kind, HazardKind::kCancellation);
  EXPECT_EQ(findings[1].node, difference);
  EXPECT_NEAR(findings[1].harm, 0x1p17 + 1, 1e-6);
}

}  // namespace
}  // namespace plumbline
