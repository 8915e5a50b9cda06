#include "server/bound/replay/finite_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

constexpr std::int64_t kCount = 5000;  // Content of so many is held packed.
constexpr Format kExact = Format::kFloat64;

std::vector<double> drawn(unsigned seed, double low, double high, std::int64_t n = kCount) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(draw(rng)));
  return values;
}

NodeId number(GraphBuilder* b, double value) {
  Attributes attributes;
  attributes.scalar = value;
  return b->op(Primitive::kConstant, {}, {}, kExact, attributes);
}

// Adam's step: w - lr m' / (sqrt(v') + eps), v' = 0.999 v + g (0.001 g), where g is a product.
struct Adam {
  GraphBuilder b;
  NodeId updated;

  explicit Adam(double least_v) {
    const auto binary = [&](Primitive primitive, NodeId x, NodeId y) {
      return b.op(primitive, {x, y}, {50, 100}, kExact);
    };
    const NodeId w = b.leaf({50, 100}, drawn(1, -1, 1)), m = b.leaf({50, 100}, drawn(2, -1, 1));
    const NodeId v = b.leaf({50, 100}, drawn(3, least_v, 1));
    const NodeId x = b.leaf({50, 7}, drawn(4, -1, 1, 350)), dy = b.leaf({7, 100}, drawn(5, -1, 1, 700));
    const NodeId g = b.op(Primitive::kMatmul, {x, dy}, {50, 100}, kExact);
    const NodeId mean = binary(Primitive::kAdd, binary(Primitive::kMul, m, number(&b, 0.9)),
                               binary(Primitive::kMul, number(&b, 0.1), g));
    const NodeId square = binary(Primitive::kMul, binary(Primitive::kMul, g, number(&b, 0.001)), g);
    const NodeId squares = binary(Primitive::kAdd, binary(Primitive::kMul, v, number(&b, 0.999)), square);
    const NodeId root = b.op(Primitive::kSqrt, {squares}, {50, 100}, kExact);
    const NodeId step = binary(Primitive::kDiv, mean, binary(Primitive::kAdd, root, number(&b, 1e-8)));
    updated = binary(Primitive::kSub, w, binary(Primitive::kMul, number(&b, 1e-3), step));
    b.tap("w", TapKind::kUpdate, updated, std::vector<double>(kCount, 0));
  }
};

TEST(FiniteRanges, HoldAllOfAnOptimizersValues) {
  const Adam adam(0);
  const Graph& graph = adam.b.graph;
  const Replay exact = replay(graph, leaf_values(graph), Precision::kExact);
  FiniteRanges ranges(graph, exact);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const auto range = ranges.of(id);
    ASSERT_TRUE(range) << id;
    const Array values = exact.computed(id).materialize();
    for (std::int64_t i = 0; i < values.count(); ++i) {
      EXPECT_GE(values.data()[i], range->low) << id;
      EXPECT_LE(values.data()[i], range->high) << id;
    }
  }
}

TEST(FiniteRanges, SayNothingWhereARootMayBeOfANegativeNumber) {
  const Adam adam(-0.5);
  const Replay exact = replay(adam.b.graph, leaf_values(adam.b.graph), Precision::kExact);
  EXPECT_FALSE(FiniteRanges(adam.b.graph, exact).of(adam.updated));
}

// Of one operation on these two leaves. Nobody keeps what is computed: it lies behind a sum.
std::optional<FiniteRanges::Range> range_of(Primitive primitive, const std::vector<double>& x,
                                            const std::vector<double>& y, const Overrides& seen = {},
                                            const Attributes& attributes = {}, Format format = kExact) {
  GraphBuilder b;
  const NodeId first = b.leaf({kCount}, x, kExact), second = b.leaf({kCount}, y, kExact);
  std::vector<NodeId> inputs = {first};
  if (traits(primitive).arity == 2) inputs.push_back(second);
  const NodeId node = b.op(primitive, inputs, {kCount}, format, attributes);
  const NodeId tap = b.op(Primitive::kAdd, {node, second}, {kCount}, kExact);
  b.tap("y", TapKind::kValue, tap, std::vector<double>(kCount, 0));
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact, seen);
  const auto range = FiniteRanges(b.graph, exact).of(node);
  if (range) {
    const Array values = exact.computed(node);
    for (std::int64_t i = 0; i < kCount; ++i)
      EXPECT_TRUE(values.data()[i] >= range->low && values.data()[i] <= range->high) << values.data()[i];
  }
  return range;
}

