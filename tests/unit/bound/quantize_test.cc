#include <gtest/gtest.h>

#include <cmath>

#include "server/bound/compute.h"
#include "server/bound/findings/grid_hazards.h"
#include "server/bound/replay/decided.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::encoded;
using test::GraphBuilder;

constexpr double kStep = 0x1p-8;

// round(x / step) clamped to [-8, 7], times step; `shift` moves what the device is told to have rounded to.
struct Quantised {
  GraphBuilder b;
  NodeId code = 0, clamped = 0, out = 0;

  explicit Quantised(const std::vector<double>& x, bool stochastic = false, const std::vector<double>& told = {}) {
    const auto n = static_cast<std::int64_t>(x.size());
    const NodeId leaf = b.leaf({n}, x, Format::kFloat32, "x");
    const NodeId scaled = b.op(Primitive::kMul, {leaf, number(1 / kStep)}, {n});
    std::vector<double> codes;
    if (stochastic) {
      const std::vector<double> draws(x.size(), 0.75);
      const NodeId draw = b.leaf({n}, draws, Format::kFloat32, "draw", LeafRole::kRandom);
      const NodeId moved = b.op(Primitive::kAdd, {scaled, draw}, {n});
      code = b.op(Primitive::kFloor, {moved}, {n});
      for (const double v : x) codes.push_back(std::floor(v / kStep + 0.75));
    } else {
      code = b.op(Primitive::kRound, {scaled}, {n});
      for (const double v : x) codes.push_back(std::nearbyint(v / kStep));
    }
    if (!told.empty()) codes = told;
    b.graph.decisions.push_back({code, encoded(Format::kFloat32, codes), false, Format::kFloat32});
    const NodeId low = b.op(Primitive::kMax, {code, number(-8)}, {n});
    clamped = b.op(Primitive::kMin, {low, number(7)}, {n});
    out = b.op(Primitive::kMul, {clamped, number(kStep)}, {n});
    std::vector<double> values;
    for (const double v : codes) values.push_back(std::fmin(std::fmax(v, -8), 7) * kStep);
    b.tap("q", TapKind::kValue, out, values);
  }

  NodeId number(double value) {
    Attributes attributes;
    attributes.scalar = value;
    return b.op(Primitive::kConstant, {}, {}, Format::kFloat32, attributes);
  }
};

Graph unquantised(const std::vector<double>& x) {
  GraphBuilder b;
  const auto n = static_cast<std::int64_t>(x.size());
  const NodeId leaf = b.leaf({n}, x, Format::kFloat32, "x");
  b.tap("q", TapKind::kValue, b.op(Primitive::kNeg, {b.op(Primitive::kNeg, {leaf}, {n})}, {n}), x);
  return b.graph;
}

const std::vector<double> kInRange = {0.3 * kStep, -2.6 * kStep, 4.4 * kStep};

TEST(Quantise, ToldCodesAreFollowedNextToTheEdgeOfABinAndIllegalBeyond) {
  const double edge = (2.5 - 0x1p-16) * kStep;
  const Graph near = Quantised({edge, 5 * kStep}, false, {3, 5}).b.graph;
  const DecisionCheck check = follow_decisions(near, leaf_values(near), Profile()).decisions;
  EXPECT_EQ(check.differing, 1U);
  EXPECT_TRUE(check.illegal.empty());
  const Graph far = Quantised({2.2 * kStep, 5 * kStep}, false, {3, 5}).b.graph;
  EXPECT_EQ(follow_decisions(far, leaf_values(far), Profile()).decisions.illegal.size(), 1U);
}

struct Compared {
  Bounds bounds;
  const Answer& mathematics() const { return bounds.findings.front().mathematics; }
};

Compared compared(const Graph& target, const Graph& reference) {
  const Profile profile = ieee();
  Compared found{compute_bounds({.target = &target, .reference = &reference, .profile = &profile, .seed = 3})};
  EXPECT_FALSE(found.bounds.findings.empty());
  return found;
}

TEST(Quantise, SharedGridsStayDecisions) {
  const Compared found = compared(Quantised(kInRange).b.graph, Quantised(kInRange).b.graph);
  EXPECT_TRUE(found.mathematics().passed());
  EXPECT_TRUE(found.bounds.match.target_grids.empty());
}

TEST(Quantise, AGridOfOneProgramIsAFormatWhoseStepIsFree) {
  double envelopes[2] = {};
  for (const bool stochastic : {false, true}) {
    const Quantised built(kInRange, stochastic);
    const Compared found = compared(built.b.graph, unquantised(kInRange));
    EXPECT_EQ(found.bounds.match.target_grids, std::vector<NodeId>{built.code});
    EXPECT_LE(found.mathematics().deviation, 1e-15);
    envelopes[stochastic ? 1 : 0] = found.mathematics().freedom;
  }
  EXPECT_NEAR(envelopes[1] / envelopes[0], 2, 0.2) << "stochastic rounding is off by a step, nearest by half of one";
}

