// The arithmetic of sliced products, which host and device share, against exact sums: what every term loses, what an
// element loses, and that neither bound could be much lower.
#include "kernels/ball/sliced.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/kernels/exact_sum.h"

namespace plumbline {
namespace {

using sliced::Line;
using testing::ExactSum;
using Numbers = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();

Line line_of(const Numbers& x) {
  std::uint64_t largest = 0;
  double sum = 0;
  for (const double value : x) {
    largest = std::max(largest, sliced::magnitude_bits(value));
    sum += std::fabs(value);
  }
  return sliced::line_of(largest, sum, static_cast<std::int64_t>(x.size()));
}

// One element of a product, as the device works it out.
struct Element {
  Line row, column;
  bool suffices = false;
  double value = 0;    // Of the slices, in units of 2^(e + f).
  double leading = 0;  // The lower bound of (|a||b|)_ij by leading bits, in the same.
};

Element element_of(const Numbers& a, const Numbers& b) {
  Element result{line_of(a), line_of(b)};
  std::int64_t diagonals[sliced::kSlices] = {}, leading = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    const std::uint64_t x = sliced::digits_of(a[k], result.row), y = sliced::digits_of(b[k], result.column);
    for (int s = 1; s <= sliced::kSlices; ++s)
      for (int t = 1; s + t <= sliced::kSlices + 1; ++t)
        diagonals[s + t - 2] += std::int64_t{sliced::digit(x, s)} * sliced::digit(y, t);
    leading += std::int64_t{sliced::leading_of(a[k], result.row)} * sliced::leading_of(b[k], result.column);
  }
  std::int32_t held[sliced::kSlices];
  for (int d = 0; d < sliced::kSlices; ++d) {
    held[d] = static_cast<std::int32_t>(diagonals[d]);
    EXPECT_EQ(held[d], diagonals[d]) << "int32 does not hold the sum";
    EXPECT_LE(std::abs(diagonals[d]), 1 << 26);
  }
  result.value = sliced::combined(held);
  result.suffices = sliced::suffices(result.row, result.column, result.value, static_cast<std::int32_t>(leading));
  if (result.row.leading > 0 && result.column.leading > 0)
    result.leading = static_cast<double>(leading) * sliced::power_of_two(-(result.row.leading + result.column.leading));
  return result;
}

// |a||b|, of finite numbers.
long double magnitude_of(const Numbers& a, const Numbers& b) {
  ExactSum sum;
  for (std::size_t k = 0; k < a.size(); ++k) sum.add(std::fabs(a[k]), std::fabs(b[k]));
  return sum.value();
}

long double error_of(const Numbers& a, const Numbers& b, double found) {
  ExactSum sum;
  for (std::size_t k = 0; k < a.size(); ++k) sum.add(a[k], b[k]);
  sum.subtract(found);
  return std::fabs(sum.value());
}

// The element's error, of what is promised.
long double share_of_promise(const Numbers& a, const Numbers& b, double found) {
  const long double error = error_of(a, b, found);
  return error == 0 ? 0 : error / (static_cast<long double>(a.size()) * sliced::kUnitRoundoff * magnitude_of(a, b));
}

double scaled(const Element& e) { return sliced::scaled(e.row, e.column, e.value); }

class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : rng_(seed) {}
  int whole(int low, int high) { return std::uniform_int_distribution(low, high)(rng_); }
  // Random digits and signs, exponents from -span to 0, some of them zeros.
  Numbers numbers(int terms, int span, int exponent) {
    Numbers result(static_cast<std::size_t>(terms));
    const int zeros = whole(0, 3);
    for (double& x : result) {
      x = std::ldexp(std::uniform_real_distribution(0.5, 1.0)(rng_), exponent - whole(0, span));
      if (whole(0, 1) == 0) x = -x;
      if (zeros == 0 && whole(0, 2) == 0) x = 0;
    }
    return result;
  }

 private:
  std::mt19937_64 rng_;
};

TEST(Sliced, DigitsAreTheNumberRoundedToSixtyTwoBits) {
  Drawn drawn(1);
  for (int i = 0; i < 20000; ++i) {
    const Numbers x = drawn.numbers(4, drawn.whole(0, 70), drawn.whole(-390, 390));
    const Line line = line_of(x);
    for (const double value : x) {
      if (line.leading <= 0) continue;
      const std::uint64_t digits = sliced::digits_of(value, line);
      __int128 fixed = 0;
      for (int s = 1; s <= sliced::kSlices; ++s) {
        fixed = fixed * 256 + sliced::digit(digits, s);
      }
      EXPECT_LE(std::abs(sliced::digit(digits, 1)), 64);
      const double unit = sliced::power_of_two(line.exponent - 62);
      EXPECT_EQ(static_cast<double>(fixed), std::rint(value / unit));
      const double fraction = std::fabs(value) / sliced::power_of_two(line.exponent);
      EXPECT_LT(fraction, 1);
      EXPECT_TRUE(fraction < 0x1p-10 || static_cast<double>(fixed) * unit == value);
      const double leading = sliced::leading_of(value, line) * sliced::power_of_two(-line.leading);
      EXPECT_GE(leading, 0);
      EXPECT_LE(leading, fraction);
    }
  }
}

