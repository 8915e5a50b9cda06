#include <gtest/gtest.h>

#include <cmath>

#include "server/bound/compute.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const std::vector<double> kX = {0.1, -0.7, 1.3, 0.45};

Bounds compared(const GraphBuilder& target, const GraphBuilder& reference) {
  const Profile profile = ieee();
  return compute_bounds({.target = &target.graph, .reference = &reference.graph, .profile = &profile, .seed = 5});
}

bool agree(const Bounds& bounds) {
  bool any = false, all = true;
  for (const Finding& finding : bounds.findings) {
    any = any || finding.mathematics.asked;
    all = all && (!finding.mathematics.asked || finding.mathematics.passed());
  }
  return any && all;
}

std::vector<double> held(std::vector<double> values) {
  for (double& value : values) value = round_to(Format::kFloat32, value);
  return values;
}

std::vector<double> mapped(double (*f)(double)) {
  std::vector<double> values;
  for (double x : held(kX)) values.push_back(f(x));
  return held(values);
}

std::size_t with_evidence(const Bounds& bounds, Evidence evidence) {
  std::size_t found = 0;
  for (const MatchedItem& item : bounds.match.items) found += item.evidence == evidence;
  return found;
}

void tap_sum(GraphBuilder* b, NodeId node) { b->tap("loss", TapKind::kLoss, b->sum_all(node), {0}); }

TEST(Match, DrawsGoByContentWhateverTheirOrder) {
  const std::vector<double> first = held({0.3, 0.6, 0.1, 0.9}), second = held({0.2, 0.8, 0.7, 0.4});
  const auto program = [&](bool exchanged) {
    GraphBuilder b;
    const NodeId u = b.leaf({4}, first, Format::kFloat32, exchanged ? "#1" : "#0", LeafRole::kRandom);
    const NodeId v = b.leaf({4}, second, Format::kFloat32, exchanged ? "#0" : "#1", LeafRole::kRandom);
    tap_sum(&b, b.op(Primitive::kMul, {b.op(Primitive::kExp, {u}, {4}), v}, {4}));
    return b;
  };
  EXPECT_TRUE(agree(compared(program(false), program(true))));
}

TEST(Match, ATableThatTheOtherProgramComputesIsComputed) {
  GraphBuilder cached, computed;
  const NodeId x = computed.leaf({4}, held(kX)), y = cached.leaf({4}, held(kX));
  const NodeId table = cached.leaf({4}, mapped([](double v) { return std::exp(v); }), Format::kFloat32, "buffer:table",
                                   LeafRole::kBuffer);
  tap_sum(&cached, cached.op(Primitive::kMul, {y, table}, {4}));
  tap_sum(&computed, computed.op(Primitive::kMul, {x, computed.op(Primitive::kExp, {x}, {4})}, {4}));
  for (const Bounds& bounds : {compared(cached, computed), compared(computed, cached)}) {
    EXPECT_TRUE(agree(bounds));
    EXPECT_EQ(with_evidence(bounds, Evidence::kComputed), 1U);
  }
}

// One program multiplies by thirds that it was given, the other divides by 3.
TEST(Match, WhatHasNoCounterpartIsFreeAsFarAsItIsRounded) {
  const auto given = [](double third) {
    GraphBuilder b;
    const NodeId x = b.leaf({4}, held(kX)), factors = b.leaf({4}, held({third, third, third, third}));
    tap_sum(&b, b.op(Primitive::kExp, {b.op(Primitive::kMul, {x, factors}, {4})}, {4}));
    return b;
  };
  GraphBuilder divided;
  Attributes three;
  three.scalar = 3;
  const NodeId x = divided.leaf({4}, held(kX));
  const NodeId by = divided.op(Primitive::kConstant, {}, {}, Format::kFloat32, three);
  tap_sum(&divided, divided.op(Primitive::kExp, {divided.op(Primitive::kDiv, {x, by}, {4})}, {4}));
  const Bounds bounds = compared(given(1.0 / 3), divided);
  EXPECT_TRUE(agree(bounds));
  EXPECT_GT(bounds.findings.front().mathematics.freedom, 0);
  EXPECT_FALSE(agree(compared(given(1.0 / 3 + 1e-5), divided)));
}

