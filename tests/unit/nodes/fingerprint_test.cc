#include "server/nodes/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace plumbline {
namespace {

std::vector<std::uint8_t> noise(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> made(bytes);
  for (auto& byte : made) byte = static_cast<std::uint8_t>(random());
  return made;
}

TEST(Fingerprint, ThatOfAWholeFollowsFromThoseOfItsParts) {
  for (const std::size_t element : {1, 2, 4, 8}) {
    const Fingerprinter prints(element);
    const auto all = noise(element * 37, 1);
    for (const std::size_t cut : {0, 1, 20, 37}) {
      const std::span<const std::uint8_t> whole(all), first = whole.first(cut * element),
                                                      second = whole.subspan(cut * element);
      EXPECT_EQ(prints.joined(prints.of(first, element), prints.of(second, element),
                              static_cast<std::int64_t>(37 - cut), element),
                prints.of(whole, element));
    }
  }
}

TEST(Fingerprint, EveryBitAndTheOrderCount) {
  for (const std::size_t element : {1, 2, 4, 8}) {
    const Fingerprinter prints(7);
    const auto all = noise(element * 16, 2);
    for (std::size_t bit = 0; bit < 8 * all.size(); ++bit) {
      auto other = all;
      other[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
      EXPECT_NE(prints.of(other, element), prints.of(all, element)) << bit;
    }
    auto turned = all;
    std::rotate(turned.begin(), turned.begin() + static_cast<std::ptrdiff_t>(element), turned.end());
    EXPECT_NE(prints.of(turned, element), prints.of(all, element));
    const std::vector<std::uint8_t> nothing(element * 3), less(element * 2);
    EXPECT_NE(prints.of(nothing, element), prints.of(less, element));
  }
}

TEST(Fingerprint, OtherSeedsGiveOtherOnes) {
  const auto all = noise(64, 3);
  EXPECT_NE(Fingerprinter(1).of(all, 4), Fingerprinter(2).of(all, 4));
}

}  // namespace
}  // namespace plumbline
