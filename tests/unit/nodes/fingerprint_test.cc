#include "server/nodes/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
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

// By the definition, term by term.
TEST(Fingerprint, IsThePolynomial) {
  __extension__ using Wide = unsigned __int128;
  constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
  for (const std::size_t count : {1, 3, 4, 5, 23}) {
    const Fingerprinter prints(11);
    const auto all = noise(4 * count, 5);
    // g is what two elements, 0 and 0, tell: (0 + 1) g + (0 + 1).
    const std::vector<std::uint8_t> two(8);
    const std::uint64_t g = prints.of(two, 4).first - 1;
    Wide sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t word = 0;
      std::memcpy(&word, all.data() + 4 * i, 4);
      sum = (sum * g + word + 1) % kPrime;
    }
    EXPECT_EQ(prints.of(all, 4).first, static_cast<std::uint64_t>(sum));
  }
}

TEST(Fingerprint, OtherSeedsGiveOtherOnes) {
  const auto all = noise(64, 3);
  EXPECT_NE(Fingerprinter(1).of(all, 4), Fingerprinter(2).of(all, 4));
}

}  // namespace
}  // namespace plumbline
