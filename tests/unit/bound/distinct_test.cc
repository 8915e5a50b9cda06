#include "server/bound/envelope/distinct.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/ball/key.h"
#include "kernels/cpu/gemm.h"
#include "kernels/primitive/primitive.h"

namespace plumbline {
namespace {

Array drawn(const Shape& shape, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  Array values = Array::uninitialized(shape);
  for (std::int64_t i = 0; i < values.count(); ++i) values.data()[i] = normal(rng);
  return values;
}

void copy_row(Array& matrix, std::int64_t from, std::int64_t to, double factor = 1) {
  const std::int64_t k = matrix.shape().back();
  for (std::int64_t l = 0; l < k; ++l) matrix.data()[to * k + l] = factor * matrix.data()[from * k + l];
}

TEST(DistinctTerms, AreToldFromEqualRowsAndColumns) {
  for (const std::int64_t k : {32, 64, 1000}) {
    const Array a = drawn({130, k}, 1), b = drawn({k, 70}, 2);
    EXPECT_TRUE(distinct_terms({a, b})) << k;
    EXPECT_TRUE(distinct_terms({cpu::transpose_last_two(b), cpu::transpose_last_two(a)})) << k;
    Array rows = drawn({130, k}, 1), columns = drawn({70, k}, 2);
    copy_row(rows, 3, 129);
    EXPECT_FALSE(distinct_terms({rows, b})) << k;
    EXPECT_FALSE(distinct_terms({cpu::transpose_last_two(b), cpu::transpose_last_two(rows)})) << k;
    copy_row(columns, 69, 0);
    EXPECT_FALSE(distinct_terms({a, cpu::transpose_last_two(columns)})) << k;
  }
}

// Whether they differ among the first terms or the last.
TEST(DistinctTerms, MayDifferInAnyTerm) {
  constexpr std::int64_t kTerms = 1000;
  for (const std::int64_t own : {std::int64_t{0}, std::int64_t{63}, std::int64_t{64}, kTerms - 1}) {
    Array rows = drawn({20, kTerms}, 1);
    Array weights = drawn({kTerms, 30}, 2);
    for (std::int64_t i = 1; i < 20; ++i) {
      const double kept = rows.data()[i * kTerms + own];
      copy_row(rows, 0, i);
      rows.data()[i * kTerms + own] = kept;
    }
    EXPECT_TRUE(distinct_terms({rows, weights})) << own;
    weights.data()[own * 30 + 7] = 0;
    EXPECT_FALSE(distinct_terms({rows, weights})) << own;
  }
}

// Rows are equal but for what an earlier sum left in the place of zeros, beside which the columns are small.
TEST(DistinctTerms, AreNotToldByWhatIsLeftOfZeros) {
  constexpr std::int64_t kTerms = 4096;
  for (const double size : {1.0, 1e-6, 1e-9}) {
    Array rows = drawn({2, kTerms}, 1), columns = drawn({kTerms, 3}, 2);
    copy_row(rows, 0, 1);
    const Array left = drawn({2, 64}, 3);
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t l = 0; l < 64; ++l) rows.data()[i * kTerms + l] = 1e-16 * left.data()[i * 64 + l];
    for (std::int64_t i = 0; i < columns.count(); ++i) columns.data()[i] *= size;
    EXPECT_FALSE(distinct_terms({rows, columns})) << size;
  }
}

TEST(DistinctTerms, OfABatchAreToldAcrossIt) {
  Array a = drawn({3, 8, 40}, 1);
  const Array b = drawn({3, 40, 4}, 2), one = drawn({40, 4}, 3);
  EXPECT_TRUE(distinct_terms({a, b}));
  EXPECT_TRUE(distinct_terms({a, one}));
  EXPECT_FALSE(distinct_terms({a, one.expand({3, 40, 4})}));
  copy_row(a, 0, 8);  // The first rows of two matrices.
  EXPECT_FALSE(distinct_terms({a, one}));
}

TEST(DistinctTerms, AreNotThoseOfAMatrixWithItself) {
  const Array x = drawn({50, 64}, 1);
  EXPECT_FALSE(distinct_terms({x, cpu::transpose_last_two(x)}));
}

// Two rows that differ where the weights are 0 alone.
TEST(DistinctTerms, AreNotToldWhereZerosMayHideThem) {
  Array rows = drawn({20, 64}, 1), weights = drawn({64, 30}, 2);
  for (std::int64_t i = 1; i < 20; ++i) {
    const double own = rows.data()[i * 64 + 5];
    copy_row(rows, 0, i);
    rows.data()[i * 64 + 5] = own;
  }
  EXPECT_TRUE(distinct_terms({rows, weights}));
  for (std::int64_t j = 0; j < 30; ++j) weights.data()[5 * 30 + j] = j % 2 == 0 ? 0.0 : -0.0;
  EXPECT_FALSE(distinct_terms({rows, weights}));
}

TEST(DistinctTerms, AreNotToldOfFew) {
  EXPECT_FALSE(distinct_terms({drawn({9, 31}, 1), drawn({31, 9}, 2)}));
  EXPECT_FALSE(distinct_terms({drawn({9, 1}, 1), drawn({1, 9}, 2)}));
  EXPECT_FALSE(distinct_terms({Array::zeros({9, 0}), Array::zeros({0, 9})}));
}

// What an earlier sum left of equal rows, and how their own sums are added, is no reason to tell them apart.
TEST(DistinctTerms, AreNotToldApartByRoundings) {
  for (const double apart : {0x1p-52, 0x1p-44}) {
    Array a = drawn({2, 4096}, 1);
    copy_row(a, 0, 1, 1 + apart);
    EXPECT_FALSE(distinct_terms({a, drawn({4096, 3}, 2)}));
  }
  Array a = drawn({2, 4096}, 1);
  copy_row(a, 0, 1, 1 + 0x1p-20);
  EXPECT_TRUE(distinct_terms({a, drawn({4096, 3}, 2)}));
}

TEST(DistinctTerms, AreNotToldWhereNumbersAreNot) {
  for (const double lost : {HUGE_VAL, std::numeric_limits<double>::quiet_NaN()}) {
    Array a = drawn({4, 50}, 1);
    a.data()[7] = lost;
    EXPECT_FALSE(distinct_terms({a, drawn({50, 3}, 2)}));
  }
}

// Against the results, which are equal where terms are: rows and columns are drawn from a few, moved in few places.
TEST(DistinctTerms, GiveNoEqualResults) {
  std::mt19937 rng(9);
  int distinct = 0, repeated = 0;
  for (int round = 0; round < 400; ++round) {
    const auto size = [&](unsigned most) { return static_cast<std::int64_t>(1 + rng() % most); };
    const std::int64_t batch = size(3), m = size(4), k = 32 + size(8), n = size(4);
    const bool wide_a = rng() % 2 == 0, wide_b = rng() % 2 == 0;
    std::vector<Array> few;
    for (int i = 0; i < 12; ++i) few.push_back(drawn({k}, 100 + i));
    const auto vectors = [&](std::int64_t count) {
      Array x = Array::uninitialized({count, k});
      for (std::int64_t i = 0; i < count; ++i) {
        const Array& one = few[rng() % few.size()];
        std::copy_n(one.data(), k, x.data() + i * k);
        if (rng() % 2 == 0) x.data()[i * k + 3] = static_cast<double>(rng() % 3);
      }
      return x;
    };
    const Array a = vectors((wide_a ? batch : 1) * m).reshape(wide_a ? Shape{batch, m, k} : Shape{m, k});
    const Array b =
        cpu::transpose_last_two(vectors((wide_b ? batch : 1) * n).reshape(wide_b ? Shape{batch, n, k} : Shape{n, k}));
    const Shape result = wide_a || wide_b ? Shape{batch, m, n} : Shape{m, n};
    const std::vector<Array> in = {a, b};
    const Array values = traits(Primitive::kMatmul).evaluate({}, result, in);
    std::vector<std::uint64_t> keys;
    for (std::int64_t i = 0; i < values.count(); ++i) keys.push_back(key::coarse_bits(values.data()[i]));
    std::ranges::sort(keys);
    const bool equal = std::ranges::adjacent_find(keys) != keys.end(), told = distinct_terms(in);
    EXPECT_FALSE(told && equal) << round;
    distinct += told ? 1 : 0;
    repeated += equal ? 1 : 0;
  }
  EXPECT_GT(distinct, 20);
  EXPECT_GT(repeated, 100);
}

}  // namespace
}  // namespace plumbline
