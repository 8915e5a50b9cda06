#include "server/bound/pair/updates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "server/bound/compute.h"
#include "server/bound/enclose/interval.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

enum class Form { kDivideLast, kDivideFirst, kLargerRoot, kOwnGradient, kScaledLoss, kScaledWrongly };

std::vector<double> drawn(unsigned seed, std::int64_t n, double low, double high) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(draw(rng)));
  return values;
}

// w - lr g / sqrt(v) with the gradient g = 2 exp(raw), in `n` elements; what the target observed is what fp32 gives.
Graph program(std::int64_t n, Form form) {
  GraphBuilder b;
  const std::vector<double> w0 = drawn(1, n, -1, 1), raw0 = drawn(2, n, -1, 1), v0 = drawn(3, n, 1e-3, 1);
  const NodeId w = b.leaf({n}, w0, Format::kFloat32, "w", LeafRole::kParameter);
  const NodeId raw = b.leaf({n}, raw0, Format::kFloat32, "raw", LeafRole::kBuffer);
  const NodeId v = b.leaf({n}, v0, Format::kFloat32, "v", LeafRole::kState), lr = b.leaf({}, {0.3});
  const NodeId two = b.leaf({}, {2});
  const NodeId power = b.op(Primitive::kExp, {raw}, {n});
  const bool scaled = form == Form::kScaledLoss || form == Form::kScaledWrongly;
  NodeId gradient = b.op(Primitive::kMul, {power, two}, {n});
  if (scaled) gradient = b.op(Primitive::kMul, {gradient, b.leaf({}, {1024})}, {n});
  NodeId used = gradient;
  if (form == Form::kOwnGradient) used = b.op(Primitive::kMul, {power, two}, {n});
  if (scaled) used = b.op(Primitive::kDiv, {gradient, b.leaf({}, {form == Form::kScaledLoss ? 1024.0 : 1000.0})}, {n});
  const NodeId moved = form == Form::kLargerRoot ? b.op(Primitive::kAdd, {v, b.leaf({}, {1e-10})}, {n}) : v;
  const NodeId root = b.op(Primitive::kSqrt, {moved}, {n});
  NodeId step;
  if (form == Form::kDivideLast)
    step = b.op(Primitive::kDiv, {b.op(Primitive::kMul, {used, lr}, {n}), root}, {n});
  else
    step = b.op(Primitive::kMul, {b.op(Primitive::kDiv, {used, root}, {n}), lr}, {n});
  const NodeId updated = b.op(Primitive::kSub, {w, step}, {n});
  std::vector<double> g, w1;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    g.push_back((scaled ? 2048 : 2) * std::exp(static_cast<float>(raw0[i])));
    w1.push_back(w0[i] - 0.3 * g.back() / (scaled ? 1024 : 1) / std::sqrt(v0[i]));
  }
  b.tap("grad:w", TapKind::kGradient, gradient, g);
  if (scaled) b.graph.taps.back().terms[0].weight = 1.0 / 1024;
  b.tap("weight:w", TapKind::kUpdate, updated, w1);
  return b.graph;
}

const Finding* finding(const Bounds& bounds, const std::string& name) {
  for (const Finding& candidate : bounds.findings)
    if (candidate.name == name) return &candidate;
  return nullptr;
}

Bounds paired(const Graph& target, const Graph& reference) {
  static const Profile profile;
  return compute_bounds({&target, &reference, &profile, 42});
}

// What the comparison rests on: our own replay lies within its radii of the exact function, here by x87 arithmetic of
// 64 bits, whatever the sizes of what is added; and some element comes near.
TEST(OwnEnclosures, HoldTheReplay) {
  constexpr std::int64_t kDraws = 100'000;
  GraphBuilder b;
  std::mt19937 rng(5);
  std::uniform_real_distribution<double> mantissa(-2, 2), exponent(-20, 20);
  std::vector<double> w0, g0, v0;
  for (std::int64_t i = 0; i < kDraws; ++i) {
    const auto draw = [&] { return static_cast<float>(std::ldexp(mantissa(rng), static_cast<int>(exponent(rng)))); };
    w0.push_back(draw());
    g0.push_back(draw());
    v0.push_back(std::fabs(draw()));
  }
  const Shape shape{kDraws};
  const NodeId w = b.leaf(shape, w0), g = b.leaf(shape, g0), v = b.leaf(shape, v0), rate = b.leaf({}, {0.3});
  const NodeId root = b.op(Primitive::kSqrt, {v}, shape), ratio = b.op(Primitive::kDiv, {g, root}, shape);
  const NodeId updated = b.op(Primitive::kSub, {w, b.op(Primitive::kMul, {ratio, rate}, shape)}, shape);
  b.tap("w", TapKind::kUpdate, updated, w0);
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const Overrides none;
  const Enclosure own = Enclosures(b.graph, exact, {updated}, nullptr, none).take(updated);
  ASSERT_FALSE(own.exploded);
  const Array values = exact.value(updated).materialize(), radii = own.radius.values.materialize();
  const long double lr = static_cast<float>(0.3);
  long double nearest = 0;
  for (std::int64_t i = 0; i < kDraws; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const long double oracle = w0[at] - g0[at] / std::sqrt(static_cast<long double>(v0[at])) * lr;
    const long double deviation = std::fabs(values.data()[i] - oracle);
    ASSERT_LE(deviation, radii.data()[i]) << i;
    if (radii.data()[i] > 0) nearest = std::max(nearest, deviation / radii.data()[i]);
  }
  EXPECT_GT(nearest, 0.5);
}

