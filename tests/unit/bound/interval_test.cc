#include "server/bound/enclose/interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "server/bound/compute.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

// Under the default profile.
Bounds bounds_of(const GraphBuilder& b) {
  const Profile profile;
  BoundsInput input;
  input.target = &b.graph;
  input.profile = &profile;
  return compute_bounds(input);
}

// What is left is not taken, and takes nothing from those that are.
TEST(Interval, EnclosesTheOthersWhereOneIsLeft) {
  GraphBuilder b;
  const NodeId x = b.leaf({64}, std::vector<double>(64, 1.5)), y = b.leaf({64}, std::vector<double>(64, 0.3));
  const NodeId shared = b.op(Primitive::kMul, {x, y}, {64}), alone = b.op(Primitive::kDiv, {x, y}, {64});
  const NodeId square = b.op(Primitive::kMul, {shared, shared}, {64});
  const NodeId first = b.op(Primitive::kAdd, {square, alone}, {64}), second = b.op(Primitive::kAdd, {square, x}, {64});
  b.tap("y", TapKind::kValue, b.op(Primitive::kAdd, {first, second}, {64}), std::vector<double>(64, 0));
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const Profile profile;
  const Overrides none;
  const double wanted = Enclosures(b.graph, exact, {second}, &profile, none).take(second).radius.values.data()[0];
  ASSERT_GT(wanted, 0);
  for (const bool before : {true, false}) {
    Enclosures enclosures(b.graph, exact, {first, second, shared}, &profile, none);
    if (before) enclosures.leave(first);
    EXPECT_EQ(enclosures.take(second).radius.values.data()[0], wanted);
    if (!before) enclosures.leave(first);
    EXPECT_GT(enclosures.take(shared).radius.values.data()[0], 0);
  }
}

// An optimizer-like segment: w - lr * g / (sqrt(v) + eps). Every legal fp32 execution lies in its enclosure.
TEST(Interval, EnclosesLegalExecutionsOfAnElementwiseSegment) {
  std::mt19937 rng(11);
  std::uniform_real_distribution<double> draw(0.01, 1);
  std::vector<double> w, g, v;
  for (int i = 0; i < 64; ++i) {
    w.push_back(static_cast<float>(draw(rng)));
    g.push_back(static_cast<float>(draw(rng) - 0.5));
    v.push_back(static_cast<float>(draw(rng) * 1e-3));
  }
  GraphBuilder b;
  const NodeId nw = b.leaf({64}, w), ng = b.leaf({64}, g), nv = b.leaf({64}, v);
  const NodeId root = b.op(Primitive::kSqrt, {nv}, {64});
  const NodeId lr = b.leaf({}, {0.125});
  const NodeId ratio = b.op(Primitive::kDiv, {ng, root}, {64});
  const NodeId step = b.op(Primitive::kMul, {ratio, lr}, {64});
  const NodeId updated = b.op(Primitive::kSub, {nw, step}, {64});
  b.tap("w", TapKind::kValue, updated, std::vector<double>(64, 0));
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  Profile profile;
  const Overrides none;
  const Enclosure enclosure = Enclosures(b.graph, exact, {updated}, &profile, none).take(updated);
  ASSERT_FALSE(enclosure.exploded);
  const Array radius = enclosure.radius.values.materialize(), centre = exact.value(updated).materialize();
  double tightest = 0;
  for (int i = 0; i < 64; ++i) {
    const float in_float =
        static_cast<float>(w[i]) - static_cast<float>(g[i]) / std::sqrt(static_cast<float>(v[i])) * 0.125f;
    const double deviation = std::fabs(in_float - centre.data()[i]);
    EXPECT_LE(deviation, radius.data()[i]);
    EXPECT_LT(radius.data()[i], 1e-4);
    tightest = std::fmax(tightest, deviation / radius.data()[i]);
  }
  EXPECT_GT(tightest, 0.1);
}

