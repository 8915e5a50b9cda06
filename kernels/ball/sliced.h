// Products of fp64 matrices from products of 8-bit integers, which are exact: the arithmetic of the scheme of Ozaki
// with integer slices (Ootomo, Ozaki and Yokota 2024, "DGEMM on integer matrix multiplication unit"; Uchino, Ozaki and
// Imamura 2024), with cuts and a bound of our own. The kernels are in cuda/sliced_product.cu; the host's tests hold the
// same functions against exact sums.
//
// The promise is that of the native product (cuda/product.cuh). A sum of L products, at most kTermsMax of them, is off
// by at most L u (|a||b|)_ij, u = 2^-53.
//
// The cuts. A row of a, over the L terms, has an exponent e with |a_ik| < 2^e; a column of b has an exponent f. With
// x = a_ik 2^-e, X is x 2^62 rounded to the nearest integer, and X is written in balanced digits of base 256,
//
//     X = d_1 256^7 + d_2 256^6 + ... + d_8,    -128 <= d_s <= 127,
//
// each a slice. |X| <= 2^62 makes |d_1| <= 64. y = b_kj 2^-f becomes Y with the digits c_t likewise.
//
// What is kept. Diagonal w = 2, ..., 9 is G_w = sum over k and over s + t = w of d_s c_t, an integer of at most
// 8 * 512 * 2^14 = 2^26, which a product with sums in int32 gives exactly. The result is
//
//     V = sum over w of G_w 256^(9 - w),    (ab)_ij ~ V 2^(e + f - 68),
//
// since X Y 2^-124 has the weight 2^(128 - 8 w - 124) = 2^(4 - 8 w) at diagonal w.
//
// What is lost in a term, in units of 2^(e + f):
//  - The dropped diagonals w = 10, ..., 16 have 17 - w pairs of at most 2^14 each, together at most
//    D = sum of (17 - w) 2^(18 - 8 w) = 2^-62 (7 + 6 / 256 + 5 / 256^2 + ...) < 7.03 * 2^-62 (kLost).
//  - Rounding to X adds nothing to that. Where |x| >= 2^-10, the 53 bits of x end at 2^-62 or above and X is exact.
//    Where it is not, |X| <= 2^52, so that d_1 = 0 and |d_2| <= 16. The dropped pair (2, 8), which D counts with 2^-62,
//    is then at most 2^-65, while |x - X 2^-62| |y| <= 2^-63, and 2^-63 2^-10 more where y is rounded as well: less
//    than the 7 / 8 2^-62 that the pair falls short of.
//
// Rounding happens once. Four diagonals make an integer of at most 2^26 * 2^24 * 256 / 255 < 2^51, which a double
// holds; the two integers are put together by one FMA; the scaling is by a power of two, and where |e|, |f| <=
// kExponentMax the result neither overflows nor is subnormal, V being an integer. So with P = (|a||b|)_ij 2^-(e + f)
//
//     |V 2^-68 - (ab)_ij 2^-(e + f)| <= L D + u (P + L D),
//
// and that is at most L u P where P >= L / (L - 1) (1 + u) D / u. For L >= kTermsMin the right side is below
// 32 / 31 * 7.04 * 2^-9 < 2^-6 = kEnough.
//
// Whether P is that large is told by two lower bounds. One is |V| itself. The other is one more product of integers:
// of min(127, floor(|x| 2^g)), where 2^g is chosen for each row so that its mean is near 24. What is cut off and what
// is rounded is rounded down, so that the sum over k, times 2^-(g + h), is at most P whatever g and h are.
// Where neither suffices (few terms overlap, magnitudes of a row differ widely), and where e or f is out of range or a
// number is not finite, the element is summed by FMAs in order instead. A row or column of zeros alone gives V = 0,
// which is exact.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/ball/scalar.h"