TEST(FiniteRanges, AreUnknownWhereSomeValueMayNotBeFinite) {
  std::vector<double> x = drawn(1, -1, 1), y = drawn(2, 0.5, 1);
  EXPECT_TRUE(range_of(Primitive::kDiv, x, y));
  EXPECT_FALSE(range_of(Primitive::kDiv, y, x));
  EXPECT_TRUE(range_of(Primitive::kRsqrt, y, y));
  EXPECT_FALSE(range_of(Primitive::kRsqrt, x, y));
  EXPECT_FALSE(range_of(Primitive::kReciprocal, x, y));
  for (const double lost : {HUGE_VAL, std::numeric_limits<double>::quiet_NaN()}) {
    std::vector<double> broken = x;
    broken[4321] = lost;
    EXPECT_FALSE(range_of(Primitive::kAdd, broken, y));
    EXPECT_FALSE(range_of(Primitive::kTanh, broken, y));
    EXPECT_FALSE(range_of(Primitive::kMax, broken, y));
    EXPECT_TRUE(range_of(Primitive::kLess, broken, y));
  }
  x[17] = y[17] = 1e200;
  EXPECT_FALSE(range_of(Primitive::kMul, x, y));
  EXPECT_TRUE(range_of(Primitive::kAdd, x, y));
}

TEST(FiniteRanges, AreUnknownWhereConsumersSeeAnotherValue) {
  const std::vector<double> x = drawn(1, -1, 1), y = drawn(2, 0.5, 1);
  EXPECT_TRUE(range_of(Primitive::kMul, x, y));
  EXPECT_FALSE(range_of(Primitive::kMul, x, y, {{NodeId{0}, Array::full({kCount}, HUGE_VAL)}}));
  EXPECT_FALSE(range_of(Primitive::kMul, x, y, {{NodeId{2}, Array::full({kCount}, HUGE_VAL)}}));
}

// Products of almost nothing round to nothing, whose quotient is infinite.
TEST(FiniteRanges, KnowOfUnderflow) {
  const std::vector<double> tiny = drawn(1, 0.5, 1);
  std::vector<double> small = tiny;
  for (double& v : small) v *= 1e-170;
  GraphBuilder b;
  const NodeId x = b.leaf({kCount}, small, kExact);
  const NodeId square = b.op(Primitive::kMul, {x, x}, {kCount}, kExact);
  const NodeId one = b.op(Primitive::kReciprocal, {square}, {kCount}, kExact);
  b.tap("y", TapKind::kValue, one, std::vector<double>(kCount, 0));
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  ASSERT_EQ(exact.value(one).data()[0], HUGE_VAL);
  EXPECT_FALSE(FiniteRanges(b.graph, exact).of(one));
}

// A product is scaled when it is there: it may be infinite, and what its scale makes of it too.
TEST(FiniteRanges, OfScaledProductsAreThoseOfTheirParts) {
  for (const double scale : {1e-10, 1.0}) {
    GraphBuilder b;
    const std::int64_t n = 80, k = 50;
    const NodeId a = b.leaf({n, k}, std::vector<double>(n * k, 1e154), kExact);
    const NodeId x = b.leaf({k, n}, std::vector<double>(n * k, scale == 1 ? 1e100 : 1e154), kExact);
    const NodeId c = b.leaf({n, n}, std::vector<double>(n * n, 1), kExact);
    const NodeId product = b.op(Primitive::kMatmul, {a, x, c, number(&b, scale)}, {n, n}, kExact);
    b.tap("y", TapKind::kValue, product, std::vector<double>(n * n, 0));
    const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
    const bool finite = std::isfinite(exact.value(product).data()[0]);
    EXPECT_EQ(finite, scale == 1);
    EXPECT_EQ(FiniteRanges(b.graph, exact).of(product).has_value(), finite);
  }
}

