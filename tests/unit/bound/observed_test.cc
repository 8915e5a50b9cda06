#include "server/bound/enclose/observed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
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

}  // namespace
}  // namespace plumbline
