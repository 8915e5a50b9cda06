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
                                            Attributes attributes = {}) {
  GraphBuilder b;
  const NodeId first = b.leaf({kCount}, x, kExact), second = b.leaf({kCount}, y, kExact);
  std::vector<NodeId> inputs = {first};
  if (traits(primitive).arity == 2) inputs.push_back(second);
  const NodeId node = b.op(primitive, inputs, {kCount}, kExact, attributes);
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

}  // namespace
}  // namespace plumbline
