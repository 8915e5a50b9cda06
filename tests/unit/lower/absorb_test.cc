// Sums whose second term may stand for infinity: where programs have them, and what is rounded there.
#include "kernels/primitive/absorb.h"

#include <gtest/gtest.h>

#include "tests/unit/lower/trace_builder.h"

namespace plumbline {
namespace {

using testing::run;
using testing::TraceBuilder;
using Values = std::vector<double>;

constexpr double kLowest = -0x1.fffffep127;  // Of fp32.

TEST(Absorb, ASumKeepsNothingBesideInfinity) {
  TraceBuilder b;
  const TensorRef scores = b.leaf({4}, {5, -3, 0x1p80, 2}), mask = b.leaf({4}, {kLowest, 0, kLowest, -1e18});
  b.tap("masked", b.op1("aten::add.Tensor", {{"self", scores}, {"other", mask}}, {4}));
  b.tap("less", b.op1("aten::sub.Tensor", {{"self", scores}, {"other", mask}}, {4}));
  const Values expected{kLowest, -3, kLowest + 0x1p80, 2 - 1e18};
  EXPECT_EQ(run(b.trace, "masked"), expected);
  EXPECT_EQ(run(b.trace, "less"), (Values{-kLowest, -3, 0x1p80 - kLowest, 2 + 1e18}));
}

TEST(Absorb, AMaskedScoreIsTheMaskItself) {
  for (const Format format : {Format::kFloat32, Format::kBFloat16}) {
    const double lowest = -largest_finite(format);
    TraceBuilder b;
    const TensorRef scores = b.leaf({3}, {5, -3, 5}, format), mask = b.leaf({3}, {lowest, 0, 0x1p20}, format);
    b.tap("masked", b.op1("aten::add.Tensor", {{"self", mask}, {"other", scores}}, {3}, format));
    const Graph graph = lower(b.trace);
    const NodeId id = graph.taps[0].terms[0].node;
    const Node& sum = graph.nodes[id];
    ASSERT_EQ(sum.primitive, Primitive::kAdd) << traits(format).name;
    ASSERT_EQ(sum.result, format);

    Profile profile;
    const Arithmetic arithmetic{sum.compute, sum.result, &profile};
    const std::vector<Array> values = testing::evaluate(graph);
    const std::vector<Array> in{values[sum.inputs[0]], values[sum.inputs[1]]};
    const auto errors = [&] {
      return testing::elements(traits(Primitive::kAdd).local_error(sum.attributes, arithmetic, in, values[id]).values);
    };
    EXPECT_EQ(errors()[0], 0) << "it rounds nothing";
    EXPECT_GT(errors()[1], 0);
    EXPECT_GE(errors()[2], unit_roundoff(format) * 0x1p20);
    profile.rounding = Rounding::kTowardZero;
    EXPECT_GE(errors()[0], unit_roundoff(format) * -lowest) << "other roundings move the mask";
  }
}

// A number that the result's format does not hold is rounded like any other.
TEST(Absorb, WhatANarrowerResultDoesNotHoldIsRounded) {
  Profile profile;
  const Arithmetic arithmetic{Format::kFloat32, Format::kBFloat16, &profile};
  Attributes absorbs;
  absorbs.scalar = 1;
  const std::vector<Array> in{Array::scalar(1), Array::scalar(0x1.01p100)};
  EXPECT_GE(traits(Primitive::kAdd).local_error(absorbs, arithmetic, in, in[1]).values.item(), 0x1p-9 * 0x1p100);
}

// As programs make them: numbers that fill, are chosen, multiplied and added to each other.
TEST(Absorb, MasksAreFoundWhereTheyAreMade) {
  const auto absorbs = [](const Graph& graph) {
    return graph.nodes[graph.taps[0].terms[0].node].attributes.scalar != 0;
  };
  for (const double least : {kLowest, -1e30, -1e9}) {
    TraceBuilder b;
    const TensorRef scores = b.leaf({2}, {5, -3}), kept = b.leaf({2}, {1, 0}), bias = b.leaf({2}, {0.5, 0.25});
    const TensorRef padded = b.op1("aten::rsub.Scalar", {{"self", kept}, {"other", 1.0}}, {2});
    const TensorRef mask = b.op1("aten::mul.Tensor", {{"self", padded}, {"other", least}}, {2});
    const TensorRef biased = b.op1("aten::add.Tensor", {{"self", bias}, {"other", mask}}, {2});
    b.tap("masked", b.op1("aten::add.Tensor", {{"self", scores}, {"other", biased}}, {2}));
    const Graph graph = lower(b.trace);
    EXPECT_EQ(absorbs(graph), least < -primitive::kStandsForInfinity) << least;
    const Values expected = least == -1e9 ? Values{5.5, -3 + 0.25 + least} : Values{5.5, least};
    EXPECT_EQ(testing::tap_values(graph, "masked"), expected);
  }
}

}  // namespace
}  // namespace plumbline
