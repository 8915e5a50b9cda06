// Two programs side by side: what stands beside what, what is beyond rounding, and where they part first.
#include <gtest/gtest.h>

#include <cmath>

#include "server/bound/compute.h"
#include "server/bound/enclose/interval.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

Bounds paired(const GraphBuilder& target, const GraphBuilder& reference) {
  static const Profile profile;
  return compute_bounds({&target.graph, &reference.graph, &profile, 42});
}

const std::vector<double> kX{0.5, -1.25, 2, 0.75};

// y = op(x) for each primitive in turn; then its sum, which is the loss.
GraphBuilder chain(const std::vector<Primitive>& primitives, double observed) {
  GraphBuilder g;
  NodeId value = g.leaf({4}, kX);
  for (const Primitive primitive : primitives) value = g.op(primitive, {value}, {4});
  g.tap("loss", TapKind::kLoss, g.sum_all(value), {observed});
  return g;
}

double sum_of(double (*f)(double)) {
  double sum = 0;
  for (const double x : kX) sum += f(x);
  return sum;
}

TEST(Alignment, ProgramsThatAgreeHaveNone) {
  const double sum = sum_of([](double x) { return std::exp(std::tanh(x)); });
  const GraphBuilder program = chain({Primitive::kTanh, Primitive::kExp}, sum);
  EXPECT_FALSE(paired(program, program).alignment);
  const GraphBuilder twice = chain({Primitive::kNeg, Primitive::kNeg, Primitive::kTanh, Primitive::kExp}, sum);
  EXPECT_FALSE(paired(program, twice).alignment);
}

TEST(Alignment, OneOperationInPlaceOfAnotherIsWhereTheyPart) {
  const GraphBuilder target = chain({Primitive::kTanh, Primitive::kExp, Primitive::kCos},
                                    sum_of([](double x) { return std::cos(std::exp(std::tanh(x))); }));
  const GraphBuilder reference = chain({Primitive::kTanh, Primitive::kSin, Primitive::kCos},
                                       sum_of([](double x) { return std::cos(std::sin(std::tanh(x))); }));
  const auto found = paired(target, reference).alignment;
  ASSERT_TRUE(found);
  ASSERT_EQ(found->operations.size(), 4u);
  EXPECT_EQ(found->parts, 1u);
  EXPECT_EQ(found->agree, 1u);
  EXPECT_EQ(found->differ, 3u);
  for (const AlignedPair& pair : found->operations) {
    ASSERT_TRUE(pair.paired());
    EXPECT_EQ(*pair.target, *pair.reference);
    EXPECT_GT(pair.allowed, 0);
    EXPECT_LT(pair.allowed, 1e-13) << "our replay's own rounding, and no more";
  }
  EXPECT_FALSE(found->operations[0].differs());
  const AlignedPair& parts = found->operations[1];
  const double x = kX[parts.element];
  EXPECT_NEAR(parts.target_value, std::exp(std::tanh(x)), 1e-14);
  EXPECT_NEAR(parts.reference_value, std::sin(std::tanh(x)), 1e-14);
  double squares = 0, norm = 0;
  for (const double each : kX) {
    squares += std::pow(std::exp(std::tanh(each)) - std::sin(std::tanh(each)), 2);
    norm += std::pow(std::sin(std::tanh(each)), 2);
  }
  EXPECT_NEAR(parts.deviation, std::sqrt(squares / norm), 1e-12);
}

TEST(Alignment, WhatOneProgramHasAloneStandsAloneAndTheRestBesideItsCounterpart) {
  const auto program = [](bool scaled) {
    GraphBuilder g;
    NodeId value = g.op(Primitive::kTanh, {g.leaf({4}, kX)}, {4});
    const double factor = scaled ? 1.25 : 1;
    if (scaled) {
      Attributes constant;
      constant.scalar = factor;
      value = g.op(Primitive::kMul, {value, g.op(Primitive::kConstant, {}, {}, Format::kFloat32, constant)}, {4});
    }
    value = g.op(Primitive::kExp, {value}, {4});
    double sum = 0;
    for (const double x : kX) sum += std::exp(factor * std::tanh(x));
    g.tap("loss", TapKind::kLoss, g.sum_all(value), {sum});
    return g;
  };
  for (const bool in_target : {true, false}) {
    const auto found = paired(program(in_target), program(!in_target)).alignment;
    ASSERT_TRUE(found);
    ASSERT_EQ(found->operations.size(), 4u);
    EXPECT_EQ(found->parts, 1u) << "what has no counterpart, and not the first that differs because of it";
    const AlignedPair& alone = found->operations[1];
    EXPECT_EQ(alone.target.has_value(), in_target);
    EXPECT_EQ(alone.reference.has_value(), !in_target);
    EXPECT_TRUE(alone.differs());
    EXPECT_TRUE(std::isnan(alone.deviation));
    EXPECT_EQ(found->target_alone, in_target ? 1u : 0u);
    EXPECT_EQ(found->reference_alone, in_target ? 0u : 1u);
    EXPECT_TRUE(found->operations[2].paired() && found->operations[2].differs());
  }
}

