// Rounding against exhaustive round trips and an integer oracle that shares no code with it.
#include "kernels/ball/format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace plumbline {
namespace {

constexpr Format kAll[] = {Format::kFloat64, Format::kFloat32, Format::kFloat16,    Format::kBFloat16,
                           Format::kInt64,   Format::kInt32,   Format::kInt16,      Format::kInt8,
                           Format::kUInt8,   Format::kBool,    Format::kFloat8E4M3, Format::kFloat8E5M2,
                           Format::kTf32};
constexpr double kInf = std::numeric_limits<double>::infinity();

// Rounds by long division of integers: x = m 2^e, quantum 2^q.
double oracle(Format format, double x) {
  const FormatTraits& t = traits(format);
  if (x == 0 || !std::isfinite(x)) return x;
  int e = 0;
  const double fraction = std::frexp(std::fabs(x), &e);
  const auto m = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
  e -= 53;
  const int quantum = std::max(e + 53 - t.precision, t.exponent_min - t.precision + 1);
  const int shift = quantum - e;
  std::uint64_t whole = m;
  if (shift > 0) {
    whole = shift > 63 ? 0 : m >> shift;
    const std::uint64_t rest = shift > 63 ? m : m - (whole << shift);
    const bool above = shift <= 63 && rest > std::uint64_t{1} << (shift - 1);
    const bool tie = shift <= 63 && rest == std::uint64_t{1} << (shift - 1);
    if (above || (tie && whole % 2 == 1)) ++whole;
  }
  const double y = std::ldexp(static_cast<double>(whole), shift > 0 ? quantum : e);
  const double beyond = t.infinities ? kInf : largest_finite(format);
  return std::copysign(y > largest_finite(format) ? beyond : y, x);
}

TEST(Format, TraitsAgreeWithTheStandard) {
  EXPECT_EQ(unit_roundoff(Format::kFloat32), std::numeric_limits<float>::epsilon() / 2);
  EXPECT_EQ(largest_finite(Format::kFloat32), std::numeric_limits<float>::max());
  EXPECT_EQ(smallest_normal(Format::kFloat32), std::numeric_limits<float>::min());
  EXPECT_EQ(2 * half_smallest_subnormal(Format::kFloat32), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(unit_roundoff(Format::kFloat64), std::numeric_limits<double>::epsilon() / 2);
  EXPECT_EQ(largest_finite(Format::kFloat64), std::numeric_limits<double>::max());
  EXPECT_EQ(largest_finite(Format::kFloat16), 65504.0);
  EXPECT_EQ(half_smallest_subnormal(Format::kFloat16), 0x1p-25);
  EXPECT_EQ(unit_roundoff(Format::kBFloat16), 0x1p-8);
  EXPECT_TRUE(std::isinf(largest_finite(Format::kInt32)));
  EXPECT_EQ(unit_roundoff(Format::kBool), 0);
  for (const Format format : kAll) {
    EXPECT_EQ(traits(format).format, format);
    EXPECT_EQ(format_by_name(traits(format).name), format);
  }
  EXPECT_EQ(format_by_name("fp8"), std::nullopt);
  EXPECT_EQ(traits(static_cast<Format>(99)).bytes, 0);
}

TEST(Format, EverySixteenBitPatternRoundTrips) {
  for (const Format format : {Format::kFloat16, Format::kBFloat16}) {
    std::vector<std::uint16_t> patterns(65536), back(65536);
    for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
    std::vector<double> values(65536);
    decode(format, patterns.data(), 65536, values.data());
    encode(format, values.data(), 65536, back.data());
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (std::isnan(values[i])) {
        double again = 0;
        decode(format, &back[i], 1, &again);
        ASSERT_TRUE(std::isnan(again)) << i;
      } else {
        ASSERT_EQ(back[i], patterns[i]);
        ASSERT_EQ(round_to(format, values[i]), values[i]);
      }
    }
  }
}

TEST(Format, RoundsEveryNeighbourhoodOfSixteenBitNumbers) {
  for (const Format format : {Format::kFloat16, Format::kBFloat16}) {
    std::vector<std::uint16_t> patterns(32768);
    for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
    std::vector<double> values(patterns.size());
    decode(format, patterns.data(), static_cast<std::int64_t>(values.size()), values.data());
    for (std::size_t i = 0; i + 1 < values.size() && std::isfinite(values[i]); ++i) {
      const double next = std::isfinite(values[i + 1]) ? values[i + 1] : values[i] + (values[i] - values[i - 1]);
      const double middle = values[i] / 2 + next / 2;
      for (const double x : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, kInf)}) {
        ASSERT_EQ(round_to(format, x), oracle(format, x)) << x;
        ASSERT_EQ(round_to(format, -x), oracle(format, -x)) << -x;
      }
    }
  }
}

