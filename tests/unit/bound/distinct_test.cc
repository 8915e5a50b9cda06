#include "server/bound/envelope/distinct.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/cpu/gemm.h"

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

TEST(DistinctOperands, AreToldFromEqualRowsAndColumns) {
  for (const std::int64_t k : {1, 3, 64, 1000}) {
    const Array a = drawn({130, k}, 1), b = drawn({k, 70}, 2);
    EXPECT_TRUE(distinct_operands({a, b}, {130, 70})) << k;
    Array rows = drawn({130, k}, 1), columns = drawn({70, k}, 2);
    copy_row(rows, 3, 129);
    EXPECT_FALSE(distinct_operands({rows, b}, {130, 70})) << k;
    EXPECT_FALSE(distinct_operands({cpu::transpose_last_two(b), cpu::transpose_last_two(rows)}, {70, 130})) << k;
    copy_row(columns, 69, 0);
    EXPECT_FALSE(distinct_operands({a, cpu::transpose_last_two(columns)}, {130, 70})) << k;
  }
}

TEST(DistinctOperands, RowsOfZerosShareNothing) {
  Array a = drawn({9, 5}, 1);
  copy_row(a, 2, 2, 0);
  copy_row(a, 2, 7, -0.0);
  EXPECT_TRUE(distinct_operands({a, drawn({5, 4}, 2)}, {9, 4}));
}

TEST(DistinctOperands, OfABatchAreToldAcrossIt) {
  Array a = drawn({3, 8, 5}, 1);
  const Array b = drawn({3, 5, 4}, 2), one_b = drawn({5, 4}, 3);
  EXPECT_TRUE(distinct_operands({a, b}, {3, 8, 4}));
  EXPECT_TRUE(distinct_operands({a, one_b}, {3, 8, 4}));
  copy_row(a, 0, 8);  // The first rows of two matrices: their columns tell them apart, unless all have the same.
  EXPECT_TRUE(distinct_operands({a, b}, {3, 8, 4}));
  EXPECT_FALSE(distinct_operands({a, one_b}, {3, 8, 4}));
  copy_row(a, 0, 1);
  EXPECT_FALSE(distinct_operands({a, b}, {3, 8, 4}));
  // One matrix times all: then its own rows are those of every matrix of the result.
  const Array one_a = drawn({8, 5}, 4);
  EXPECT_TRUE(distinct_operands({one_a, b}, {3, 8, 4}));
  Array repeated = drawn({3, 4, 5}, 5);
  copy_row(repeated, 1, 6);
  EXPECT_FALSE(distinct_operands({one_a, cpu::transpose_last_two(repeated)}, {3, 8, 4}));
}

// Sums of equal rows may be added in other orders, and differ by roundings: these are no reason to tell them apart.
TEST(DistinctOperands, AreNotToldApartByRoundings) {
  Array a = drawn({2, 4096}, 1);
  copy_row(a, 0, 1, 1 + 0x1p-52);
  EXPECT_FALSE(distinct_operands({a, drawn({4096, 3}, 2)}, {2, 3}));
  copy_row(a, 0, 1, 1 + 0x1p-30);
  EXPECT_TRUE(distinct_operands({a, drawn({4096, 3}, 2)}, {2, 3}));
}

TEST(DistinctOperands, AreNotToldWhereNumbersAreNot) {
  for (const double lost : {HUGE_VAL, std::numeric_limits<double>::quiet_NaN()}) {
    Array a = drawn({4, 5}, 1);
    a.data()[7] = lost;
    EXPECT_FALSE(distinct_operands({a, drawn({5, 3}, 2)}, {4, 3}));
  }
}

// Against all pairs: of small whole numbers many are equal.
TEST(DistinctOperands, AreThoseOfWhichNoPairIsEqual) {
  std::mt19937 rng(9);
  int distinct = 0;
  for (int round = 0; round < 400; ++round) {
    const auto size = [&] { return static_cast<std::int64_t>(1 + rng() % 5); };
    const std::int64_t batch = size(), m = size(), k = 2 + size(), n = size();
    const bool wide_a = rng() % 2 == 0, wide_b = rng() % 2 == 0;
    Array a = Array::uninitialized(wide_a ? Shape{batch, m, k} : Shape{m, k});
    Array b = Array::uninitialized(wide_b ? Shape{batch, k, n} : Shape{k, n});
    for (Array* x : {&a, &b})
      for (std::int64_t i = 0; i < x->count(); ++i) x->data()[i] = static_cast<double>(rng() % 3) - 1;
    const Shape result = wide_a || wide_b ? Shape{batch, m, n} : Shape{m, n};
    std::vector<std::vector<double>> operands;  // Of every element of the result: its row, then its column.
    for (std::int64_t e = 0; e < count(result); ++e) {
      std::vector<double> both;
      const std::int64_t j = e % n, i = e / n % m, at = e / n / m;
      for (std::int64_t l = 0; l < k; ++l) both.push_back(a.data()[((wide_a ? at : 0) * m + i) * k + l]);
      const auto nonzero = [](double x) { return x != 0; };
      bool zero = std::ranges::none_of(both, nonzero);
      for (std::int64_t l = 0; l < k; ++l) both.push_back(b.data()[((wide_b ? at : 0) * k + l) * n + j]);
      zero = zero || std::none_of(both.begin() + k, both.end(), nonzero);
      if (!zero) operands.push_back(both);
    }
    std::ranges::sort(operands);
    const bool repeated = std::ranges::adjacent_find(operands) != operands.end();
    const bool told = distinct_operands({a, b}, result);
    EXPECT_FALSE(told && repeated) << round;
    distinct += told ? 1 : 0;
  }
  EXPECT_GT(distinct, 40);
}

}  // namespace
}  // namespace plumbline
