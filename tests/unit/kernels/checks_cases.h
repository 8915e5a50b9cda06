// Arrays that checks look at, and what kernels/checks.h says of them, written out.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/checks.h"
#include "tests/unit/kernels/cases.h"

namespace plumbline::testing {

inline constexpr Format kChecked[] = {Format::kFloat32,    Format::kFloat16,    Format::kBFloat16,
                                      Format::kFloat8E4M3, Format::kFloat8E5M2, Format::kFloat64};

// Values of all magnitudes that `format` may meet, zeros of either sign, infinities and NaN among them.
inline Array of_all_sizes(std::mt19937_64& rng, Format format, const Shape& shape) {
  const FormatTraits& t = traits(format);
  std::uniform_int_distribution<int> exponent(t.exponent_min - t.precision - 3, t.exponent_max + 2);
  std::uniform_real_distribution<double> fraction(-2, 2);
  Array x = Array::uninitialized(shape);
  const double special[] = {0.0, -0.0, HUGE_VAL, -HUGE_VAL, NAN, largest_finite(format), smallest_normal(format)};
  for (std::int64_t i = 0; i < x.count(); ++i)
    x.data()[i] = i % 11 == 0 ? special[static_cast<std::size_t>(i / 11) % std::size(special)]
                              : std::ldexp(fraction(rng), exponent(rng));
  return x;
}

struct Checked {
  Absorbed absorbed;
  Cancelled cancelled;
  FormatRange range;
  Apart apart;
  double outside = 0, differing = 0;
  std::vector<bool> finite;  // The answers for an array with an infinity at its end, and for one without.
};

struct CheckedArrays {
  CheckedArrays(Format of, std::uint64_t seed) : format(of) {
    std::mt19937_64 rng(seed);
    const Shape shape = {301, 257};
    a = of_all_sizes(rng, format, shape);
    x = random_array(rng, {shape[1]}, -1e-3, 1e-3);
    for (std::int64_t i = 0; i < 40; ++i) x.data()[i] = 0;
    b = of_all_sizes(rng, format, shape);
    for (std::int64_t i = 0; i < b.count(); i += 3) b.data()[i] = a.data()[i];
    radius = random_array(rng, {shape[0], 1}, 0, 1);
    endless = random_array(rng, radius.shape(), -1, 1);
    endless.data()[endless.count() - 1] = -HUGE_VAL;
  }
  Format format;
  Array a, x, b, radius, endless;
};

inline Checked checked(const CheckedArrays& of) {
  const Array strided = of.a.restride({{257, 301}, {1, 257}, 0});
  const Finite finite = all_finite(of.endless, of.radius), turned = all_finite(of.radius, of.endless);
  return {absorbed(of.a, of.x, of.format),
          cancelled(of.b, of.a, of.x),
          range_of(of.format, strided),
          apart(of.a, of.b),
          count_outside(of.a, of.b, {of.radius}, 1.5, -3, 1e3),
          count_differing(of.a, of.b),
          {finite.first, finite.second, turned.first, turned.second}};
}

inline Checked checked_one_by_one(const CheckedArrays& of) {
  Checked found;
  found.finite = {false, true, true, false};
  const std::int64_t columns = of.x.count();
  for (std::int64_t i = 0; i < of.a.count(); ++i) {
    const double a = of.a.data()[i], b = of.b.data()[i], x = of.x.data()[i % columns];
    if (x != 0 && std::isfinite(a)) {
      ++found.absorbed.elements;
      found.absorbed.total += std::fabs(x);
      if (round_to(of.format, a + x) == round_to(of.format, a)) {
        ++found.absorbed.lost_elements;
        found.absorbed.lost += std::fabs(x);
      }
    }
    found.cancelled.terms_squares += (std::fabs(a) + std::fabs(x)) * (std::fabs(a) + std::fabs(x));
    found.cancelled.squares += b * b;
    found.apart.norm += b * b;
    found.apart.difference += a == b ? 0 : (a - b) * (a - b);
    if (a != 0 && std::isfinite(a)) {
      const double magnitude = std::fabs(a);
      FormatRange& range = found.range;
      ++range.nonzero;
      range.largest = std::fmax(range.largest, magnitude);
      range.squares += magnitude * magnitude;
      range.overflowing += std::isinf(round_to(of.format, magnitude));
      if (magnitude < smallest_normal(of.format)) {
        ++range.underflowing;
        range.lost_squares += std::pow(magnitude - round_to(of.format, magnitude), 2);
      }
    }
    const double r = of.radius.data()[i / columns];
    const bool legal = a == b || (std::isnan(a) && std::isnan(b)) || !std::isfinite(b) ||
                       (std::fabs(a - b) <= r * 1.5 && a >= -3 && a <= 1e3);
    found.outside += legal ? 0 : 1;
    found.differing +=
        std::bit_cast<std::uint64_t>(a) != std::bit_cast<std::uint64_t>(b) && !(std::isnan(a) && std::isnan(b));
  }
  found.apart = {std::sqrt(found.apart.norm), std::sqrt(found.apart.difference)};
  return found;
}

inline void expect_near(const Checked& found, const Checked& expected) {
  const auto near = [](double x, double y) { return x == y || (x != x && y != y) || std::fabs(x - y) <= 1e-9 * y; };
  EXPECT_EQ(found.absorbed.elements, expected.absorbed.elements);
  EXPECT_EQ(found.absorbed.lost_elements, expected.absorbed.lost_elements);
  EXPECT_PRED2(near, found.absorbed.total, expected.absorbed.total);
  EXPECT_PRED2(near, found.absorbed.lost, expected.absorbed.lost);
  EXPECT_PRED2(near, found.cancelled.terms_squares, expected.cancelled.terms_squares);
  EXPECT_PRED2(near, found.cancelled.squares, expected.cancelled.squares);
  EXPECT_PRED2(near, found.apart.norm, expected.apart.norm);
  EXPECT_PRED2(near, found.apart.difference, expected.apart.difference);
  EXPECT_EQ(found.range.nonzero, expected.range.nonzero);
  EXPECT_EQ(found.range.overflowing, expected.range.overflowing);
  EXPECT_EQ(found.range.underflowing, expected.range.underflowing);
  EXPECT_PRED2(near, found.range.squares, expected.range.squares);
  EXPECT_PRED2(near, found.range.lost_squares, expected.range.lost_squares);
  EXPECT_EQ(found.range.largest, expected.range.largest);
  EXPECT_EQ(found.outside, expected.outside);
  EXPECT_EQ(found.differing, expected.differing);
  EXPECT_EQ(found.finite, expected.finite);
}

}  // namespace plumbline::testing