TEST(Sliced, WhatSufficesKeepsThePromise) {
  Drawn drawn(2);
  int sufficed = 0, rest = 0;
  long double worst = 0;
  for (int i = 0; i < 30000; ++i) {
    const int terms = drawn.whole(static_cast<int>(sliced::kTermsMin), static_cast<int>(sliced::kTermsMax));
    const int span = drawn.whole(0, 3) == 0 ? drawn.whole(0, 80) : drawn.whole(0, 12);
    const Numbers a = drawn.numbers(terms, span, drawn.whole(-395, 395));
    Numbers b = drawn.numbers(terms, drawn.whole(0, 1) == 0 ? 0 : span, drawn.whole(-395, 395));
    if (drawn.whole(0, 2) == 0) {  // Sums that cancel.
      for (std::size_t k = 0; k + 1 < b.size(); k += 2)
        if (b[k + 1] != 0 && std::isfinite(a[k] * b[k] / a[k + 1]) && a[k + 1] != 0) {
          const double wanted = -a[k] * b[k] / a[k + 1];
          if (std::fabs(wanted) < 0x1p400 && std::fabs(wanted) > 0x1p-400) b[k + 1] = wanted;
        }
    }
    const Element found = element_of(a, b);
    const double unit = sliced::power_of_two(found.row.exponent + found.column.exponent);
    if (found.row.leading > 0 && found.column.leading > 0) {
      EXPECT_LE(found.leading * static_cast<long double>(unit), magnitude_of(a, b) * (1 + 0x1p-58L));
      EXPECT_LE(error_of(a, b, scaled(found)),
                unit * (static_cast<long double>(terms) * sliced::kLost * (1 + sliced::kUnitRoundoff) +
                        sliced::kUnitRoundoff * magnitude_of(a, b) / unit));
    }
    (found.suffices ? sufficed : rest) += 1;
    if (!found.suffices) continue;
    const long double share = share_of_promise(a, b, scaled(found));
    worst = std::max(worst, share);
    ASSERT_LE(share, 1) << i;
  }
  EXPECT_GT(sufficed, 10000);
  EXPECT_GT(rest, 1000);
  RecordProperty("worst", std::to_string(worst));
}

// X = -128 (256^6 + ... + 1) below 2^-62: all digits but the first are as large as they can be, and all of one sign.
double widest(int first_slice) {
  double x = 0;
  for (int s = first_slice; s <= sliced::kSlices; ++s) x -= std::ldexp(128.0, 2 - 8 * s);
  return x;
}

TEST(Sliced, ATermLosesWhatTheBoundSaysAndNoMore) {
  // The last term makes both exponents 0 and loses nothing: its digits end at the first.
  const Numbers a = {widest(2), 0.5}, b = {widest(2), 0.5};
  const Element found = element_of(a, b);
  ASSERT_EQ(found.row.exponent + found.column.exponent, 0);
  // Beyond the rounding of the result, at most 2^-55 here, where 7.03 2^-62 would be lost in it: hence the integers.
  ExactSum lost;
  for (std::size_t k = 0; k < a.size(); ++k) {
    lost.add(a[k], b[k]);
    const std::uint64_t x = sliced::digits_of(a[k], found.row), y = sliced::digits_of(b[k], found.column);
    for (int s = 1; s <= sliced::kSlices; ++s)
      for (int t = 1; s + t <= sliced::kSlices + 1; ++t)
        lost.subtract(std::ldexp(static_cast<double>(sliced::digit(x, s) * sliced::digit(y, t)), 4 - 8 * (s + t)));
  }
  const long double share = std::fabs(lost.value()) / static_cast<long double>(sliced::kLost);
  EXPECT_LE(share, 1);
  EXPECT_GE(share, 0.998L);
  RecordProperty("share", std::to_string(share));
}