namespace plumbline::sliced {

constexpr int kSlices = 8;
constexpr std::int64_t kTermsMin = 32, kTermsMax = 512;
constexpr int kExponentMax = 400;
constexpr double kLost = 7.03 * 0x1p-62;
constexpr double kEnough = 0x1p-6;

constexpr double kUnitRoundoff = 0x1p-53;
static_assert(kTermsMin * (1 + 0x1p-50) * kLost <= (kTermsMin - 1) * kUnitRoundoff * kEnough);
static_assert(kSlices * kTermsMax * 128 * 128 <= std::int64_t{1} << 26);

// 2^exponent, for exponents of normal numbers.
PLUMBLINE_HOST_DEVICE inline double power_of_two(int exponent) {
  const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double power;
  __builtin_memcpy(&power, &bits, sizeof power);
  return power;
}

// |x| as an integer that orders magnitudes: infinities above all numbers, NaN above infinities.
PLUMBLINE_HOST_DEVICE inline std::uint64_t magnitude_bits(double x) {
  const double magnitude = std::fabs(x);
  std::uint64_t bits;
  __builtin_memcpy(&bits, &magnitude, sizeof bits);
  return bits;
}

// What is known of a row of a, or of a column of b, over the terms of one piece.
struct Line {
  static constexpr int kZeros = 0, kBeyond = -1;  // In place of `leading`.
  int exponent = 0;
  int leading = kZeros;  // g above, of the bits that are kept of magnitudes.
};

// From the largest of the line's magnitudes (as magnitude_bits), and from their sum, whose roundings do not matter.
PLUMBLINE_HOST_DEVICE inline Line line_of(std::uint64_t largest, double sum, std::int64_t terms) {
  if (largest == 0) return {};
  const int exponent = static_cast<int>(largest >> 52) - 1022;
  if (exponent < -kExponentMax || exponent > kExponentMax) return {0, Line::kBeyond};
  // The mean is at most 1 and at least 1 / (2 terms) in units of 2^exponent, but for roundings.
  const double mean = sum / static_cast<double>(terms) * power_of_two(-exponent);
  const int below = 1023 - static_cast<int>(magnitude_bits(mean) >> 52);  // 2^-below <= mean < 2^(1 - below)
  return {exponent, below < 3 ? 7 : below + 4};
}

// The digits of X as the bytes of one word, d_1 uppermost, each in two's complement. A line of zeros has digits of 0,
// and so has one that is out of range, whose elements are summed otherwise.
PLUMBLINE_HOST_DEVICE inline std::uint64_t digits_of(double a, const Line& line) {
  if (line.leading <= 0) return 0;
  // By one bias the borrows of all digits are worked out at once: X + bias has the bytes d_s + 128 below the uppermost.
  constexpr std::uint64_t kBias = 0x0080'8080'8080'8080;
  const auto fixed = static_cast<std::int64_t>(std::rint(a * power_of_two(62 - line.exponent)));
  return (static_cast<std::uint64_t>(fixed) + kBias) ^ kBias;
}
PLUMBLINE_HOST_DEVICE inline std::int8_t digit(std::uint64_t digits, int slice) {  // d_slice, counted from 1.
  return static_cast<std::int8_t>(digits >> (8 * (kSlices - slice)) & 0xff);
}

// The magnitude's leading bits, rounded down.
PLUMBLINE_HOST_DEVICE inline std::int8_t leading_of(double a, const Line& line) {
  if (line.leading <= 0) return 0;
  const double bits = std::fabs(a) * power_of_two(line.leading - line.exponent);
  return static_cast<std::int8_t>(bits < 127 ? bits : 127.0);
}

// V 2^-68, from G_2, ..., G_9.
PLUMBLINE_HOST_DEVICE inline double combined(const std::int32_t (&diagonals)[kSlices]) {
  std::int64_t upper = 0, lower = 0;
  for (int i = 0; i < kSlices / 2; ++i) {
    upper = upper * 256 + diagonals[i];
    lower = lower * 256 + diagonals[kSlices / 2 + i];
  }
  return std::fma(static_cast<double>(upper), 0x1p32, static_cast<double>(lower)) * 0x1p-68;
}

// Whether `value` (as combined) keeps the promise; `leading` is the sum of the products of leading bits.
PLUMBLINE_HOST_DEVICE inline bool suffices(const Line& row, const Line& column, double value, std::int32_t leading) {
  if (row.leading == Line::kBeyond || column.leading == Line::kBeyond) return false;
  if (row.leading == Line::kZeros || column.leading == Line::kZeros) return true;
  // |V| 2^-68 is off by its rounding and by L D < 2^-50.
  return std::fabs(value) >= kEnough * (1 + 0x1p-30) ||
         static_cast<double>(leading) >= kEnough * power_of_two(row.leading + column.leading);
}

// The sum, from what suffices.
PLUMBLINE_HOST_DEVICE inline double scaled(const Line& row, const Line& column, double value) {
  return value * power_of_two(row.exponent + column.exponent);
}

}  // namespace plumbline::sliced