TEST(Interval, AnchorsResetTheRadius) {
  GraphBuilder b;
  const NodeId x = b.leaf({3}, {0.1, 0.2, 0.3});
  const NodeId e = b.op(Primitive::kExp, {x}, {3});
  const NodeId doubled = b.op(Primitive::kAdd, {e, e}, {3});
  b.tap("t", TapKind::kValue, doubled, {0, 0, 0});
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  Profile profile;
  const Overrides none, anchors{{e, exact.value(e)}};
  const Enclosure free = Enclosures(b.graph, exact, {doubled}, &profile, none).take(doubled);
  const Enclosure anchored = Enclosures(b.graph, exact, {doubled}, &profile, anchors).take(doubled);
  EXPECT_LT(anchored.radius.values.data()[0], free.radius.values.data()[0]);
  EXPECT_GT(anchored.radius.values.data()[0], 0);
}

// What a fused kernel stored rounded it may have read unrounded: its own anchors are not exact to it.
TEST(Interval, AnAnchorInsideOfACompiledRegionKeepsItsRounding) {
  GraphBuilder b;
  const NodeId x = b.leaf({2}, {0.5, -1.25});
  const NodeId e = b.op(Primitive::kExp, {x}, {2}, Format::kBFloat16);
  b.graph.nodes[e].compute = Format::kFloat32;
  const NodeId scaled = b.op(Primitive::kMul, {e, b.leaf({}, {3})}, {2});
  b.tap("y", TapKind::kValue, scaled, {0, 0});
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const Overrides anchors{{e, exact.value(e)}};
  const Profile profile;
  const auto radius = [&] {
    return Enclosures(b.graph, exact, {scaled}, &profile, anchors).take(scaled).radius.values.materialize().data()[0];
  };
  const double eager = radius();
  b.graph.origins[b.graph.nodes[e].origin].fused = true;
  EXPECT_LT(eager, 1e-6);
  EXPECT_GE(radius(), 3 * std::ldexp(std::exp(0.5), -9));
}

// The logistic map doubles its error at every turn on average: 60 turns lose everything.
TEST(Interval, GivesUpWhereTheRadiusExplodes) {
  GraphBuilder b;
  NodeId x = b.leaf({2}, {0.3, 0.4});
  const NodeId one = b.leaf({}, {1.0}), four = b.leaf({}, {4.0});
  for (int i = 0; i < 60; ++i)
    x = b.op(Primitive::kMul, {b.op(Primitive::kMul, {x, b.op(Primitive::kSub, {one, x}, {2})}, {2}), four}, {2});
  b.tap("t", TapKind::kValue, x, {0, 0});
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const Profile profile;
  const Overrides none;
  EXPECT_TRUE(Enclosures(b.graph, exact, {x}, &profile, none).take(x).exploded);
}

// Radii whose squares underflow: the envelope's norm is 0, and each element is held against its own radius all the
// same.
TEST(Interval, JudgesElementsWhoseEnvelopeUnderflows) {
  for (const auto& [ulps, legal] : {std::pair{0, true}, {1, true}, {40, false}}) {
    GraphBuilder b;
    const NodeId x = b.leaf({2}, {3e-170, 0.7e-170}, Format::kFloat64);
    const NodeId root = b.op(Primitive::kMul, {x, b.leaf({}, {0.3}, Format::kFloat64)}, {2}, Format::kFloat64);
    const double exact[] = {3e-170 * 0.3, 0.7e-170 * 0.3};
    const std::vector<double> observed = {exact[0], exact[1] * (1 + ulps * 0x1p-52)};
    b.tap("w", TapKind::kUpdate, root, observed);
    b.graph.observed[root] = {Format::kFloat64, test::encoded(Format::kFloat64, observed)};
    const Bounds bounds = bounds_of(b);
    ASSERT_FALSE(bounds.findings.empty());
    const Finding& finding = bounds.findings[0];
    ASSERT_TRUE(finding.proven);
    EXPECT_EQ(finding.execution.passed(), legal) << ulps;
    EXPECT_EQ(bounds.illegal_values.empty(), legal) << ulps;
  }
}

