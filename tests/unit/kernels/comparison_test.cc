#include "kernels/comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "tests/unit/kernels/comparison_cases.h"

namespace plumbline {
namespace {

using testing::Compared;

// Element by element, as the header says it.
Comparison by_definition(const Compared& c) {
  Comparison found;
  for (std::int64_t i = 0; i < c.count; ++i) {
    double sums[2] = {}, radius = 0, rounding = 0, event = 0;
    for (int side = 0; side < 2; ++side) {
      for (const ComparedTerm& term : side == 0 ? c.centres : c.values) {
        const double x = term.x.values ? term.x.values.data()[i] : c.packed[static_cast<std::size_t>(i)];
        const double size = std::fabs(term.weight);
        sums[side] += term.weight * x;
        const double r = term.x.radii ? term.x.radii.values.data()[i] : 0, rounds = term.u * std::fabs(x) + term.eta;
        radius += size * (r + term.own * std::fabs(x));
        rounding += size * rounds;
        event += size * std::min(r, rounds);
      }
    }
    const double deviation = std::fabs(sums[0] - sums[1]), allowed = radius * c.slack;
    const double ratio = deviation == 0 ? 0 : allowed > 0 ? deviation / allowed : HUGE_VAL;
    found.finite = found.finite && std::isfinite(sums[0]);
    found.radius_squares += radius * radius;
    found.centre_squares += sums[0] * sums[0];
    found.excess_squares += std::pow(std::max(0.0, radius - rounding), 2);
    found.least_chance = std::min(found.least_chance, comparison::chance(sums[0], sums[1], allowed, event));
    if (!(ratio > found.worst)) continue;
    found.worst = ratio;
    found.element = static_cast<std::uint64_t>(i);
    found.centre = sums[0];
    found.value = sums[1];
    found.radius = allowed;
  }
  return found;
}

void expect_alike(const Comparison& a, const Comparison& b) {
  EXPECT_EQ(a.finite, b.finite);
  EXPECT_NEAR(a.radius_squares, b.radius_squares, 1e-12 * b.radius_squares);
  EXPECT_NEAR(a.centre_squares, b.centre_squares, 1e-12 * b.centre_squares);
  EXPECT_NEAR(a.excess_squares, b.excess_squares, 1e-12 * b.excess_squares);
  EXPECT_NEAR(a.worst, b.worst, 1e-12 * b.worst);
  EXPECT_EQ(a.element, b.element);
  EXPECT_EQ(a.centre, b.centre);
  EXPECT_EQ(a.value, b.value);
  EXPECT_NEAR(a.radius, b.radius, 1e-15);
  EXPECT_NEAR(a.least_chance, b.least_chance, 1e-9);
}

TEST(Comparison, IsWhatItsDefinitionSays) {
  for (const std::int64_t count : {1, 255, 256, 1001, 70001})
    for (const std::int64_t broken : {std::int64_t{-2}, count / 2, count - 1}) {
      SCOPED_TRACE(std::to_string(count) + " elements, broken " + std::to_string(broken));
      const Compared c = testing::compared(7, count, broken);
      const Comparison found = compare(c.centres, c.values, c.count, c.slack);
      expect_alike(found, by_definition(c));
      if (broken > 0 && broken % 97 != 0) {
        EXPECT_GT(found.worst, 1);
      }
    }
}

// Blocks are passed over by products where those say enough: what is not a number, infinite, exact or next to 0 is
// seen.
TEST(Comparison, SeesWhatIsSpecialInLaterBlocks) {
  constexpr std::int64_t kCount = 2000, kAt = 1777;
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kLeast = 0x1p-1074;
  struct Special {
    double centre, value, radius;
  };
  for (const auto& [centre, value, radius] : {Special{kNaN, 1, 1},
                                              {1, kNaN, 1},
                                              {kNaN, kNaN, 0},
                                              {HUGE_VAL, HUGE_VAL, 0},
                                              {HUGE_VAL, -HUGE_VAL, 1},
                                              {1, HUGE_VAL, HUGE_VAL},
                                              {1, 2, 0},
                                              {1, 1, 0},
                                              {0, kLeast, kLeast},
                                              {0, 3 * kLeast, 2 * kLeast},
                                              {1, 5, HUGE_VAL},
                                              {1, 5, kNaN}}) {
    SCOPED_TRACE(std::to_string(centre) + " " + std::to_string(value) + " " + std::to_string(radius));
    std::mt19937_64 rng(5);
    std::uniform_real_distribution<double> unit(-0.6, 0.6);
    Array m = Array::full({kCount}, 1), t = Array::uninitialized({kCount}), r = Array::full({kCount}, 1e-6);
    for (std::int64_t i = 0; i < kCount; ++i) t.data()[i] = 1 + 1e-6 * unit(rng);
    m.data()[kAt] = centre;
    t.data()[kAt] = value;
    r.data()[kAt] = radius;
    const auto compared = [&](std::int64_t begin, std::int64_t count) {
      const View part{{count}, {1}, begin};
      const ComparedTerm exact{.x = {.values = m.window(part), .radii = {r.window(part)}}, .u = 1e-7};
      const ComparedTerm observed{.x = {.values = t.window(part)}};
      return compare({&exact, 1}, {&observed, 1}, count, 1).get();
    };
    const Comparison whole = compared(0, kCount);
    Comparison one_by_one;
    for (std::int64_t i = 0; i < kCount; ++i) {
      Comparison next = compared(i, 1);
      next.element = static_cast<std::uint64_t>(i);
      one_by_one.join(next);
    }
    EXPECT_EQ(whole.worst, one_by_one.worst);
    EXPECT_EQ(whole.element, one_by_one.element);
    EXPECT_EQ(whole.least_chance, one_by_one.least_chance);
    EXPECT_EQ(whole.finite, one_by_one.finite);
  }
}

TEST(Comparison, JoinedPartsAreTheWhole) {
  const Compared c = testing::compared(8, 5000, 3111);
  const auto part = [&](std::int64_t begin, std::int64_t count) {
    const auto cut = [&](std::vector<ComparedTerm> terms) {
      for (ComparedTerm& term : terms) {
        const View window{{count}, {1}, begin};
        if (term.x.values) term.x.values = term.x.values.window(window);
        if (term.x.radii) term.x.radii = {term.x.radii.values.window(window)};
        if (term.x.bytes != nullptr) term.x.bytes += begin * 4;
      }
      return terms;
    };
    Comparison found = compare(cut(c.centres), cut(c.values), count, c.slack);
    found.element += static_cast<std::uint64_t>(begin);
    return found;
  };
  Comparison whole;
  for (const auto& [begin, count] : {std::pair{0, 700}, {700, 2400}, {3100, 1900}}) whole.join(part(begin, count));
  expect_alike(whole, compare(c.centres, c.values, c.count, c.slack));
}

TEST(Comparison, ChanceOfOneElement) {
  const auto chance = [](double deviation, double allowed, double event) {
    const double up = comparison::chance(0, deviation, allowed, event);
    EXPECT_EQ(comparison::chance(0, -deviation, allowed, event), up);
    return up;
  };
  EXPECT_EQ(chance(0, 1, 1), 1);
  EXPECT_DOUBLE_EQ(chance(0.75, 1, 1), 0.25);    // One rounding: 1 - d / B.
  EXPECT_DOUBLE_EQ(chance(0.75, 1, 7), 0.25);    // No more of it than is allowed.
  EXPECT_EQ(chance(0.5, 1, 0.5), 1);             // The rest may be that much,
  EXPECT_DOUBLE_EQ(chance(0.75, 1, 0.5), 0.25);  // and then half of the roundings are above.
  EXPECT_DOUBLE_EQ(chance(0.5, 1, 0.75), 0.5 / 1.5);
  EXPECT_DOUBLE_EQ(chance(0.375, 1, 0.75), (0.625 + 0.125) / 1.5);  // Or below, with the other sign.
  EXPECT_EQ(chance(0.9, 1, 0), 1);
  EXPECT_EQ(chance(1.1, 1, 1), 0);
  EXPECT_EQ(chance(1.1, 1, 0), 0);
  EXPECT_GT(chance(1, 1, 1), 0);  // What is allowed is possible.
  EXPECT_EQ(chance(0, 0, 0), 1);
  EXPECT_EQ(chance(1e-300, 0, 0), 0);
  EXPECT_EQ(chance(5, HUGE_VAL, 1), 1);
  EXPECT_EQ(chance(HUGE_VAL, HUGE_VAL, 1), 0);
  EXPECT_EQ(chance(1, std::nan(""), 1), 0);
  EXPECT_EQ(comparison::chance(std::nan(""), std::nan(""), 0, 0), 1);
  EXPECT_EQ(comparison::chance(1, std::nan(""), 1, 1), 0);
}

// Sums of uniform roundings of all widths, beside a rest as unfavourable as it can be: chances are never too small.
TEST(Comparison, ChancesHoldWhateverIsBesideTheRoundings) {
  constexpr int kDraws = 200'000;
  std::mt19937_64 rng(12);
  std::uniform_real_distribution<double> draw(-1, 1);
  const std::vector<std::vector<double>> widths = {{1}, {0.5, 0.5}, {0.9, 0.05, 0.05}, {0.3}, {0.2, 0.2, 0.1}};
  for (const double rest : {0.0, 1e-3, 0.25, 1.0, 3.0})
    for (const std::vector<double>& parts : widths) {
      int below[4] = {};
      for (int k = 0; k < kDraws; ++k) {
        double value = rest;
        for (const double width : parts) value += width * draw(rng);
        const double chance = comparison::chance(0, value, 1 + rest, 1);
        for (int s = 1; s <= 3; ++s) below[s] += chance <= std::pow(10, -s) ? 1 : 0;
      }
      for (int s = 1; s <= 3; ++s) {
        const double expected = kDraws * std::pow(10, -s);
        EXPECT_LE(below[s], expected + 4 * std::sqrt(expected)) << s << " rest " << rest << " parts " << parts.size();
        if (parts.size() == 1 && parts[0] == 1 && rest == 0) {
          EXPECT_GE(below[s], expected - 4 * std::sqrt(expected)) << "of one rounding it is exact";
        }
      }
    }
}

TEST(Comparison, OfWhatIsNotFinite) {
  const auto of = [](double centre, double radius, double value) {
    const std::vector<ComparedTerm> centres = {
        {.x = {.values = Array::full({3}, centre).materialize(), .radii = {Array::full({3}, radius).materialize()}}}};
    const std::vector<ComparedTerm> values = {{.x = {.values = Array::full({3}, value).materialize()}}};
    return compare(centres, values, 3, 1).get();
  };
  const double nan = std::nan("");
  EXPECT_EQ(of(1, 0, 1).worst, 0);                // Equal, whatever is allowed.
  EXPECT_EQ(of(1, 0, 1.5).worst, HUGE_VAL);       // Nothing is allowed.
  EXPECT_EQ(of(1, nan, 1.5).worst, HUGE_VAL);     // A radius of NaN allows nothing.
  EXPECT_EQ(of(1, 1, nan).worst, HUGE_VAL);       // NaN lies nowhere,
  EXPECT_EQ(of(nan, 1, nan).worst, 0);            // but where NaN is expected.
  EXPECT_EQ(of(HUGE_VAL, 1, HUGE_VAL).worst, 0);  // Infinities match by sign.
  EXPECT_EQ(of(HUGE_VAL, 1, -HUGE_VAL).worst, HUGE_VAL);
  EXPECT_TRUE(of(1, HUGE_VAL, 5).finite);
  EXPECT_FALSE(of(HUGE_VAL, 1, HUGE_VAL).finite);
  EXPECT_FALSE(of(nan, 1, nan).finite);
}

}  // namespace
}  // namespace plumbline