// Terms that lose much and count little, and one that makes (|a||b|)_ij what is asked for.
TEST(Sliced, HalfOfWhatIsEnoughWouldNotBe) {
  const auto share_where = [](double enough, bool* suffices) {
    long double worst = 0;
    *suffices = false;
    for (const int first : {32, 48, 64, 80, 88}) {
      // Their second digit is `first`, the others as before.
      const double x = widest(3) - std::ldexp(static_cast<double>(first), 2 - 16);
      Numbers a(sliced::kTermsMax, x), b(sliced::kTermsMax, x);
      a[0] = 0.5;  // With its partner 0 it makes the exponents alone.
      b[0] = 0;
      a[1] = 0;
      b[1] = 0.5;
      const long double left = enough * (1 + 0x1p-40L) - magnitude_of(a, b) + static_cast<long double>(x) * x;
      if (left <= 0) continue;
      a[2] = 0x1p-5;
      b[2] = static_cast<double>(left / a[2]);
      if (std::fabs(b[2]) >= 0.5) continue;
      const Element found = element_of(a, b);
      EXPECT_EQ(found.row.exponent + found.column.exponent, 0);
      *suffices = *suffices || found.suffices;
      worst = std::max(worst, share_of_promise(a, b, scaled(found)));
    }
    return worst;
  };
  bool suffices = false;
  const long double enough = share_where(sliced::kEnough * (1 + 0x1p-29), &suffices);
  EXPECT_TRUE(suffices);
  EXPECT_LE(enough, 1);
  EXPECT_GE(enough, 0.75L);
  const long double half = share_where(sliced::kEnough / 2, &suffices);
  EXPECT_FALSE(suffices);
  EXPECT_GT(half, 1) << "the bound could be lower";
  RecordProperty("worst", std::to_string(enough));
  RecordProperty("with_half", std::to_string(half));
}

TEST(Sliced, SumsOfLargestDigitsAreHeld) {
  for (const std::int64_t terms : {std::int64_t{32}, std::int64_t{511}, sliced::kTermsMax}) {
    Numbers a(static_cast<std::size_t>(terms), widest(2)), b = a;
    a[0] = b[0] = 0.5;
    const Element found = element_of(a, b);
    ASSERT_TRUE(found.suffices);
    EXPECT_LE(share_of_promise(a, b, scaled(found)), 1);
  }
}

TEST(Sliced, WhatIsOutOfRangeNeverSuffices) {
  const Numbers usual(64, 1.0);
  for (const double odd : {kInf, -kInf, std::nan(""), 0x1p400, 0x1.8p1000, -std::numeric_limits<double>::max()}) {
    Numbers x = usual;
    x[17] = odd;
    EXPECT_FALSE(element_of(x, usual).suffices) << odd;
    EXPECT_FALSE(element_of(usual, x).suffices) << odd;
    EXPECT_FALSE(element_of(x, Numbers(64, 0.0)).suffices) << odd;  // 0 times infinity is no number.
  }
  for (const double tiny : {0x1p-402, 0x1p-1022, 0x1p-1050, 0x1p-1074, -0x1p-1074})
    EXPECT_FALSE(element_of(Numbers(64, tiny), usual).suffices) << tiny;
  // Among usual numbers the same are lost in them.
  Numbers x = usual;
  x[17] = 0x1p-1074;
  EXPECT_TRUE(element_of(x, usual).suffices);
  EXPECT_EQ(scaled(element_of(x, usual)), 63);
}

TEST(Sliced, LinesOfZerosAreExact) {
  const Numbers zeros(64, -0.0), usual(64, 0x1p-300);
  EXPECT_TRUE(element_of(zeros, usual).suffices);
  EXPECT_EQ(scaled(element_of(zeros, usual)), 0);
  EXPECT_FALSE(std::signbit(scaled(element_of(usual, zeros))));
}

TEST(Sliced, TheEndsOfTheRangeAreHeld) {
  for (const double x : {0x1p399, 0x1.fffffffffffffp399, 0x1p-401, 0x1.fffffffffffffp-401})
    for (const double y : {0x1p399, 0x1.fffffffffffffp399, 0x1p-401, 0x1.fffffffffffffp-401}) {
      const Numbers a(sliced::kTermsMax, x), b(sliced::kTermsMax, y);
      const Element found = element_of(a, b);
      ASSERT_TRUE(found.suffices) << x << ' ' << y;
      EXPECT_LE(share_of_promise(a, b, scaled(found)), 1);
    }
}

// Nothing in common, or too far apart: the lower bounds say no.
TEST(Sliced, RowsThatHardlyMeetDoNotSuffice) {
  Numbers a(512, 0.0), b(512, 0.0);
  for (std::size_t k = 0; k < 256; ++k) a[k] = b[k + 256] = 1;
  EXPECT_FALSE(element_of(a, b).suffices);
  for (std::size_t k = 0; k < 256; ++k) b[k] = a[k + 256] = 0x1p-40;
  EXPECT_FALSE(element_of(a, b).suffices);
}

}  // namespace
}  // namespace plumbline
