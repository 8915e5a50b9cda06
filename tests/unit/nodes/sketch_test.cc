// What a sketch says of a sum, against sums in exact arithmetic, legal executions in any order, and the worst of them.
#include "server/nodes/sketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace plumbline {
namespace {

using Values = std::vector<double>;

std::vector<std::uint8_t> bytes_of(Format format, const Values& values) {
  std::vector<std::uint8_t> bytes(values.size() * static_cast<std::size_t>(traits(format).bytes));
  encode(format, values.data(), static_cast<std::int64_t>(values.size()), bytes.data());
  return bytes;
}

TensorSketch sketched(Format format, const Values& values, std::uint64_t seed, std::size_t shares = 1) {
  const auto bytes = bytes_of(format, values);
  const auto count = static_cast<std::int64_t>(values.size());
  return sketch(format, bytes.data(), count, sketch_shape(count, shares), seed);
}

// Rank by rank, in the format, with magnitudes over some decades.
std::vector<Values> drawn(Format format, std::size_t ranks, std::size_t count, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> decade(-3, 0);
  std::vector<Values> sent(ranks, Values(count));
  for (Values& values : sent)
    for (double& value : values) value = round_to(format, normal(random) * std::pow(10, decade(random)));
  return sent;
}

// A sum that hardware may make: any two that are left are added next, each time rounded; some carry more and round
// once.
double legal_sum(Format format, Values terms, std::mt19937_64& random) {
  if (random() % 4 == 0) {
    double wide = 0;
    for (const double term : terms) wide += term;
    return round_to(format, wide);
  }
  while (terms.size() > 1) {
    std::shuffle(terms.begin(), terms.end(), random);
    const double last = terms.back();
    terms.pop_back();
    terms.back() = round_to(format, terms.back() + last);
  }
  return terms[0];
}

TEST(Sketch, IsWhatItsElementsAddUpTo) {
  std::mt19937_64 random(1);
  for (const std::int64_t count : {1, 5, 128, 129, 1000, 70001}) {
    const Values values = drawn(Format::kFloat32, 1, static_cast<std::size_t>(count), random)[0];
    const SketchShape shape = sketch_shape(count, 1);
    const TensorSketch made = sketched(Format::kFloat32, values, 3);
    ASSERT_EQ(made.sums.size(), shape.numbers());
    long double norm = 0, seen = 0;
    for (const double value : values) norm += std::fabs(static_cast<long double>(value));
    for (const double part : made.norms) seen += part;
    EXPECT_GE(seen, norm);
    EXPECT_LE(seen, norm * (1 + 1e-12L));
    EXPECT_EQ(shape.begin(0, count), 0);
    EXPECT_EQ(shape.begin(shape.blocks, count), count);
    if (shape.projections == 1) {
      EXPECT_EQ(made.sums, values);
    }
  }
}

TEST(Sketch, AddsAsTensorsDo) {
  std::mt19937_64 random(2);
  const auto sent = drawn(Format::kFloat64, 3, 5000, random);
  Values all(5000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = sent[0][i] + sent[1][i] + sent[2][i];
  const TensorSketch whole = sketched(Format::kFloat64, all, 9);
  double norm = 0;
  for (const double part : whole.norms) norm += part;
  for (std::size_t i = 0; i < whole.sums.size(); ++i) {
    double sum = 0;
    for (const Values& values : sent) sum += sketched(Format::kFloat64, values, 9).sums[i];
    EXPECT_NEAR(sum, whole.sums[i], 1e-13 * norm);
  }
}

TEST(Sketch, SeesAnErrorOfOneElementWhereverItIs) {
  Values values(4099, 0.5);
  const TensorSketch before = sketched(Format::kFloat32, values, 4);
  for (std::size_t at = 0; at < values.size(); at += 97) {
    Values other = values;
    other[at] += 0.25;
    const TensorSketch after = sketched(Format::kFloat32, other, 4);
    int moved = 0;
    for (std::size_t i = 0; i < after.sums.size(); ++i) {
      const double change = std::fabs(after.sums[i] - before.sums[i]);
      EXPECT_TRUE(change == 0 || change == 0.25) << change;
      moved += change > 0;
    }
    EXPECT_EQ(moved, kProjections);
  }
}

TEST(Sketch, ErrorsThatCancelInAPlainSumAreSeenMostly) {
  Values values(4096, 0.5);
  int missed = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Values other = values;
    std::swap(other[10] += 1, other[20]);
    other[30] -= 1;
    const auto before = sketched(Format::kFloat32, values, seed), after = sketched(Format::kFloat32, other, seed);
    missed += before.sums == after.sums;
  }
  EXPECT_LT(missed, 200 * 0.44);
}

TEST(Sketch, WhatIsNotFiniteIsTold) {
  for (const double wrong : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Values values(1000, 1);
    values[500] = wrong;
    const TensorSketch made = sketched(Format::kFloat32, values, 5);
    EXPECT_EQ(std::count(made.norms.begin(), made.norms.end(), HUGE_VAL), 1);
  }
}

TEST(Sketch, SharesOfManyRanksStaySmall) {
  EXPECT_EQ(sketch_shape(100000, 1).numbers(), 128u);
  EXPECT_EQ(sketch_shape(100000, 8).numbers(), 16u);
  EXPECT_EQ(sketch_shape(100000, 5000).numbers(), static_cast<std::size_t>(kProjections));
  EXPECT_EQ(sketch_shape(3, 5000).projections, 1);
  EXPECT_EQ(sketch_shape(0, 1).numbers(), 0u);
}

// No legal execution is beyond what is allowed, element by element and by projections.
TEST(Sketch, LegalExecutionsAreAllowed) {
  std::mt19937_64 random(6);
  for (const Format format :
       {Format::kFloat64, Format::kFloat32, Format::kFloat16, Format::kBFloat16, Format::kFloat8E5M2}) {
    for (const std::size_t ranks : {1, 2, 3, 8, 24}) {
      for (const bool average : {false, true}) {
        for (const std::size_t count : {16, 1500}) {
          auto sent = drawn(format, ranks, count, random);
          if (count == 16) {  // Next to zero, where results are subnormal.
            for (Values& values : sent)
              for (double& value : values) value = round_to(format, value * smallest_normal(format));
          }
          const auto n = static_cast<double>(ranks);
          Values received(count);
          for (std::size_t i = 0; i < count; ++i) {
            Values terms;
            const bool first = random() % 2 == 0;  // Either each term is multiplied by 1/n, or the sum is divided.
            for (const Values& values : sent)
              terms.push_back(average && first ? round_to(format, values[i] * round_to(format, 1 / n)) : values[i]);
            received[i] = legal_sum(format, terms, random);
            if (average && !first) received[i] = round_to(format, received[i] / n);
          }
          const SketchShape shape = sketch_shape(static_cast<std::int64_t>(count), 1);
          const TensorSketch got = sketched(format, received, 8);
          for (std::size_t b = 0; b < got.norms.size(); ++b) {
            double norm = 0;
            for (const Values& values : sent) norm += sketched(format, values, 8).norms[b];
            const auto block = static_cast<std::int64_t>(b), all = static_cast<std::int64_t>(count);
            const double allowed = allowed_deviation({format, static_cast<std::int64_t>(ranks), average, 1, false},
                                                     shape.begin(block + 1, all) - shape.begin(block, all), norm) +
                                   kSketchError * (norm + got.norms[b]);
            for (int p = 0; p < shape.projections; ++p) {
              const std::size_t i = b * static_cast<std::size_t>(shape.projections) + static_cast<std::size_t>(p);
              double sum = 0;
              for (const Values& values : sent) sum += sketched(format, values, 8).sums[i];
              EXPECT_LE(std::fabs(got.sums[i] - sum / (average ? n : 1)), allowed)
                  << traits(format).name << " " << ranks << " ranks" << (average ? ", average" : "");
            }
          }
        }
      }
    }
  }
}

// The bound cannot be much smaller: 1 + u + u + ... rounded down each time loses all of them.
TEST(Sketch, AWitnessComesCloseToWhatIsAllowed) {
  for (const Format format : {Format::kFloat32, Format::kBFloat16}) {
    const double u = unit_roundoff(format);
    for (const int ranks : {2, 8, 24}) {
      double sum = 1, norm = 1, exact = 1;
      for (int rank = 1; rank < ranks; ++rank) {
        sum = round_to(format, sum + u);  // To even: 1.
        norm += u;
        exact += u;
      }
      const double allowed = allowed_deviation({format, ranks, false, 1, false}, 1, norm);
      EXPECT_LE(exact - sum, allowed);
      EXPECT_GE(exact - sum, 0.75 * allowed) << traits(format).name << " " << ranks;
    }
  }
}

// A bound without the additions' count would accuse that witness.
TEST(Sketch, OneRoundingIsNotEnoughForManyRanks) {
  const double u = unit_roundoff(Format::kFloat32);
  EXPECT_GT(7 * u, allowed_deviation({Format::kFloat32, 2, false, 1, false}, 1, 1 + 7 * u));
}

}  // namespace
}  // namespace plumbline