// 3 x, where x and the product may be rounded to the grid.
Graph tripled(const std::vector<double>& x, bool first, bool second) {
  GraphBuilder b;
  const auto n = static_cast<std::int64_t>(x.size());
  const auto times = [&](NodeId value, double factor) {
    Attributes attributes;
    attributes.scalar = factor;
    return b.op(Primitive::kMul, {value, b.op(Primitive::kConstant, {}, {}, Format::kFloat32, attributes)}, {n});
  };
  const auto on_grid = [&](NodeId value) {
    return times(b.op(Primitive::kRound, {times(value, 1 / kStep)}, {n}), kStep);
  };
  NodeId value = b.leaf({n}, x, Format::kFloat32, "x");
  if (first) value = on_grid(value);
  value = times(value, 3);
  if (second) value = on_grid(value);
  std::vector<double> values;
  for (const double v : x) {
    const double tripled = 3 * (first ? std::nearbyint(v / kStep) * kStep : v);
    values.push_back(second ? std::nearbyint(tripled / kStep) * kStep : tripled);
  }
  b.tap("q", TapKind::kValue, value, values);
  return b.graph;
}

TEST(Quantise, BehindAGridTheNextOneSeesWhatWasNotRounded) {
  const Graph plain = tripled(kInRange, false, false);
  const Compared one = compared(tripled(kInRange, false, true), plain);
  const Compared both = compared(tripled(kInRange, true, true), plain);
  EXPECT_EQ(both.bounds.match.target_grids.size(), 2U);
  EXPECT_LE(both.mathematics().deviation, 1e-15);
  EXPECT_NEAR(both.mathematics().freedom / one.mathematics().freedom, 4, 0.2) << "half a step thrice, and half of one";
}

TEST(Quantise, RoundingsOfTwoKindsAreFormatsInBoth) {
  const Compared found = compared(Quantised(kInRange, true).b.graph, Quantised(kInRange).b.graph);
  EXPECT_TRUE(found.mathematics().passed());
  EXPECT_EQ(found.bounds.match.target_grids.size(), 1U);
  EXPECT_EQ(found.bounds.match.reference_grids.size(), 1U);
}

// Where a rounding led to the tie, it may go either way: tests/scenario/e_round_half.py.
TEST(Quantise, ATieThatNothingRoundedIsEachProgramsOwnRule) {
  // 2.5 steps, which one program rounds to 2 and the other, by floor(x + 1/2), to 3: no execution of either does else.
  const std::vector<double> x = {2.5 * kStep, 0.3 * kStep};
  GraphBuilder b;
  const NodeId leaf = b.leaf({2}, x, Format::kFloat32, "x");
  Attributes scale, half;
  scale.scalar = 1 / kStep;
  half.scalar = 0.5;
  const NodeId scaled = b.op(Primitive::kMul, {leaf, b.op(Primitive::kConstant, {}, {}, Format::kFloat32, scale)}, {2});
  const NodeId moved = b.op(Primitive::kAdd, {scaled, b.op(Primitive::kConstant, {}, {}, Format::kFloat32, half)}, {2});
  const NodeId code = b.op(Primitive::kFloor, {moved}, {2});
  b.tap("q", TapKind::kValue, b.op(Primitive::kNeg, {b.op(Primitive::kNeg, {code}, {2})}, {2}), {3, 0});
  GraphBuilder other;
  const NodeId same = other.leaf({2}, x, Format::kFloat32, "x");
  const NodeId divided =
      other.op(Primitive::kMul, {same, other.op(Primitive::kConstant, {}, {}, Format::kFloat32, scale)}, {2});
  other.tap("q", TapKind::kValue, other.op(Primitive::kRound, {divided}, {2}), {2, 0});
  for (const bool exchanged : {false, true}) {
    const Compared found = exchanged ? compared(other.graph, b.graph) : compared(b.graph, other.graph);
    EXPECT_TRUE(found.mathematics().failed());
  }
}

TEST(Quantise, SaturationIsAHazardWithItsShare) {
  const auto hazards = [](const std::vector<double>& x) {
    const Quantised built(x);
    std::vector<HazardFinding> findings;
    find_grid_hazards(built.b.graph, replay(built.b.graph, leaf_values(built.b.graph), Precision::kExact), &findings);
    return findings;
  };
  EXPECT_TRUE(hazards(kInRange).empty());
  const auto found = hazards({0.3 * kStep, 20 * kStep, 30 * kStep, -3 * kStep});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, HazardKind::kSaturation);
  EXPECT_EQ(found[0].share, 0.5);
}

}  // namespace
}  // namespace plumbline
