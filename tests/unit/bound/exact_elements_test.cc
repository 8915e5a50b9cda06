#include "server/bound/match/exact_elements.h"

#include <gtest/gtest.h>

#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

// Tells of each element of the last node whether it may be off.
std::vector<bool> loose(const GraphBuilder& program, const Freedoms& freedoms = {}, const Profile* profile = nullptr) {
  const Graph& graph = program.graph;
  GraphBuilder tapped = program;
  const auto last = static_cast<NodeId>(graph.nodes.size() - 1);
  const auto elements = static_cast<std::size_t>(count(graph.nodes[last].shape));
  tapped.tap("y", TapKind::kValue, last, std::vector<double>(elements));
  const Replay exact = replay(tapped.graph, leaf_values(tapped.graph), Precision::kExact);
  const MatchSide side{tapped.graph, exact, profile};
  const std::vector<double> relative(graph.nodes.size(), 0x1p-38);
  ExactElements found(side, freedoms, relative);
  const Loose& last_loose = found.of(last);
  std::vector<bool> each(elements, last_loose.all);
  for (std::size_t i = 0; i < elements && last_loose.elements; ++i) each[i] = last_loose.elements.data()[i] != 0;
  return each;
}

NodeId constant(GraphBuilder* b, double value, Format format = Format::kFloat32) {
  Attributes attributes;
  attributes.scalar = value;
  return b->op(Primitive::kConstant, {}, {}, format, attributes);
}

NodeId cumulated(GraphBuilder* b, NodeId x, Shape shape, Format format = Format::kFloat32) {
  Attributes attributes;
  attributes.dims = {static_cast<std::int64_t>(shape.size()) - 1};
  return b->op(Primitive::kCumsum, {x}, std::move(shape), format, attributes);
}

const std::vector<bool> kNone(4, false), kAll(4, true);

TEST(ExactElements, RunningSumsOfIntegersAre) {
  GraphBuilder b;
  cumulated(&b, b.leaf({4}, {0, 1, 0, 1}), {4});
  EXPECT_EQ(loose(b), kNone);
}

TEST(ExactElements, SumsThatTheFormatHoldsInNoOrderAreNot) {
  GraphBuilder small, large;
  cumulated(&small, small.leaf({4}, {100, 100, 55, 1}, Format::kBFloat16), {4}, Format::kBFloat16);
  EXPECT_EQ(loose(small), kNone) << "256 multiples of one";
  cumulated(&large, large.leaf({4}, {100, 100, 55, 2}, Format::kBFloat16), {4}, Format::kBFloat16);
  EXPECT_EQ(loose(large), kAll) << "257 of them are no number of bf16";
}

TEST(ExactElements, GoByElement) {
  GraphBuilder b;
  const NodeId x = b.leaf({4}, {0.1F, 0.5, 7, 1});
  b.op(Primitive::kMul, {x, constant(&b, round_to(Format::kFloat32, 0.3))}, {4});
  EXPECT_EQ(loose(b), (std::vector<bool>{true, false, true, false}));
  GraphBuilder c;
  const NodeId y = c.leaf({4}, {0.1F, 0.5, 3, 1});
  c.op(Primitive::kSub, {constant(&c, 1 + 0x1p-23), y}, {4});
  EXPECT_EQ(loose(c), (std::vector<bool>{true, false, false, false}));
}

TEST(ExactElements, PositionsInAnOrderAreWhereNoTwoNumbersLieSideBySide) {
  GraphBuilder b;
  const NodeId x = b.op(Primitive::kMul, {b.leaf({2, 3}, {1, 2, 3, 2, 3, 2}), constant(&b, 0.3F)}, {2, 3});
  Attributes attributes;
  attributes.dims = {1};
  attributes.size = 3;
  b.op(Primitive::kArgsort, {x}, {2, 3}, Format::kInt64, attributes);
  EXPECT_EQ(loose(b), (std::vector<bool>{false, false, false, false, true, true}));
}

TEST(ExactElements, WhatADeviceMayFlushIsNot) {
  GraphBuilder b;
  b.op(Primitive::kMul, {b.leaf({4}, {0, 1, 2, 4}), constant(&b, 0x1p-127)}, {4});
  EXPECT_EQ(loose(b), (std::vector<bool>{false, true, false, false}));
}