TEST(Format, RoundsRandomDoublesAsTheOracle) {
  std::mt19937_64 rng(5);
  for (int i = 0; i < 400000; ++i) {
    double x = std::bit_cast<double>(rng());
    if (i % 2 == 0)
      x = std::ldexp(std::bit_cast<double>((rng() >> 12) | 0x3ff0000000000000), static_cast<int>(rng() % 320) - 160);
    for (const Format format :
         {Format::kFloat32, Format::kFloat16, Format::kBFloat16, Format::kFloat8E4M3, Format::kFloat8E5M2}) {
      const double y = round_to(format, x);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(y));
      } else {
        ASSERT_EQ(y, oracle(format, x)) << traits(format).name << " " << x;
        ASSERT_EQ(std::signbit(y), std::signbit(x));
      }
      // One rounding: a detour over fp32 would round twice.
      std::uint32_t bytes = 0;
      double stored = 0;
      encode(format, &x, 1, &bytes);
      decode(format, &bytes, 1, &stored);
      ASSERT_TRUE(stored == y || (std::isnan(stored) && std::isnan(y)));
    }
  }
  const double twice = 1 + 0x1p-8 + 0x1p-30;  // In fp32 a tie that would go down.
  EXPECT_EQ(round_to(Format::kBFloat16, twice), 1 + 0x1p-7);
}

// Neighbours by the exhaustive list of numbers.
TEST(Format, StochasticAndTowardZeroGoToTheNeighbours) {
  std::mt19937_64 rng(9);
  for (const Format format : {Format::kFloat16, Format::kBFloat16, Format::kFloat8E4M3, Format::kFloat8E5M2}) {
    const std::size_t count = std::size_t{1} << (8 * traits(format).bytes - 1);
    std::vector<std::uint16_t> wide(count);
    std::vector<std::uint8_t> narrow(count);
    for (std::size_t i = 0; i < count; ++i) {
      wide[i] = static_cast<std::uint16_t>(i);
      narrow[i] = static_cast<std::uint8_t>(i);
    }
    std::vector<double> numbers(count);
    decode(format, traits(format).bytes == 1 ? static_cast<const void*>(narrow.data()) : wide.data(),
           static_cast<std::int64_t>(count), numbers.data());
    for (std::size_t i = 0; i + 1 < count && std::isfinite(numbers[i + 1]); ++i) {
      const double low = numbers[i], high = numbers[i + 1], fraction = std::uniform_real_distribution<>(0, 1)(rng);
      const double x = low + fraction * (high - low), rest = (x - low) / (high - low);
      ASSERT_EQ(round_to(format, x, Rounding::kTowardZero), low == x ? x : low);
      ASSERT_EQ(round_to(format, -x, Rounding::kTowardZero), -low);
      ASSERT_EQ(round_to(format, x, Rounding::kStochastic, rest), low) << "draw as large as the fraction";
      if (rest > 0) {
        ASSERT_EQ(round_to(format, -x, Rounding::kStochastic, std::nextafter(rest, 0.0)), -high);
      }
      ASSERT_EQ(round_to(format, low, Rounding::kStochastic, 0), low) << "numbers of the format stay";
    }
    const double beyond = largest_finite(format) * 1.5;
    EXPECT_EQ(round_to(format, -beyond, Rounding::kTowardZero), -largest_finite(format));
    EXPECT_EQ(round_to(format, beyond, Rounding::kStochastic, 0),
              traits(format).infinities ? kInf : largest_finite(format));
    EXPECT_EQ(flush(format, -0.99 * smallest_normal(format)), 0);
    EXPECT_TRUE(std::signbit(flush(format, -0.99 * smallest_normal(format))));
    EXPECT_EQ(flush(format, smallest_normal(format)), smallest_normal(format));
  }
}