TEST(Match, AGradientThatOneProgramLacksIsMissingUnlessItIsZero) {
  const auto program = [](bool both, double second) {
    GraphBuilder b;
    const NodeId v = b.leaf({1}, {0.5}, Format::kFloat32, "param:v", LeafRole::kParameter);
    const NodeId w = b.leaf({1}, {second}, Format::kFloat32, "param:w", LeafRole::kParameter);
    const NodeId gv = b.op(Primitive::kNeg, {v}, {1}), gw = b.op(Primitive::kNeg, {w}, {1});
    b.tap("grad:v", TapKind::kGradient, gv, {-0.5});
    if (both) b.tap("grad:w", TapKind::kGradient, gw, {-second});
    return b;
  };
  const Bounds lost = compared(program(false, 0.25), program(true, 0.25));
  ASSERT_EQ(lost.missing_taps.size(), 1U);
  EXPECT_EQ(lost.missing_taps[0].tap, "grad:w");
  EXPECT_TRUE(lost.missing_taps[0].in_reference);
  EXPECT_TRUE(compared(program(false, 0), program(true, 0)).missing_taps.empty());
}

TEST(Match, ALargeElementHidesNoSmallOne) {
  const auto program = [](double factor) {
    GraphBuilder b;
    const NodeId large = b.leaf({2}, {0x1p60, 0x1p59}), small = b.leaf({2}, held({0.1, 0.3}));
    Attributes scale;
    scale.scalar = factor;
    const NodeId by = b.op(Primitive::kConstant, {}, {}, Format::kFloat64, scale);
    Attributes attributes;
    attributes.size = 4;
    attributes.views = {View{{2}, {1}, 0}, View{{2}, {1}, 2}};
    const NodeId scaled = b.op(Primitive::kMul, {small, by}, {2}, Format::kFloat64);
    const NodeId all = b.op(Primitive::kAssemble, {large, scaled}, {4}, Format::kFloat64, attributes);
    b.tap("y", TapKind::kValue, all, {0x1p60, 0x1p59, 0.1, 0.3});
    return b;
  };
  // Written in another way, so that the programs are two.
  EXPECT_TRUE(agree(compared(program(1), program(1))));
  const Bounds bounds = compared(program(1 + 1e-6), program(1));
  EXPECT_FALSE(agree(bounds));
  bool by_itself = false;
  for (const Finding& finding : bounds.findings)
    by_itself = by_itself || (finding.name == "y[2]" && finding.mathematics.failed() && finding.mathematics.confirmed);
  EXPECT_TRUE(by_itself);
}

TEST(Match, InfinitiesAreComparedInTheirPatternAndWhatIsFiniteByItself) {
  const auto program = [](double factor, double masked) {
    GraphBuilder b;
    const NodeId x = b.leaf({3}, held({0.1, 0.3, 0.7})), mask = b.leaf({3}, {0, masked, 0});
    Attributes scale;
    scale.scalar = factor;
    const NodeId by = b.op(Primitive::kConstant, {}, {}, Format::kFloat64, scale);
    const NodeId scores = b.op(Primitive::kAdd, {b.op(Primitive::kMul, {x, by}, {3}), mask}, {3});
    b.tap("scores", TapKind::kValue, scores, {0.1, masked == 0 ? 0.3 : masked, 0.7});
    return b;
  };
  EXPECT_TRUE(agree(compared(program(1, -kInfinity), program(1, -kInfinity))));
  EXPECT_FALSE(agree(compared(program(1 + 1e-6, -kInfinity), program(1, -kInfinity))));
  EXPECT_FALSE(agree(compared(program(1, -kInfinity), program(1, 0))));
}

}  // namespace
}  // namespace plumbline