// Whole, and in tiles of which the last is short.
class Updates : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Updates, testing::Values(7, 3 * 7001));

TEST_P(Updates, OfOneMathematicsAgreeWithoutASweep) {
  const Bounds bounds = paired(program(GetParam(), Form::kDivideLast), program(GetParam(), Form::kDivideFirst));
  const Finding* update = finding(bounds, "weight:w");
  ASSERT_NE(update, nullptr);
  EXPECT_TRUE(update->mathematics.passed());
  EXPECT_GT(update->mathematics.deviation, 0);  // The orders round otherwise, in our replays too.
  EXPECT_LT(update->mathematics.envelope, 1e-14);
  EXPECT_EQ(finding(bounds, "all updates and state"), nullptr);
  EXPECT_TRUE(finding(bounds, "all gradients")->mathematics.passed());
}

// The gradients are computed in other ways, what follows them is one program.
TEST_P(Updates, ThatAreOneFunctionAgreeExactly) {
  const Graph reference = program(GetParam(), Form::kDivideFirst);
  Graph target = program(GetParam(), Form::kDivideFirst);
  GraphTap& loss = target.taps.emplace_back(target.taps[0]);  // Both are still two programs.
  loss.name = "other";
  loss.kind = TapKind::kValue;
  const Bounds bounds = paired(target, reference);
  const Answer& answer = finding(bounds, "weight:w")->mathematics;
  EXPECT_TRUE(answer.passed());
  EXPECT_EQ(answer.envelope, 0);
}

// A constant of the same place in the program, with another content.
TEST_P(Updates, OfOtherConstantsDiffer) {
  const Graph reference = program(GetParam(), Form::kDivideFirst);
  Graph target = program(GetParam(), Form::kDivideFirst);
  for (GraphLeaf& leaf : target.leaves)
    if (leaf.role == LeafRole::kData && count(target.nodes[leaf.node].shape) == 1) {
      leaf.bytes = test::encoded(Format::kFloat32, {0.3000001});
      break;
    }
  EXPECT_TRUE(finding(paired(target, reference), "weight:w")->mathematics.disproved());
}

TEST_P(Updates, OfAnotherMathematicsDifferAndAreNamed) {
  const Bounds bounds = paired(program(GetParam(), Form::kLargerRoot), program(GetParam(), Form::kDivideFirst));
  EXPECT_TRUE(finding(bounds, "weight:w")->mathematics.disproved());
  EXPECT_TRUE(finding(bounds, "all gradients")->mathematics.passed());
  ASSERT_TRUE(bounds.suspicion);
}

// A loss scale is taken out of both: of the gradients by their taps' weights, of the updates by the program.
TEST_P(Updates, OfScaledGradientsAreComparedToo) {
  const Graph plain = program(GetParam(), Form::kDivideFirst), scaled = program(GetParam(), Form::kScaledLoss),
              wrong = program(GetParam(), Form::kScaledWrongly);
  for (const auto& [target, reference] : {std::pair(&scaled, &plain), std::pair(&plain, &scaled)}) {
    const Bounds bounds = paired(*target, *reference);
    EXPECT_TRUE(finding(bounds, "weight:w")->mathematics.passed());
    EXPECT_LT(finding(bounds, "weight:w")->mathematics.envelope, 1e-14);
    EXPECT_EQ(finding(bounds, "all updates and state"), nullptr);
  }
  const Bounds bounds = paired(wrong, plain);
  EXPECT_TRUE(finding(bounds, "all gradients")->mathematics.passed());
  EXPECT_TRUE(finding(bounds, "weight:w")->mathematics.disproved());
}

// The observed gradient is given to those that read it. Who computes the same once more reads the exact one, which is
// another: that is no difference of mathematics, and is asked by a functional.
TEST_P(Updates, ThatReadTheGradientElsewhereAreNotSettled) {
  const Bounds bounds = paired(program(GetParam(), Form::kOwnGradient), program(GetParam(), Form::kDivideFirst));
  EXPECT_FALSE(finding(bounds, "weight:w")->mathematics.asked);
  const Finding* signs = finding(bounds, "all updates and state");
  ASSERT_NE(signs, nullptr);
  EXPECT_TRUE(signs->mathematics.passed());
}

}  // namespace
}  // namespace plumbline
