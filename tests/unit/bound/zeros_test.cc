// What hangs on a value that is zero by mathematics is found whatever it is that jumps there; what is continuous, exact
// or decided by both programs alike does not move.
#include "server/bound/pair/zeros.h"

#include <gtest/gtest.h>

#include <numbers>

#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

// A use of d = (a + b) - c, for one element.
struct Program {
  Program(double a, double b, double c) {
    const auto number = [&](double x) { return builder.leaf({1}, {x}, Format::kFloat64); };
    const NodeId sum = op(Primitive::kAdd, {number(a), number(b)});
    d = op(Primitive::kSub, {sum, number(c)});
    minus_one = number(-1);
  }

  NodeId op(Primitive primitive, std::vector<NodeId> inputs) {
    return builder.op(primitive, std::move(inputs), {1}, Format::kFloat64);
  }

  double moved(NodeId used, std::vector<NodeId> shared = {}, decltype(&moved_by_zeros) by = moved_by_zeros) {
    builder.tap("used", TapKind::kValue, used, {0});
    const Graph& graph = builder.graph;
    const std::vector<LeafValue> leaves = leaf_values(graph);
    const Replay exact = replay(graph, leaves, Precision::kExact);
    std::vector<bool> decided(graph.nodes.size(), false);
    for (NodeId id : shared) decided[id] = true;
    const std::vector<Probe> probes{scalar_probe({0, "used", {1}, 1})};
    return by(graph, exact, leaves, {}, decided, probes).front();
  }

  GraphBuilder builder;
  NodeId d = 0, minus_one = 0;
};

Program cancelling() { return {0.1, 0.2, 0.3}; }  // 5.6e-17 in fp64.

TEST(Zeros, AnAngleAtItsCutJumps) {
  Program program = cancelling();
  EXPECT_DOUBLE_EQ(program.moved(program.op(Primitive::kAtan2, {program.d, program.minus_one})), 2 * std::numbers::pi);
}

TEST(Zeros, AQuotientByItsOwnMagnitudeJumps) {
  Program program = cancelling();
  const NodeId size = program.op(Primitive::kAbs, {program.d});
  EXPECT_EQ(program.moved(program.op(Primitive::kDiv, {program.d, size})), 2);
}

TEST(Zeros, WhatIsMadeOfOneZeroHasOneSign) {
  Program program = cancelling();
  const NodeId twice = program.op(Primitive::kAdd, {program.d, program.d});
  EXPECT_EQ(program.moved(program.op(Primitive::kDiv, {twice, program.d})), 0);
}

TEST(Zeros, WhatIsContinuousMovesByARounding) {
  Program program = cancelling();
  EXPECT_LT(program.moved(program.op(Primitive::kExp, {program.d})), 1e-15);
}

TEST(Zeros, ADifferenceOfWholeNumbersIsZeroAnywhere) {
  Program program(1, 2, 3);
  EXPECT_EQ(program.moved(program.op(Primitive::kAtan2, {program.d, program.minus_one})), 0);
}

TEST(Zeros, TheSignOfAnExactZeroIsNoMathematics) {
  Program program(1, 2, 3);
  const NodeId negative = program.op(Primitive::kNeg, {program.d});
  const NodeId angle = program.op(Primitive::kAtan2, {negative, program.minus_one});
  EXPECT_DOUBLE_EQ(program.moved(angle, {}, moved_by_negative_zeros), 2 * std::numbers::pi);
}

TEST(Zeros, ASignThatNothingTellsApartMovesNothing) {
  Program program(1, 2, 3);
  const NodeId negative = program.op(Primitive::kNeg, {program.d});
  EXPECT_EQ(program.moved(program.op(Primitive::kAdd, {negative, program.minus_one}), {}, moved_by_negative_zeros), 0);
}

TEST(Zeros, WhatIsNotZeroKeepsItsSign) {
  Program program(0.1, 0.2, 0.300001);
  EXPECT_EQ(program.moved(program.op(Primitive::kAtan2, {program.d, program.minus_one})), 0);
}

TEST(Zeros, ADecisionOfBothProgramsStays) {
  Program program = cancelling();
  const NodeId sign = program.op(Primitive::kSign, {program.d});
  EXPECT_EQ(program.moved(sign, {sign}), 0);
  Program alone = cancelling();
  EXPECT_EQ(alone.moved(alone.op(Primitive::kSign, {alone.d})), 2);
}

}  // namespace
}  // namespace plumbline
