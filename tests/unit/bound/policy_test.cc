#include "server/bound/findings/policy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/bound/compute.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

// a b + c, of which some operations are held in bf16. T is our own rounded execution.
struct Program {
  Program(Format product, Format sum) {
    std::vector<double> x(kElements), y(kElements), z(kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      x[i] = std::sin(1.0 + static_cast<double>(i));
      y[i] = std::cos(2.0 + static_cast<double>(i));
      z[i] = -x[i] * y[i] * 0.875;
    }
    const Shape shape{static_cast<std::int64_t>(kElements)};
    const NodeId a = builder.leaf(shape, x), b = builder.leaf(shape, y), c = builder.leaf(shape, z);
    multiplied = builder.op(Primitive::kMul, {a, b}, shape, product);
    const NodeId result = builder.op(Primitive::kAdd, {multiplied, c}, shape, sum);
    builder.tap("result", TapKind::kValue, result, std::vector<double>(kElements));
    const Replay rounded = replay(builder.graph, leaf_values(builder.graph), Precision::kRounded);
    const Array values = rounded.value(result).materialize();
    builder.graph.taps.clear();
    builder.tap("result", TapKind::kValue, result, {values.data(), values.data() + kElements});
  }
  static constexpr std::size_t kElements = 64;
  test::GraphBuilder builder;
  NodeId multiplied = 0;
};

Bounds compared(const Program& target, const Program& reference) {
  const Profile profile;
  BoundsInput input;
  input.target = &target.builder.graph;
  input.reference = &reference.builder.graph;
  input.profile = &profile;
  return compute_bounds(input);
}

TEST(Policy, NamesTheOneCastThatOwnsTheDifference) {
  const Program target(Format::kBFloat16, Format::kBFloat16), reference(Format::kFloat32, Format::kBFloat16);
  EXPECT_EQ(compared(target, reference).policy_casts, std::vector<NodeId>{target.multiplied});
}

TEST(Policy, EqualCastsAreNoPolicy) {
  const Program target(Format::kBFloat16, Format::kBFloat16), reference(Format::kBFloat16, Format::kBFloat16);
  EXPECT_TRUE(compared(target, reference).policy_casts.empty());
}

TEST(Policy, SingleFormatsAreNoPolicyWithinTheReferencesEnvelope) {
  const Program target(Format::kFloat32, Format::kFloat32), reference(Format::kFloat64, Format::kFloat32);
  EXPECT_TRUE(compared(target, reference).policy_casts.empty());
}

}  // namespace
}  // namespace plumbline