// c x by x is a square's multiple, however small c is on the way.
TEST(FiniteRanges, OfSquaresKeepTheirOwnSize) {
  for (const double x : {1e300, 1.0}) {
    GraphBuilder b;
    const auto times = [&](NodeId value, double factor) {
      return b.op(Primitive::kMul, {value, number(&b, factor)}, {kCount}, kExact);
    };
    const NodeId leaf = b.leaf({kCount}, std::vector<double>(kCount, x), kExact);
    const NodeId small = times(times(leaf, 1e-200), 1e-200);
    const NodeId square = b.op(Primitive::kMul, {small, leaf}, {kCount}, kExact);
    const NodeId result =
        x == 1 ? b.op(Primitive::kReciprocal, {times(square, 1e300)}, {kCount}, kExact) : times(square, 1e200);
    b.tap("y", TapKind::kValue, result, std::vector<double>(kCount, 0));
    const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
    ASSERT_EQ(exact.computed(result).data()[0], HUGE_VAL);
    EXPECT_FALSE(FiniteRanges(b.graph, exact).of(result));
  }
}

TEST(FiniteRanges, KnowTheSignOfSquares) {
  for (const double factor : {0.5, -0.5}) {
    GraphBuilder b;
    const NodeId x = b.leaf({kCount}, drawn(1, -1, 1), kExact);
    const NodeId scaled = b.op(Primitive::kMul, {x, number(&b, factor)}, {kCount}, kExact);
    const NodeId square = b.op(Primitive::kMul, {scaled, x}, {kCount}, kExact);
    const NodeId root = b.op(Primitive::kSqrt, {square}, {kCount}, kExact);
    b.tap("y", TapKind::kValue, root, std::vector<double>(kCount, 0));
    const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
    EXPECT_EQ(FiniteRanges(b.graph, exact).of(root).has_value(), factor > 0);
  }
}

// What was observed of a decision in another format need be neither 0 nor 1.
TEST(FiniteRanges, OfDecisionsAreThoseWhoReadThemSee) {
  const std::vector<double> x = drawn(1, -1, 1), y = drawn(2, -1, 1);
  const Overrides seen{{NodeId{2}, Array::full({kCount}, 1)}};
  EXPECT_TRUE(range_of(Primitive::kLess, x, y, seen, {}, Format::kBool));
  EXPECT_FALSE(range_of(Primitive::kLess, x, y, seen));
}

TEST(FiniteRanges, GoThroughWhatMovesElementsAndChooses) {
  GraphBuilder b;
  const NodeId x = b.leaf({kCount}, drawn(1, 1, 2), kExact), y = b.leaf({kCount}, drawn(2, 3, 4), kExact);
  Attributes window, assemble;
  window.view = {{kCount / 2}, {2}, 0};
  assemble.size = kCount;
  assemble.views = {{{kCount / 2}, {1}, 0}};
  const NodeId half = b.op(Primitive::kWindow, {x}, {kCount / 2}, kExact, window);
  const NodeId padded = b.op(Primitive::kAssemble, {half}, {kCount}, kExact, assemble);
  assemble.has_base = true;
  const NodeId over = b.op(Primitive::kAssemble, {y, half}, {kCount}, kExact, assemble);
  const NodeId less = b.op(Primitive::kMin, {over, y}, {kCount}, kExact);
  const NodeId chosen = b.op(Primitive::kSelect,
                             {b.op(Primitive::kLess, {x, y}, {kCount}, Format::kBool), less, padded}, {kCount}, kExact);
  const NodeId power = b.op(Primitive::kPow, {y, number(&b, 3)}, {kCount}, kExact);
  b.tap("y", TapKind::kValue, b.op(Primitive::kAdd, {chosen, power}, {kCount}, kExact), std::vector<double>(kCount, 0));
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  FiniteRanges ranges(b.graph, exact);
  for (const NodeId node : {half, padded, over, less, chosen, power}) {
    const auto range = ranges.of(node);
    ASSERT_TRUE(range) << node;
    const Array values = exact.computed(node).materialize();
    for (std::int64_t i = 0; i < values.count(); ++i)
      ASSERT_TRUE(values.data()[i] >= range->low && values.data()[i] <= range->high) << node;
  }
  EXPECT_EQ(ranges.of(padded)->low, 0);
  EXPECT_GT(ranges.of(over)->low, 0.9);
}

}  // namespace
}  // namespace plumbline
