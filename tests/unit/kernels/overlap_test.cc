// What is added through views whose elements coincide, term by term against the definition.
#include "kernels/cpu/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "kernels/strided.h"

namespace plumbline {
namespace {

std::int64_t reach(const View& view) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < view.sizes.size(); ++d) last += (view.sizes[d] - 1) * view.strides[d];
  return last + 1;
}

// Windows that a convolution slides over each of some images, in any order of their dimensions: every element gets all
// of its terms, in their order, and nothing else is touched.
TEST(Overlap, TermsThatMeetAreAddedInTheirOrder) {
  std::mt19937_64 rng(6);
  int served = 0;
  for (int round = 0; round < 1000; ++round) {
    View to;
    for (std::uint64_t d = 1 + rng() % 4; d > 0; --d) {
      to.sizes.push_back(static_cast<std::int64_t>(1 + rng() % 7));
      to.strides.push_back(static_cast<std::int64_t>(1 + rng() % 12));
    }
    for (std::uint64_t d = 1 + rng() % 3; d > 0; --d) {
      const std::int64_t beyond = reach(to) + static_cast<std::int64_t>(rng() % 3);
      to.sizes.push_back(static_cast<std::int64_t>(1 + rng() % 20));
      to.strides.push_back(beyond);
    }
    for (std::size_t d = to.sizes.size(); d-- > 1;) {
      const std::size_t other = rng() % (d + 1);
      std::swap(to.sizes[d], to.sizes[other]);
      std::swap(to.strides[d], to.strides[other]);
    }
    if (!cpu::overlaps_in_parts(to)) continue;
    ++served;
    View from{to.sizes, row_major_strides(to.sizes), 0};
    if (rng() % 2 == 0)
      for (std::int64_t& stride : from.strides) stride *= 2;
    Array source = Array::uninitialized({reach(from)});
    for (std::int64_t i = 0; i < source.count(); ++i) source.data()[i] = std::ldexp(1.0, static_cast<int>(rng() % 60));
    std::vector<double> sums(static_cast<std::size_t>(reach(to)), 1), expected = sums;
    const auto dims = merged_dimensions<2>(to.sizes, {&to, &from});
    for_each_run<2>(dims, 0, count(to.sizes), [&](std::int64_t n, const auto& at) {
      for (std::int64_t j = 0; j < n; ++j)
        expected[static_cast<std::size_t>(at[0] + j * dims.back().strides[0])] +=
            source.data()[at[1] + j * dims.back().strides[1]];
    });
    cpu::add_overlapping(sums.data(), to, source.restride(from));
    ASSERT_EQ(sums, expected);
  }
  EXPECT_GT(served, 200);
  EXPECT_FALSE(cpu::overlaps_in_parts({{64, 3}, {1, 0}, 0}));
  EXPECT_FALSE(cpu::overlaps_in_parts({{64, 64}, {64, 1}, 0}));
}

}  // namespace
}  // namespace plumbline