TEST(ExactElements, ARowOfZerosAddsUpToZero) {
  GraphBuilder b;
  Attributes rows;
  rows.dims = {1};
  b.op(Primitive::kSum, {b.op(Primitive::kAbs, {b.leaf({2, 2}, {0, 0, 0.1F, 0.7F})}, {2, 2})}, {2, 1}, Format::kFloat32,
       rows);
  EXPECT_EQ(loose(b), (std::vector<bool>{false, true}));
}

TEST(ExactElements, ADecisionFarFromATieIsCertain) {
  GraphBuilder b;
  const NodeId x = b.op(Primitive::kExp, {b.leaf({4}, {0, 1, 2, 3})}, {4});
  b.op(Primitive::kGreater, {x, constant(&b, 1)}, {4}, Format::kBool);
  EXPECT_EQ(loose(b), (std::vector<bool>{true, false, false, false})) << "exp(0) is 1, or next to it";
}

// Backward, the slope at a kink is somebody's rule; what a program itself asks has one answer. There is nothing to
// settle in what was given.
TEST(ExactElements, TheSlopeAtAKinkIsOpenUnlessItIsOfWhatWasGiven) {
  for (const Primitive convention : {Primitive::kSign, Primitive::kGreater}) {
    const auto program = [&](bool calculated, Phase phase = Phase::kBackward) {
      GraphBuilder b;
      const NodeId x = b.leaf({4}, {0, 1, 2, 3});
      std::vector<NodeId> operands = {calculated ? b.op(Primitive::kAdd, {x, constant(&b, 0)}, {4}) : x};
      if (convention == Primitive::kGreater) operands.push_back(constant(&b, 0));
      b.op(convention, operands, {4}, convention == Primitive::kGreater ? Format::kBool : Format::kFloat32);
      b.graph.origins[b.graph.nodes.back().origin].phase = phase;
      return b;
    };
    EXPECT_EQ(loose(program(false)), kNone);
    EXPECT_EQ(loose(program(true)), (std::vector<bool>{true, false, false, false}));
    EXPECT_EQ(loose(program(true, Phase::kForward)), kNone);
  }
}

TEST(ExactElements, WhatIsDecidedOfExactNumbersIsCertain) {
  for (const Primitive decision : {Primitive::kEqual, Primitive::kTrunc, Primitive::kRound}) {
    GraphBuilder b;
    std::vector<NodeId> operands = {cumulated(&b, b.leaf({4}, {1, 1, 0, 1}), {4})};
    if (decision == Primitive::kEqual) operands.push_back(constant(&b, 2));
    b.op(decision, operands, {4}, decision == Primitive::kEqual ? Format::kBool : Format::kFloat32);
    EXPECT_EQ(loose(b), kNone);
  }
}

TEST(ExactElements, WhatIsFreeIsNot) {
  GraphBuilder b;
  const NodeId x = b.leaf({4}, {1, 2, 3, 4});
  b.op(Primitive::kAdd, {x, x}, {4});
  EXPECT_EQ(loose(b), kNone);
  EXPECT_EQ(loose(b, {{x, Array::full({4}, 0x1p-24)}}), kAll);
}

TEST(ExactElements, DivisionByOtherThanPowersOfTwoIsNotIfNobodyPromisesIt) {
  for (const double by : {2.0, 3.0}) {
    GraphBuilder b;
    b.op(Primitive::kDiv, {b.leaf({4}, {6, 12, 18, 24}), constant(&b, by)}, {4});
    EXPECT_EQ(loose(b), by == 2 ? kNone : kAll) << "a device may multiply by the reciprocal";
  }
}

// What a device promises of quotients and roots: `ulp` of both.
Profile promising(double ulp) {
  Profile profile = ieee();
  for (const Function function : {Function::kDivide, Function::kSqrt})
    profile.functions[static_cast<int>(function)].ulp = ulp;
  return profile;
}