// A step that bf16 swallows: rounding could move the update by more than itself, but no execution could do better.
TEST(Interval, WhatAFormatCannotHoldIsNoDoubt) {
  for (const auto& [observed, legal] : {std::pair{1.0, true}, {0.984375, false}}) {
    GraphBuilder b;
    const NodeId weight = b.leaf({2}, {1, -0.5}, Format::kBFloat16), step = b.leaf({2}, {1e-3, -2e-4});
    const NodeId updated = b.op(Primitive::kSub, {weight, step}, {2});
    b.graph.nodes[updated].result = Format::kBFloat16;
    b.tap("update:w", TapKind::kUpdate, updated, {observed, -0.5});
    b.graph.taps[0].terms.push_back({weight, -1, Format::kBFloat16, test::encoded(Format::kBFloat16, {1, -0.5})});
    b.graph.observed[updated] = {Format::kBFloat16, test::encoded(Format::kBFloat16, {observed, -0.5})};
    const Finding finding = bounds_of(b).findings.at(0);
    ASSERT_TRUE(finding.proven);
    EXPECT_GT(finding.execution.envelope, 1);
    EXPECT_FALSE(finding.execution.vacuous());
    EXPECT_EQ(finding.execution.passed(), legal) << observed;
  }
}

// A long sum that nearly cancels, from an observed tensor: the worst case is of the sum's own size, chance is not.
TEST(Interval, LeavesToChanceWhatWorstCasesCannotAnswer) {
  constexpr std::int64_t kRows = 50, kColumns = 300;
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0, 10);
  std::vector<double> values(kRows * kColumns);
  for (double& value : values) value = static_cast<float>(normal(random));
  const auto sum_of = [&] { return std::accumulate(values.begin(), values.end(), 0.0); };
  values[0] = static_cast<float>(values[0] + 5 - sum_of());
  const double sum = sum_of();
  for (const auto& [observed, legal] : {std::pair{sum, true}, {sum * 1.1, false}}) {
    GraphBuilder b;
    const NodeId x = b.leaf({kRows, kColumns}, values), one = b.leaf({}, {1.0});
    const NodeId taken = b.op(Primitive::kMul, {x, one}, {kRows, kColumns});
    b.graph.observed[taken] = {Format::kFloat32, test::encoded(Format::kFloat32, values)};
    Attributes along_rows;
    along_rows.dims = {1};
    const NodeId rows = b.op(Primitive::kSum, {taken}, {kRows, 1}, Format::kFloat32, along_rows);
    b.tap("loss", TapKind::kLoss, b.sum_all(rows), {observed});
    const Bounds bounds = bounds_of(b);
    ASSERT_EQ(bounds.findings.size(), 1U);
    EXPECT_TRUE(bounds.findings[0].execution.statistical());
    EXPECT_EQ(bounds.findings[0].execution.passed(), legal) << observed;
  }
}

// As masked scores are: the others are judged all the same.
TEST(Interval, AnInfiniteElementHidesNoOther) {
  for (const auto& [observed, legal] : {std::pair{0.75, true}, {0.76, false}}) {
    GraphBuilder b;
    const NodeId x = b.leaf({2}, {0.5, 0.5}), mask = b.leaf({2}, {0.25, -HUGE_VAL});
    const NodeId masked = b.op(Primitive::kAdd, {x, mask}, {2});
    b.graph.observed[masked] = {Format::kFloat32, test::encoded(Format::kFloat32, {observed, -HUGE_VAL})};
    EXPECT_EQ(bounds_of(b).illegal_values.empty(), legal) << observed;
  }
}

