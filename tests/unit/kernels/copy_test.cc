// Strided copies, element by element against the definition.
#include "kernels/cpu/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/strided.h"

namespace plumbline {
namespace {

// Row-major strides of the dimensions taken in a random order, with gaps now and then: no two elements coincide.
Shape apart(const Shape& sizes, std::mt19937_64* rng) {
  std::vector<std::size_t> order(sizes.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  std::ranges::shuffle(order, *rng);
  Shape strides(sizes.size());
  std::int64_t step = 1 + static_cast<std::int64_t>((*rng)() % 4 == 0);
  for (const std::size_t d : order) {
    strides[d] = step;
    step *= sizes[d] + static_cast<std::int64_t>((*rng)() % 4 == 0);
  }
  return strides;
}

std::int64_t reach(const View& view) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < view.sizes.size(); ++d) last += (view.sizes[d] - 1) * view.strides[d];
  return last + 1;
}

// Whether what is copied, or added, lies where it belongs, and nothing else was touched.
void expect_copied(const View& to, const View& from) {
  Array source = Array::uninitialized({reach(from)});
  for (std::int64_t i = 0; i < source.count(); ++i) source.data()[i] = static_cast<double>(i);
  std::vector<double> target(static_cast<std::size_t>(reach(to)), -1), expected = target;
  if (count(to.sizes) > 0)
    for_each_run<2>(merged_dimensions<2>(to.sizes, {&to, &from}), 0, count(to.sizes),
                    [&, dims = merged_dimensions<2>(to.sizes, {&to, &from})](std::int64_t n, const auto& at) {
                      for (std::int64_t j = 0; j < n; ++j)
                        expected[static_cast<std::size_t>(at[0] + j * dims.back().strides[0])] =
                            source.data()[at[1] + j * dims.back().strides[1]];
                    });
  std::vector<double> sums = target, expected_sums = expected;
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (expected[i] >= 0) expected_sums[i] += sums[i];
  cpu::copy(target.data(), to, source.restride(from));
  EXPECT_EQ(target, expected);
  cpu::add(sums.data(), to, source.restride(from));
  EXPECT_EQ(sums, expected_sums);
}

TEST(Copy, EveryElementOfAnyLayoutIsWhereItBelongs) {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 3000; ++round) {
    Shape sizes;
    for (std::uint64_t d = rng() % 6; d > 0; --d) sizes.push_back(static_cast<std::int64_t>(1 + rng() % 9));
    const View to{sizes, apart(sizes, &rng), 0};
    View from{sizes, apart(sizes, &rng), 0};
    // Broadcast and overlapping sources: windows that a convolution slides.
    for (std::int64_t& stride : from.strides)
      if (rng() % 4 == 0) stride = static_cast<std::int64_t>(rng() % 3);
    expect_copied(to, from);
  }
}

TEST(Copy, LargeOnesAreCutIntoBlocks) {
  const std::int64_t n = 1 << 17;
  expect_copied({{n}, {1}, 0}, {{n}, {1}, 0});
  expect_copied({{n}, {1}, 0}, {{n}, {0}, 0});
  expect_copied({{n}, {3}, 0}, {{n}, {2}, 0});
  expect_copied({{301, 517}, {517, 1}, 0}, {{301, 517}, {1, 301}, 0});
  expect_copied({{301, 517}, {1, 301}, 0}, {{301, 517}, {517, 1}, 0});
  expect_copied({{40, 9, 3, 30, 30}, {24300, 2700, 900, 30, 1}, 0}, {{40, 9, 3, 30, 30}, {1024, 1, 32, 33, 1}, 0});
  expect_copied({{5, 0, 7}, {7, 7, 1}, 0}, {{5, 0, 7}, {1, 1, 1}, 0});
}

}  // namespace
}  // namespace plumbline
