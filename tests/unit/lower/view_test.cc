#include "server/lower/view.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

namespace plumbline {
namespace {

// Element addresses that a view reads, in row-major order.
std::vector<std::int64_t> addresses(const View& view) {
  std::vector<std::int64_t> result;
  std::function<void(std::size_t, std::int64_t)> walk = [&](std::size_t d, std::int64_t at) {
    if (d == view.sizes.size()) {
      result.push_back(at);
      return;
    }
    for (std::int64_t i = 0; i < view.sizes[d]; ++i) walk(d + 1, at + i * view.strides[d]);
  };
  walk(0, view.offset);
  return result;
}

// compose must read, through the written array, what `wanted` reads from storage.
void expect_composes(const View& written, const View& wanted, bool possible = true) {
  const auto composed = compose(layout_of_write(written), wanted);
  ASSERT_EQ(composed.has_value(), possible);
  if (!possible) return;
  const auto stored = addresses(written), read = addresses(wanted), through = addresses(*composed);
  std::map<std::int64_t, std::int64_t> element_at;
  for (std::size_t i = 0; i < stored.size(); ++i) element_at[stored[i]] = static_cast<std::int64_t>(i);
  ASSERT_EQ(read.size(), through.size());
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(through[i], element_at.at(read[i]));
}

TEST(View, WindowsOnARowMajorWriteComposeWithoutCopies) {
  const View written = row_major_view({4, 6});
  expect_composes(written, {{6, 4}, {1, 6}, 0});
  expect_composes(written, {{4, 3, 2}, {6, 2, 1}, 0});
  expect_composes(written, {{2, 3}, {6, 2}, 7});
  expect_composes(written, {{24}, {1}, 0});
  expect_composes(written, {{5, 4}, {0, 6}, 3});
  expect_composes(written, {{4}, {7}, 0});  // A diagonal.
}

TEST(View, WindowsOnAPermutedWriteComposeWhereTheyDoNotCarry) {
  // [batch, heads, length, width] held as [batch, length, heads, width].
  const View written{{2, 3, 4, 5}, {60, 5, 15, 1}, 0};
  expect_composes(written, written);
  expect_composes(written, {{2, 4, 3, 5}, {60, 15, 5, 1}, 0});
  expect_composes(written, {{2, 4, 5}, {60, 15, 1}, 10});
  // Rows of heads * width exist in storage, but not as one stride of the written array.
  expect_composes(written, {{8, 15}, {15, 1}, 0}, false);
}

TEST(View, WindowsOnAPartialWriteComposeInsideOfIt) {
  const View written{{2, 3}, {10, 1}, 4};
  expect_composes(written, {{2, 2}, {10, 1}, 5});
  expect_composes(written, {{2}, {10}, 6});
  expect_composes(written, {{3}, {1}, 3}, false);
  expect_composes(written, {{4}, {1}, 4}, false);
}

TEST(View, StorageOrderOfAPermutedWrite) {
  const View written{{2, 3, 4}, {12, 1, 3}, 0};
  const auto order = storage_order(written, 24);
  ASSERT_TRUE(order);
  const auto stored = addresses(written), through = addresses(*order);
  for (std::size_t i = 0; i < through.size(); ++i)
    EXPECT_EQ(stored[static_cast<std::size_t>(through[i])], static_cast<std::int64_t>(i));
  EXPECT_FALSE(storage_order({{2, 3}, {10, 1}, 0}, 13));
  EXPECT_FALSE(storage_order({{2, 3}, {3, 1}, 0}, 7));
}

TEST(View, ExtentFindsOverflowAndNegatives) {
  EXPECT_EQ(extent({{2, 3}, {10, 1}, 4}), 17);
  EXPECT_EQ(extent({{2, 0}, {10, 1}, 4}), 0);
  EXPECT_FALSE(extent({{-1}, {1}, 0}));
  EXPECT_FALSE(extent({{2}, {1}, -1}));
  EXPECT_FALSE(extent({{1LL << 40, 1LL << 40}, {1LL << 40, 1}, 0}));
}

}  // namespace
}  // namespace plumbline