TEST(ExactElements, QuotientsThatTheFormatHoldsAreWhereTheDeviceDivides) {
  GraphBuilder b;
  b.op(Primitive::kDiv, {b.leaf({4}, {6, 9, 1, 0.3F}), b.leaf({4}, {3, 3, 3, 3})}, {4});
  const Profile rounds = promising(0), estimates = promising(1);
  EXPECT_EQ(loose(b, {}, &rounds), (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(loose(b, {}, &estimates), kAll);
  b.graph.origins[b.graph.nodes.back().origin].defined = true;
  EXPECT_EQ(loose(b, {}, &rounds), kAll) << "a user's own kernel promises nothing";
}

TEST(ExactElements, QuotientsByOneNumberAreWhereTheReciprocalGivesThemToo) {
  GraphBuilder b;
  b.op(Primitive::kDiv, {b.leaf({4}, {41, 82, 123, 0}), constant(&b, 41)}, {4});
  const Profile profile = promising(0);
  EXPECT_NE(round_to(Format::kFloat32, 41 * round_to(Format::kFloat32, 1 / 41.0)), 1);
  EXPECT_EQ(loose(b, {}, &profile)[0], true);
  EXPECT_EQ(loose(b, {}, &profile)[3], false);
}

TEST(ExactElements, RootsOfSquaresAreWhereTheDeviceIsFaithful) {
  GraphBuilder b;
  b.op(Primitive::kSqrt, {b.leaf({4}, {9, 0.25F, 2, 0})}, {4});
  const Profile faithful = promising(0.5), other = promising(1);
  EXPECT_EQ(loose(b, {}, &faithful), (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(loose(b, {}, &other), kAll);
}

TEST(ExactElements, NormsGoByRow) {
  GraphBuilder b;
  Attributes rows;
  rows.dims = {1};
  b.op(Primitive::kNorm, {b.leaf({4, 2}, {3, 4, 1, 1, 6003, 8004, 0, 0.1F})}, {4, 1}, Format::kFloat32, rows);
  const Profile profile = promising(0.5);
  EXPECT_EQ(loose(b, {}, &profile), (std::vector<bool>{false, true, true, true})) << "10005 squared needs 27 bits";
}

// A kernel that adds up a variance forms the mean on the way as it likes.
TEST(ExactElements, WhatAnOperationGoesOnToComputeWithIsNot) {
  const auto program = [](bool one_operation) {
    GraphBuilder b;
    const NodeId mean = b.op(Primitive::kDiv, {b.leaf({4}, {6, 9, 12, 3}), b.leaf({4}, {3, 3, 3, 3})}, {4});
    const NodeId less = b.op(Primitive::kSub, {mean, constant(&b, 1)}, {4});
    if (one_operation) b.graph.nodes[less].origin = b.graph.nodes[mean].origin;
    return b;
  };
  const Profile profile = promising(0);
  EXPECT_EQ(loose(program(false), {}, &profile), kNone);
  EXPECT_EQ(loose(program(true), {}, &profile), kAll);
}

TEST(ExactElements, WhatAClampHoldsIsWhereTheOtherOperandLiesBeyondIt) {
  GraphBuilder b;
  const NodeId x = b.op(Primitive::kExp, {b.leaf({4}, {-1, 0, 1, 3})}, {4});
  b.op(Primitive::kMin, {x, constant(&b, 1)}, {4});
  EXPECT_EQ(loose(b), (std::vector<bool>{true, true, false, false})) << "exp(0) is 1, or next to it";
  const NodeId condition = b.op(Primitive::kGreater, {x, constant(&b, 2)}, {4}, Format::kBool);
  b.op(Primitive::kSelect, {condition, x, constant(&b, 0)}, {4});
  EXPECT_EQ(loose(b), (std::vector<bool>{false, false, true, true}));
}

TEST(ExactElements, WhatMayJumpIsBeyondNothing) {
  GraphBuilder b;
  const NodeId whole = b.op(Primitive::kFloor, {b.op(Primitive::kExp, {b.leaf({4}, {0, 0, 0, 0})}, {4})}, {4});
  b.op(Primitive::kMin, {whole, constant(&b, 0.5)}, {4});
  EXPECT_EQ(loose(b), kAll) << "floor(exp(0)) is 1 or 0";
}

TEST(ExactElements, ProductsAreWhereAllOperandsAreShort) {
  const auto program = [](double element) {
    GraphBuilder b;
    const NodeId x = b.leaf({2, 2}, {1, 0, 1, 1}), y = b.leaf({2, 2}, {3, 0, 0, element});
    b.op(Primitive::kMatmul, {x, y}, {2, 2});
    return b;
  };
  EXPECT_EQ(loose(program(200)), kNone);
  EXPECT_EQ(loose(program(257)), kAll) << "bf16 units do not hold it";
}

}  // namespace
}  // namespace plumbline