TEST(Format, EightBitFormatsOverflowAsTorchCasts) {
  EXPECT_EQ(largest_finite(Format::kFloat8E4M3), 448);
  EXPECT_EQ(round_to(Format::kFloat8E4M3, 464), 448) << "a tie";
  EXPECT_EQ(round_to(Format::kFloat8E4M3, -470), -448);
  EXPECT_EQ(round_to(Format::kFloat8E4M3, kInf), 448);
  EXPECT_TRUE(std::isnan(round_to(Format::kFloat8E4M3, std::nan(""))));
  EXPECT_EQ(largest_finite(Format::kFloat8E5M2), 57344);
  EXPECT_EQ(round_to(Format::kFloat8E5M2, 61440), kInf);
  EXPECT_EQ(unit_roundoff(Format::kFloat8E4M3), 0x1p-4);
  EXPECT_EQ(unit_roundoff(Format::kFloat8E5M2), 0x1p-3);
  EXPECT_EQ(unit_roundoff(Format::kTf32), 0x1p-11);
}

TEST(Format, KeepsSignsInfinitiesAndNaN) {
  for (const Format format : {Format::kFloat64, Format::kFloat32, Format::kFloat16, Format::kBFloat16}) {
    EXPECT_TRUE(std::signbit(round_to(format, -0.0)));
    EXPECT_EQ(round_to(format, kInf), kInf);
    EXPECT_EQ(round_to(format, -kInf), -kInf);
    EXPECT_TRUE(std::isnan(round_to(format, std::nan(""))));
  }
  EXPECT_EQ(round_to(Format::kFloat16, 65519.999), 65504);
  EXPECT_EQ(round_to(Format::kFloat16, 65520), kInf);
  EXPECT_TRUE(std::signbit(round_to(Format::kFloat16, -1e-30)));
  EXPECT_EQ(round_to(Format::kInt32, 1.5), 1.5);
}

TEST(Format, IntegersTruncateSaturateAndDecodeExactly) {
  const std::vector<double> in = {1.9, -1.9, 300, -300, std::nan(""), kInf, -kInf};
  std::vector<std::int8_t> bytes(in.size());
  encode(Format::kInt8, in.data(), static_cast<std::int64_t>(in.size()), bytes.data());
  EXPECT_EQ(bytes, (std::vector<std::int8_t>{1, -1, 127, -128, 0, 127, -128}));
  const std::int64_t big = (std::int64_t{1} << 53) - 1;
  double value = 0;
  decode(Format::kInt64, &big, 1, &value);
  EXPECT_EQ(value, static_cast<double>(big));
  const std::uint8_t truth[] = {0, 1, 7};
  double values[3];
  decode(Format::kBool, truth, 3, values);
  EXPECT_EQ(values[0] + values[1] + values[2], 2);
  const std::uint8_t unsigned_byte = 200;
  decode(Format::kUInt8, &unsigned_byte, 1, &value);
  EXPECT_EQ(value, 200);
}

TEST(Format, FiniteNumbersAreToldFromOthers) {
  for (const Format format : {Format::kFloat64, Format::kFloat32, Format::kFloat16, Format::kBFloat16,
                              Format::kFloat8E4M3, Format::kFloat8E5M2, Format::kInt32, Format::kBool}) {
    std::vector<double> values(200'001, 1);
    values[70'000] = -largest_finite(Format::kFloat8E4M3);
    std::vector<unsigned char> bytes(values.size() * static_cast<std::size_t>(traits(format).bytes));
    const auto stored = [&] {
      encode(format, values.data(), std::ssize(values), bytes.data());
      return finite(format, bytes.data(), std::ssize(values));
    };
    EXPECT_TRUE(stored());
    if (!is_float(format)) continue;
    for (const std::size_t place : {std::size_t{0}, std::size_t{131'071}, values.size() - 1})
      for (const double other : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
        if (std::isinf(other) && !traits(format).infinities) continue;
        const double kept = std::exchange(values[place], other);
        EXPECT_FALSE(stored());
        values[place] = kept;
      }
  }
  EXPECT_FALSE(finite(Format::kUnknown, nullptr, 0));
}

TEST(Format, UnalignedBytesDecode) {
  std::vector<unsigned char> raw(1 + 4 * 5);
  const std::vector<double> in = {1, -2.5, 3e38, 1e-45, 0};
  encode(Format::kFloat32, in.data(), 5, raw.data() + 1);
  std::vector<double> out(5);
  decode(Format::kFloat32, raw.data() + 1, 5, out.data());
  for (std::size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i], static_cast<float>(in[i]));
}

}  // namespace
}  // namespace plumbline
