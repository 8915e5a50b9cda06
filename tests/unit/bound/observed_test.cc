#include "server/bound/enclose/observed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/ball/round.h"
#include "server/bound/compute.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

// A bf16 product of 2^30 terms that accumulates in fp32, and what was observed of it.
class LargeProduct : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSide = 1024;
  static constexpr std::size_t kElements = kSide * kSide;

  LargeProduct() {
    std::mt19937 random(3);
    std::normal_distribution<double> normal(0, 1);
    const RoundTo hold(Format::kBFloat16);
    std::vector<Array> operands;
    for (int i = 0; i < 2; ++i) {
      std::vector<double> values(kElements);
      for (double& value : values) value = hold(normal(random));
      Array& operand = operands.emplace_back(Array::uninitialized({kSide, kSide}));
      std::copy(values.begin(), values.end(), operand.data());
      builder_.leaf({kSide, kSide}, values, Format::kBFloat16);
    }
    product_ = builder_.op(Primitive::kMatmul, {0, 1}, {kSide, kSide}, Format::kBFloat16);
    builder_.graph.nodes[product_].compute = Format::kFloat32;
    const Array exact = traits(Primitive::kMatmul).evaluate({}, {kSide, kSide}, operands);
    observed_.resize(kElements);
    for (std::size_t i = 0; i < kElements; ++i) observed_[i] = hold(exact.data()[i]);
  }

  Bounds bounds(ObservedProducts products = ObservedProducts::kRowsFirst) {
    builder_.graph.observed[product_] = {Format::kBFloat16, test::encoded(Format::kBFloat16, observed_)};
    const Profile profile;
    BoundsInput input;
    input.target = &builder_.graph;
    input.profile = &profile;
    input.products = products;
    return compute_bounds(input);
  }

  GraphBuilder builder_;
  NodeId product_ = 0;
  std::vector<double> observed_;
};

TEST_F(LargeProduct, IsAskedByRows) {
  const Bounds found = bounds();
  EXPECT_EQ(found.products_by_rows, 1U);
  EXPECT_TRUE(found.illegal_values.empty());
}

TEST_F(LargeProduct, TellsTheElementOfARowThatStandsOut) {
  constexpr std::size_t kWrong = 700 * kSide + 33;
  observed_[kWrong] += 64;  // Twice the values' own size.
  const Bounds found = bounds();
  EXPECT_EQ(found.products_by_rows, 0U);
  ASSERT_EQ(found.illegal_values.size(), 1U);
  EXPECT_EQ(found.illegal_values[0].node, product_);
  EXPECT_EQ(found.illegal_values[0].element, kWrong);
  EXPECT_EQ(found.illegal_values[0].elements, 1U);
}

// One element in a hundred, too little for a row to stand out.
TEST_F(LargeProduct, TellsWhatIsRareInEveryRow) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kElements; i += 101, ++wrong) observed_[i] *= 1 + 0x1p-5;
  const Bounds found = bounds();
  ASSERT_EQ(found.illegal_values.size(), 1U);
  EXPECT_GT(found.illegal_values[0].elements, wrong / 2);
}

// A single element off by less than its row's roundings together is found where every element is looked at.
TEST_F(LargeProduct, ShowsEveryElementWhereAsked) {
  constexpr std::size_t kWrong = 5 * kSide + 7;
  observed_[kWrong] *= 1 + 0x1p-5;
  EXPECT_EQ(bounds().products_by_rows, 1U);
  const Bounds found = bounds(ObservedProducts::kEveryElement);
  EXPECT_EQ(found.products_by_rows, 0U);
  ASSERT_EQ(found.illegal_values.size(), 1U);
  EXPECT_EQ(found.illegal_values[0].element, kWrong);
}

// y = x w with every result captured, its sum as the loss, the gradient of the one-element w, and w - g / 8.
struct Captured {
  Captured() {
    std::mt19937 random(4);
    const std::vector<double> xs = test::normal(random, 64);
    const NodeId x = b.leaf({64}, xs), w = b.leaf({1}, {0.5}, Format::kFloat32, "w", LeafRole::kParameter);
    std::vector<double> ys;
    float loss = 0, gradient = 0;
    for (const double one : xs) {
      ys.push_back(static_cast<float>(one) * 0.5F);
      loss += static_cast<float>(ys.back());
      gradient += static_cast<float>(one);
    }
    const NodeId y = b.op(Primitive::kMul, {x, w}, {64}), g = b.sum_all(x);
    b.graph.observed[y] = {Format::kFloat32, test::encoded(Format::kFloat32, ys)};
    b.graph.observed[g] = {Format::kFloat32, test::encoded(Format::kFloat32, {gradient})};
    b.tap("loss", TapKind::kLoss, b.sum_all(y), {loss});
    b.tap("grad:w", TapKind::kGradient, g, {gradient});
    const NodeId step = b.op(Primitive::kMul, {g, b.leaf({}, {0.125})}, {1});
    b.tap("weight:w", TapKind::kUpdate, b.op(Primitive::kSub, {w, step}, {1}), {0.5F - gradient * 0.125F});
  }
  Bounds bounds() const {
    const Profile profile;
    return compute_bounds({.target = &b.graph, .profile = &profile, .seed = 9});
  }
  GraphBuilder b;
};

// The loss is asked from the leaves on; what was judged between observed values is not replayed for that.
TEST(Captured, IsJudgedBetweenObservedValuesFirst) {
  Captured step;
  const Bounds legal = step.bounds();
  EXPECT_TRUE(legal.illegal_values.empty());
  std::set<std::string> proven;
  for (const Finding& finding : legal.findings) {
    if (!finding.proven) continue;
    EXPECT_TRUE(finding.execution.passed()) << finding.name;
    proven.insert(finding.name);
  }
  EXPECT_EQ(proven, (std::set<std::string>{"loss", "grad:w", "weight:w"}));
  step.b.graph.taps[2].terms[0].observed = test::encoded(Format::kFloat32, {0.75});
  std::set<std::string> failed;
  for (const Finding& finding : step.bounds().findings)
    if (finding.execution.failed()) failed.insert(finding.name);
  EXPECT_EQ(failed, std::set<std::string>{"weight:w"});
}

TEST(Captured, IsReplayedWholeWhereATapIsNotFinite) {
  Captured step;
  step.b.graph.taps[0].terms[0].observed = test::encoded(Format::kFloat32, {HUGE_VAL});
  const Bounds found = step.bounds();
  ASSERT_EQ(found.range.size(), 1U);
  EXPECT_EQ(found.range[0].tap, "loss");
}

}  // namespace
}  // namespace plumbline
