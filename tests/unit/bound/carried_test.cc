#include "server/bound/pair/carried.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/bound/compared.h"

namespace plumbline {
namespace {

using test::agree;
using test::compared;
using test::GraphBuilder;
using test::held;
using test::kX;

// What a step does with gradients that the one before left: 2 w, and what it found.
GraphBuilder accumulating(const std::vector<double>& carried, bool clips = false) {
  GraphBuilder b;
  const NodeId w = b.leaf({4}, held(kX), Format::kFloat32, "param:w", LeafRole::kParameter);
  NodeId sum = b.op(Primitive::kAdd, {w, w}, {4});
  if (!carried.empty())
    sum = b.op(Primitive::kAdd, {b.leaf({4}, held(carried), Format::kFloat32, "state:w.grad", LeafRole::kState), sum},
               {4});
  b.tap("grad:w", TapKind::kGradient, sum, {0, 0, 0, 0});
  b.graph.carried.push_back(b.graph.taps.back());
  b.graph.carried.back().name = "state:w.grad";
  if (clips) b.graph.carried.back().terms.front().node = b.op(Primitive::kMul, {sum, w}, {4});
  return b;
}

TEST(Carried, GradientsThatWereClearedAreNone) {
  const std::vector<double> none, zeros = {0, 0, 0, 0}, some = {0.3, 0.1, -0.2, 0.7}, drifted = {0.31, 0.1, -0.2, 0.7};
  EXPECT_TRUE(agree(compared(accumulating(none), accumulating(zeros))));
  EXPECT_TRUE(agree(compared(accumulating(zeros), accumulating(none))));
  EXPECT_TRUE(agree(compared(accumulating(drifted), accumulating(some))));
  for (const auto& cleared : {none, zeros}) {
    EXPECT_FALSE(agree(compared(accumulating(cleared), accumulating(some))));
    EXPECT_FALSE(agree(compared(accumulating(some), accumulating(cleared))));
  }
}

TEST(Carried, WhatIsLeftApartIsNotedAndAccusesNobodyYet) {
  const std::vector<double> some = {0.3, 0.1, -0.2, 0.7}, other = {0.9, -0.1, 0.5, 0.2};
  const Bounds same = compared(accumulating(some), accumulating(some));
  EXPECT_TRUE(same.apart.leaf.empty());
  const Bounds left = compared(accumulating(some, true), accumulating(some));
  EXPECT_TRUE(agree(left));
  EXPECT_EQ(left.apart.leaf, "state:w.grad");
  EXPECT_GT(left.apart.by, 0.1);
  EXPECT_TRUE(still_apart(left.apart, accumulating(some).graph, accumulating(other).graph));
  EXPECT_FALSE(still_apart(left.apart, accumulating(some).graph, accumulating(some).graph));
  EXPECT_FALSE(still_apart(left.apart, accumulating(some).graph, accumulating({}).graph));
}

// A step that adds the gradients of w^2 to those that are carried, the loss weighed; with a divisor it divides all of
// them in the end, and takes them off.
GraphBuilder weighed(const std::vector<double>& carried, double weight, double divisor = 0) {
  GraphBuilder b;
  const NodeId w = b.leaf({4}, held(kX), Format::kFloat32, "param:w", LeafRole::kParameter);
  const NodeId by = b.leaf({}, {weight}), half = b.op(Primitive::kMul, {w, by}, {4});
  const NodeId whole = b.sum_all(b.op(Primitive::kMul, {w, w}, {4}));
  const NodeId loss = b.op(Primitive::kMul, {whole, by}, {});
  b.tap("loss", TapKind::kLoss, loss, {0});
  // As a client tells it.
  if (divisor > 1) b.tap("unscaled:loss", TapKind::kLoss, b.op(Primitive::kDiv, {loss, by}, {}), {0});
  NodeId sum = b.op(Primitive::kAdd, {half, half}, {4});
  const NodeId before = b.leaf({4}, held(carried), Format::kFloat32, "state:w.grad", LeafRole::kState);
  sum = b.op(Primitive::kAdd, {before, sum}, {4});
  if (divisor != 0) {
    sum = b.op(Primitive::kDiv, {sum, b.leaf({}, {divisor})}, {4});
    b.tap("update:w", TapKind::kUpdate, b.op(Primitive::kNeg, {sum}, {4}), {0, 0, 0, 0});
  }
  b.tap("grad:w", TapKind::kGradient, sum, {0, 0, 0, 0});
  b.graph.carried.push_back(b.graph.taps.back());
  b.graph.carried.back().name = "state:w.grad";
  return b;
}

TEST(Carried, AScaleThatALaterStepMayTakeOutAccusesNobodyYet) {
  const std::vector<double> some = {0.3, 0.1, -0.2, 0.7}, thrice = {0.9, 0.31, -0.6, 2.12};  // Moved by roundings.
  const Profile profile = ieee();
  const auto asked = [&](const GraphBuilder& target, const GraphBuilder& reference, std::optional<double> scale) {
    return compute_bounds({.target = &target.graph,
                           .reference = &reference.graph,
                           .profile = &profile,
                           .seed = 5,
                           .carried_scale = scale});
  };
  const auto answered = [](const Bounds& bounds) { return !bounds.common_scale && !bounds.supposed_scale; };
  // It adds, to what is three times as large.
  const Bounds adds = asked(weighed(thrice, 3), weighed(some, 1), 3);
  EXPECT_NEAR(adds.common_scale.value_or(0), 3, 1e-12);
  EXPECT_EQ(adds.apart.scale, adds.common_scale);
  const Bounds was_one = asked(weighed(thrice, 3), weighed(some, 1), 1);
  EXPECT_TRUE(answered(was_one));
  EXPECT_FALSE(agree(was_one));
  const Bounds unknown = asked(weighed(thrice, 3), weighed(some, 1), std::nullopt);
  EXPECT_NEAR(unknown.supposed_scale.value_or(0), 3, 1e-12);
  EXPECT_EQ(unknown.apart.scale, 0);
  // It takes the scale out.
  const Bounds takes = asked(weighed(thrice, 3, 3), weighed(some, 1, 1), 3);
  EXPECT_TRUE(answered(takes));
  EXPECT_TRUE(agree(takes));
  EXPECT_FALSE(agree(asked(weighed(thrice, 3, 3), weighed(some, 1, 1), 1)));
  const Bounds supposed = asked(weighed(thrice, 3, 3), weighed(some, 1, 1), std::nullopt);
  EXPECT_NEAR(supposed.supposed_scale.value_or(0), 3, 1e-12);
  EXPECT_EQ(supposed.apart.scale, 1);
  // It forgets that, or scales this step's alone.
  for (const std::optional<double> scale : {std::optional(3.0), std::optional<double>()}) {
    const Bounds forgets = asked(weighed(thrice, 3, 1), weighed(some, 1, 1), scale);
    EXPECT_TRUE(answered(forgets));
    EXPECT_FALSE(agree(forgets));
    const Bounds mixes = asked(weighed(thrice, 2), weighed(some, 1), scale);
    EXPECT_FALSE(mixes.common_scale);
    EXPECT_FALSE(agree(mixes) || (scale && mixes.supposed_scale));
  }
}

}  // namespace
}  // namespace plumbline
