#include "server/bound/findings/choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

constexpr std::int64_t kTerms = 64;

// The largest of some sums, whose numbers lie near each other and far from zero: rounding moves them past each other.
class Largest {
 public:
  Largest(std::int64_t rows, double apart, unsigned seed) : rows_(rows), draw_(seed) {
    std::uniform_real_distribution<double> numbers(-1, 1);
    for (std::int64_t row = 0; row < rows; ++row) {
      double rest = 1000 + apart * numbers(draw_);
      for (std::int64_t term = 1; term < kTerms; ++term) {
        terms_.push_back(static_cast<float>(100 * numbers(draw_)));
        rest -= terms_.back();
      }
      terms_.push_back(static_cast<float>(rest));
    }
    Attributes along, over;
    along.dims = {1};
    over.dims = {0};
    const NodeId x = builder_.leaf({rows, kTerms}, terms_);
    table_ = builder_.op(Primitive::kSum, {x}, {rows, 1}, Format::kFloat32, along);
    chosen_ = builder_.op(Primitive::kArgmax, {table_}, {1, 1}, Format::kInt64, over);
    builder_.tap("chosen", TapKind::kValue, chosen_, {0});
  }

  // What an execution chooses that adds up in an order of its own.
  std::int64_t legal() {
    std::vector<std::size_t> order(kTerms);
    std::iota(order.begin(), order.end(), 0);
    std::vector<float> sums;
    for (std::int64_t row = 0; row < rows_; ++row) {
      std::shuffle(order.begin(), order.end(), draw_);
      float sum = 0;
      for (std::size_t term : order) sum += static_cast<float>(terms_[static_cast<std::size_t>(row * kTerms) + term]);
      sums.push_back(sum);
    }
    return std::ranges::max_element(sums) - sums.begin();
  }

  std::int64_t smallest() const {
    const Array sums = replay(builder_.graph, leaf_values(builder_.graph), Precision::kExact).value(table_);
    return std::min_element(sums.data(), sums.data() + rows_) - sums.data();
  }

  bool is_illegal(std::int64_t choice) {
    Graph& graph = builder_.graph;
    const auto told = static_cast<double>(choice);
    graph.decisions = {{chosen_, test::encoded(Format::kInt64, {told}), false, Format::kInt64}};
    graph.decisions[0].choice = GraphDecision::Choice{table_, chosen_, 1};
    const std::vector<LeafValue> leaves = leaf_values(graph);
    const Replay exact = replay(graph, leaves, Precision::kExact);
    const Overrides told_choice{{chosen_, LeafValue(Array::full({1, 1}, told))}};
    const Replay followed = replay(graph, leaves, Precision::kExact, told_choice, &exact);
    return !illegal_choices(graph, followed, ieee(), 1e-9).empty();
  }

 private:
  std::int64_t rows_;
  std::mt19937 draw_;
  std::vector<double> terms_;
  GraphBuilder builder_;
  NodeId table_ = 0, chosen_ = 0;
};

class Choices : public testing::TestWithParam<std::int64_t> {};

TEST_P(Choices, WhatALegalExecutionChoosesIsLegal) {
  int turned = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    Largest largest(GetParam(), 2e-4, seed);
    const std::int64_t own = largest.legal(), other = largest.legal();
    EXPECT_FALSE(largest.is_illegal(own)) << seed;
    EXPECT_FALSE(largest.is_illegal(other)) << seed;
    turned += own != other;
  }
  EXPECT_GT(turned, 20) << "rounding must really turn choices here";
}

TEST_P(Choices, WhatRoundingCannotReachIsNot) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    Largest largest(GetParam(), 0.1, seed);
    EXPECT_TRUE(largest.is_illegal(largest.smallest())) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Choices, testing::Values(8, 64));

}  // namespace
}  // namespace plumbline
