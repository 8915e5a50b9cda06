#include "server/bound/replay/terms.h"

#include <gtest/gtest.h>

#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

// x w, where x = a - b.
struct Product {
  Product(std::vector<double> a, std::vector<double> b) {
    const NodeId x = builder.op(Primitive::kSub, {builder.leaf({1, 2}, a), builder.leaf({1, 2}, b)}, {1, 2});
    const NodeId w = builder.leaf({2, 2}, {3, 0, 0, -4});
    const NodeId y = builder.op(Primitive::kMatmul, {x, w}, {1, 2});
    const NodeId shown =
        builder.op(Primitive::kSelect, {builder.leaf({1, 2}, {1, 0}), y, builder.leaf({1, 2}, {0, 0})}, {1, 2});
    builder.tap("product", TapKind::kGradient, y, {0, 0});
    builder.tap("first of it", TapKind::kGradient, shown, {0, 0});
  }

  double measured(std::size_t tap, double norm) const {
    const Replay exact = replay(builder.graph, leaf_values(builder.graph), Precision::kExact);
    return tap_magnitudes(builder.graph, exact, {{tap, norm}}).at(tap);
  }

  GraphBuilder builder;
};

TEST(Terms, AProductWithWhatIsZeroIsMeasuredByItsTerms) {
  const Product zero({1, 2}, {1, 2});
  EXPECT_DOUBLE_EQ(zero.measured(0, 0), std::hypot(2 * 3, 4 * 4));
  EXPECT_DOUBLE_EQ(zero.measured(1, 0), 2 * 3) << "what a condition leaves out counts nothing";
}

TEST(Terms, AnyOtherProductIsATermItself) {
  const Product not_zero({1, 2}, {0.5, 2});
  EXPECT_DOUBLE_EQ(not_zero.measured(0, 1.5), 1.5);
}

TEST(Terms, TheUsersScaleIsTheScale) {
  Product zero({1, 2}, {1, 2});
  zero.builder.graph.taps[0].scale = 7;
  EXPECT_EQ(zero.measured(0, 0), 7);
}

TEST(Terms, WithoutProductsTheScanEndsAtThem) {
  const Product zero({1, 2}, {1, 2});
  const Replay exact = replay(zero.builder.graph, leaf_values(zero.builder.graph), Precision::kExact);
  EXPECT_EQ(tap_magnitude(zero.builder.graph, exact, zero.builder.graph.taps[0], 0), 0);
}

}  // namespace
}  // namespace plumbline