// x becomes b - x, hundreds of times; one program adds once.
TEST(Alignment, OfManyOperationsThoseAroundThePartingAreListedAndAllAreCounted) {
  constexpr int kSteps = 600, kParts = 400;
  const auto program = [](int adds_at) {
    GraphBuilder g;
    std::vector<double> value{0.5, 0.25, -0.75};
    NodeId node = g.leaf({3}, value);
    for (int i = 0; i < kSteps; ++i) {
      std::vector<double> b;
      for (const double phase : {0.0, 1.0, 2.0}) b.push_back(static_cast<float>(std::sin(i + phase)));
      node = g.op(i == adds_at ? Primitive::kAdd : Primitive::kSub, {g.leaf({3}, b), node}, {3});
      for (std::size_t k = 0; k < 3; ++k)
        value[k] = static_cast<float>(i == adds_at ? b[k] + value[k] : b[k] - value[k]);
    }
    g.tap("y", TapKind::kValue, node, value);
    return g;
  };
  const GraphBuilder target = program(kParts), reference = program(-1);
  const auto found = paired(target, reference).alignment;
  ASSERT_TRUE(found);
  EXPECT_EQ(found->operations.size(), 256u);
  EXPECT_EQ(found->before + found->operations.size() + found->after, static_cast<std::uint64_t>(kSteps));
  EXPECT_EQ(found->agree + found->differ + found->target_alone, static_cast<std::uint64_t>(kSteps));
  ASSERT_TRUE(found->parts);
  const AlignedPair& parts = found->operations[*found->parts];
  ASSERT_TRUE(parts.target);
  EXPECT_EQ(target.graph.nodes[*parts.target].primitive, Primitive::kAdd);
  EXPECT_EQ(found->before + *found->parts, static_cast<std::uint64_t>(kParts));
}

TEST(Alignment, AnIllegalExecutionIsWhereTheyPartThoughTheMathematicsIsOne) {
  GraphBuilder target, reference;
  for (GraphBuilder* g : {&target, &reference}) {
    const NodeId x = g->leaf({2}, {1, 2});
    const NodeId doubled = g->op(Primitive::kAdd, {x, x}, {2}), negative = g->op(Primitive::kNeg, {doubled}, {2});
    const double off = g == &target ? 0.5 : 0;
    g->graph.observed[doubled] = {Format::kFloat32, test::encoded(Format::kFloat32, {2, 4 + off})};
    g->tap("y", TapKind::kValue, negative, {-2, -4 - off});
  }
  const Bounds bounds = paired(target, reference);
  ASSERT_FALSE(bounds.illegal_values.empty());
  ASSERT_TRUE(bounds.alignment);
  EXPECT_EQ(bounds.alignment->differ, 0u);
  EXPECT_EQ(bounds.alignment->parts, 0u);
  EXPECT_NEAR(bounds.alignment->operations[0].drift, 0.5 / std::sqrt(20.0), 1e-12);
}

TEST(Alignment, WhatIsPickedByComputedIndicesIsEnclosed) {
  const auto program = [](Primitive primitive, double (*f)(double)) {
    GraphBuilder g;
    const NodeId table = g.leaf({4, 1}, kX);
    const NodeId index = g.op(Primitive::kAdd, {g.leaf({2}, {0, 2}, Format::kInt64), g.leaf({}, {1}, Format::kInt64)},
                              {2}, Format::kInt64);
    const NodeId picked = g.op(Primitive::kGatherRows, {table, index}, {2, 1});
    g.tap("y", TapKind::kValue, g.op(primitive, {picked}, {2, 1}), {f(kX[1]), f(kX[3])});
    return g;
  };
  const auto found = paired(program(Primitive::kTanh, std::tanh), program(Primitive::kSin, std::sin)).alignment;
  ASSERT_TRUE(found && found->parts);
  EXPECT_LT(found->operations[*found->parts].allowed, 1e-13);
  EXPECT_EQ(found->differ, 1u);
}

TEST(Alignment, FreedomOfAnItemIsAmongWhatRoundingExplains) {
  GraphBuilder g;
  const NodeId x = g.leaf({2}, {1, 2}), y = g.op(Primitive::kNeg, {x}, {2});
  g.tap("y", TapKind::kValue, y, {-1, -2});
  const Replay exact = replay(g.graph, leaf_values(g.graph), Precision::kExact);
  const Overrides none;
  EXPECT_FALSE(Enclosures(g.graph, exact, {y}, nullptr, none).take(y).radius) << "a sign is exact";
  const Freedoms free{{x, Array::full({2}, 0.25)}};
  const Enclosure enclosure = Enclosures(g.graph, exact, {y}, nullptr, none, &free).take(y);
  ASSERT_TRUE(enclosure.radius);
  EXPECT_GE(enclosure.radius.values.materialize().data()[0], 0.25);
  EXPECT_LT(enclosure.radius.values.materialize().data()[0], 0.2500001);
}

}  // namespace
}  // namespace plumbline
