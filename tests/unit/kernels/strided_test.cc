// The index arithmetic that kernels compute addresses with, against the walk of the host's loops.
#include "kernels/strided.h"

#include <gtest/gtest.h>

#include <random>

namespace plumbline {
namespace {

TEST(Strided, AKernelsAddressesAreThoseOfTheHostsWalk) {
  std::mt19937_64 rng(3);
  for (int round = 0; round < 200; ++round) {
    Shape shape;
    for (std::uint64_t d = rng() % 6; d > 0; --d) shape.push_back(static_cast<std::int64_t>(1 + rng() % 5));
    View views[3];
    for (View& view : views) {  // Broadcast, and with strides in any order.
      view.sizes.assign(shape.begin() + static_cast<std::ptrdiff_t>(rng() % (shape.size() + 1)), shape.end());
      for (std::int64_t& size : view.sizes)
        if (rng() % 3 == 0) size = 1;
      view.strides = rng() % 2 == 0 ? row_major_strides(view.sizes) : Shape(view.sizes.size());
      if (rng() % 2 == 0)
        for (std::int64_t& stride : view.strides) stride = static_cast<std::int64_t>(rng() % 100);
    }
    const auto dims = merged_dimensions<3>(shape, {&views[0], &views[1], &views[2]});
    Walk<3> walk;
    ASSERT_TRUE(plan(dims, walk));
    EXPECT_TRUE(walk.narrow);
    Walk<3> wide = walk;
    wide.narrow = false;
    std::int64_t flat = 0;
    for_each_run<3>(dims, 0, count(shape), [&](std::int64_t n, const std::array<std::int64_t, 3>& at) {
      for (std::int64_t j = 0; j < n; ++j, ++flat) {
        for (const Walk<3>& of : {walk, wide}) {
          std::int64_t offsets[3] = {7, 7, 7};
          advance(of, flat, offsets);
          for (int i = 0; i < 3; ++i) EXPECT_EQ(offsets[i], 7 + at[i] + j * dims.back().strides[i]);
        }
      }
    });
    EXPECT_EQ(flat, count(shape));
  }
}

TEST(Strided, TooManyDimensionsAreRefused) {
  View view;
  for (int d = 0; d < 9; ++d) {
    view.sizes.push_back(2);
    view.strides.push_back(1);
  }
  Walk<1> walk;
  EXPECT_FALSE(plan(merged_dimensions<1>(view.sizes, {&view}), walk));
}

}  // namespace
}  // namespace plumbline