// The first of the worst, in one piece as in several tiles, of a tap as of an observed result.
TEST(Interval, NamesTheWorstElement) {
  for (const std::int64_t n : {1000, 20000}) {
    GraphBuilder b;
    const NodeId x = b.leaf({n}, std::vector<double>(static_cast<std::size_t>(n), 1.5));
    const NodeId doubled = b.op(Primitive::kMul, {x, b.leaf({}, {2})}, {n});
    std::vector<double> observed(static_cast<std::size_t>(n), 3);
    observed[7] += 0x1p-22;
    for (const std::int64_t i : {n - 3, n - 1}) observed[static_cast<std::size_t>(i)] += 0x1p-20;
    b.tap("w", TapKind::kUpdate, doubled, observed);
    b.graph.observed[doubled] = {Format::kFloat32, test::encoded(Format::kFloat32, observed)};
    const Bounds bounds = bounds_of(b);
    const Finding& finding = bounds.findings.at(0);
    ASSERT_TRUE(finding.proven);
    EXPECT_TRUE(finding.execution.failed());
    EXPECT_EQ(finding.worst_element, static_cast<std::uint64_t>(n - 3));
    EXPECT_TRUE(finding.low < 3 && finding.high > 3);
    ASSERT_EQ(bounds.illegal_values.size(), 1U);
    EXPECT_EQ(bounds.illegal_values[0].node, doubled);
    EXPECT_EQ(bounds.illegal_values[0].elements, 3U);
    EXPECT_EQ(bounds.illegal_values[0].element, static_cast<std::uint64_t>(n - 3));
    EXPECT_EQ(bounds.illegal_values[0].deviation, 0x1p-20);
  }
}

// What is no number is as far off as can be, wherever others are off.
TEST(Interval, NamesAnObservedNaN) {
  for (const std::int64_t n : {1000, 20000})
    for (const std::int64_t at : {std::int64_t{3}, n - 2}) {
      GraphBuilder b;
      const NodeId x = b.leaf({n}, std::vector<double>(static_cast<std::size_t>(n), 1.5));
      const NodeId doubled = b.op(Primitive::kMul, {x, b.leaf({}, {2})}, {n});
      std::vector<double> observed(static_cast<std::size_t>(n), 3);
      observed[static_cast<std::size_t>(at)] = NAN;
      observed[7] = 4;
      observed[static_cast<std::size_t>(n) - 5] = 5;
      b.graph.observed[doubled] = {Format::kFloat32, test::encoded(Format::kFloat32, observed)};
      const Bounds bounds = bounds_of(b);
      ASSERT_EQ(bounds.illegal_values.size(), 1U);
      EXPECT_EQ(bounds.illegal_values[0].elements, 3U);
      EXPECT_EQ(bounds.illegal_values[0].element, static_cast<std::uint64_t>(at));
      EXPECT_TRUE(std::isnan(bounds.illegal_values[0].observed));
    }
}

// x times 1e30 twice, and twice by that again: an fp32 that held an infinity in between gives what no enclosure of
// finite numbers holds. A mask of the format's lowest number is none.
TEST(Interval, WhatComesAfterAnOverflowIsNotJudged) {
  for (const std::int64_t n : {4, 20000}) {
    for (const bool in_between : {true, false}) {
      GraphBuilder b;
      const NodeId x = b.leaf({n}, std::vector<double>(static_cast<std::size_t>(n), 1.5));
      const NodeId large = b.leaf({}, {0x1p100}), small = b.leaf({}, {0x1p-100});
      NodeId y = b.op(Primitive::kMul, {x, large}, {n});
      if (in_between) y = b.op(Primitive::kMul, {b.op(Primitive::kMul, {y, large}, {n}), small}, {n});
      y = b.op(Primitive::kMul, {y, small}, {n});
      const std::vector<double> observed(static_cast<std::size_t>(n), NAN);
      b.graph.observed[y] = {Format::kFloat32, test::encoded(Format::kFloat32, observed)};
      EXPECT_EQ(bounds_of(b).illegal_values.empty(), in_between) << n;
    }
    GraphBuilder b;
    const NodeId scores = b.leaf({n}, std::vector<double>(static_cast<std::size_t>(n), -5));
    const double lowest = -largest_finite(Format::kFloat32);
    const NodeId masked = b.op(Primitive::kAdd, {scores, b.leaf({}, {lowest})}, {n});
    const NodeId weight = b.op(Primitive::kExp, {masked}, {n});
    const std::vector<double> observed(static_cast<std::size_t>(n), 0.5);
    b.graph.observed[weight] = {Format::kFloat32, test::encoded(Format::kFloat32, observed)};
    EXPECT_FALSE(bounds_of(b).illegal_values.empty()) << n;
  }
}

}  // namespace
}  // namespace plumbline
