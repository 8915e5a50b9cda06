// evaluate against straightforward oracles, with the values that comparators usually get wrong.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/cpu/copy.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"
#include "tests/unit/kernels/cases.h"

namespace plumbline {
namespace {

using testing::array_of;
using enum Primitive;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

// The flat element at a multi-index, broadcast.
double at(const Array& array, const Shape& full, std::int64_t flat) {
  const std::size_t lead = full.size() - array.shape().size();
  std::int64_t offset = 0;
  for (std::size_t d = full.size(); d-- > 0;) {
    const std::int64_t i = flat % full[d];
    flat /= full[d];
    if (d >= lead && array.shape()[d - lead] != 1) offset += i * array.strides()[d - lead];
  }
  return array.data()[offset];
}

Array run(Primitive p, const Shape& shape, const std::vector<Array>& in, const Attributes& a = {}) {
  return traits(p).evaluate(a, shape, in).materialize();
}

TEST(Evaluate, ElementwiseMatchesTheMathLibrary) {
  struct Row {
    Primitive p;
    double (*f)(double);
  };
  const double values[] = {-kInf, -3.5, -1, -0.5, -0.0, 0.0, 1e-310, 0.5, 1, 2.5, 3.5, 700, kInf, kNaN};
  const std::vector<double> list(std::begin(values), std::end(values));
  const Array x = array_of({14}, list);
  for (const Row& row : {Row{kNeg, [](double v) { return -v; }},
                         Row{kAbs, [](double v) { return std::fabs(v); }},
                         Row{kExp, [](double v) { return std::exp(v); }},
                         Row{kExpm1, [](double v) { return std::expm1(v); }},
                         Row{kLog, [](double v) { return std::log(v); }},
                         Row{kLog1p, [](double v) { return std::log1p(v); }},
                         Row{kSqrt, [](double v) { return std::sqrt(v); }},
                         Row{kRsqrt, [](double v) { return 1 / std::sqrt(v); }},
                         Row{kReciprocal, [](double v) { return 1 / v; }},
                         Row{kSin, [](double v) { return std::sin(v); }},
                         Row{kCos, [](double v) { return std::cos(v); }},
                         Row{kTanh, [](double v) { return std::tanh(v); }},
                         Row{kErf, [](double v) { return std::erf(v); }},
                         Row{kSigmoid, [](double v) { return v < -700 ? 0 : 1 / (1 + std::exp(-v)); }},
                         Row{kFloor, [](double v) { return std::floor(v); }},
                         Row{kCeil, [](double v) { return std::ceil(v); }},
                         Row{kRound, [](double v) { return std::nearbyint(v); }},
                         Row{kTrunc, [](double v) { return std::trunc(v); }},
                         Row{kIsFinite, [](double v) { return std::isfinite(v) ? 1.0 : 0.0; }},
                         Row{kLogicalNot, [](double v) { return v == 0 ? 1.0 : 0.0; }},
                         Row{kCast, [](double v) { return v; }}}) {
    const Array out = run(row.p, {14}, {x});
    for (std::size_t i = 0; i < list.size(); ++i) {
      const double expected = row.f(list[i]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(out.data()[i])) << traits(row.p).name << " " << list[i];
      } else if (std::isinf(expected) || expected == 0) {
        EXPECT_EQ(out.data()[i], expected) << traits(row.p).name << " " << list[i];
        EXPECT_EQ(std::signbit(out.data()[i]), std::signbit(expected)) << traits(row.p).name;
      } else {
        // One ulp, and one quantum among the subnormals.
        EXPECT_NEAR(out.data()[i], expected, 4e-16 * std::fabs(expected) + 5e-324)
            << traits(row.p).name << " " << list[i];
      }
    }
  }
}

TEST(Evaluate, ComparisonsAndExtremesTreatSpecialValuesAsIeee) {
  const std::vector<double> v = {-kInf, -1, -0.0, 0.0, 5e-324, 1, kInf, kNaN};
  std::vector<double> left, right;
  for (const double a : v) {
    for (const double b : v) {
      left.push_back(a);
      right.push_back(b);
    }
  }
  const std::vector<Array> in = {array_of({64}, left), array_of({64}, right)};
  const auto check = [&](Primitive p, auto expected) {
    const Array out = run(p, {64}, in);
    for (int i = 0; i < 64; ++i) {
      const double e = expected(left[i], right[i]), o = out.data()[i];
      EXPECT_TRUE(e == o || (std::isnan(e) && std::isnan(o))) << traits(p).name << " " << left[i] << " " << right[i];
    }
  };
  check(kLess, [](double a, double b) { return a < b ? 1.0 : 0.0; });
  check(kLessEqual, [](double a, double b) { return a <= b ? 1.0 : 0.0; });
  check(kGreater, [](double a, double b) { return a > b ? 1.0 : 0.0; });
  check(kGreaterEqual, [](double a, double b) { return a >= b ? 1.0 : 0.0; });
  check(kEqual, [](double a, double b) { return a == b ? 1.0 : 0.0; });
  check(kNotEqual, [](double a, double b) { return a != b ? 1.0 : 0.0; });
  check(kLogicalAnd, [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; });
  check(kLogicalOr, [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; });
  const auto any_nan = [](double a, double b) { return std::isnan(a) || std::isnan(b); };
  check(kMax, [&](double a, double b) { return any_nan(a, b) ? kNaN : std::fmax(a, b); });
  check(kMin, [&](double a, double b) { return any_nan(a, b) ? kNaN : std::fmin(a, b); });
  check(kAdd, [](double a, double b) { return a + b; });
  check(kSub, [](double a, double b) { return a - b; });
  check(kMul, [](double a, double b) { return a * b; });
  check(kDiv, [](double a, double b) { return a / b; });
  check(kPow, [](double a, double b) { return std::pow(a, b); });
  check(kAtan2, [](double a, double b) { return std::atan2(a, b); });
  check(kFmod, [](double a, double b) { return std::fmod(a, b); });
}

TEST(Evaluate, SelectTakesNaNConditionsAsTrueAndNeverMixesSides) {
  const Array out =
      run(kSelect, {4}, {array_of({4}, {1, 0, kNaN, -0.0}), Array::scalar(7), array_of({4}, {kNaN, 1, kNaN, 2})});
  EXPECT_EQ(out.data()[0], 7);
  EXPECT_EQ(out.data()[1], 1);
  EXPECT_EQ(out.data()[2], 7);
  EXPECT_EQ(out.data()[3], 2);
}

// Every binary case (broadcasts, expanded and strided operands) against element-by-element indexing.
TEST(Evaluate, BroadcastsByIndex) {
  for (const testing::Case& c : testing::cases(9)) {
    if (c.primitive != kSub) continue;
    const Array out = run(kSub, c.shape, c.inputs);
    for (std::int64_t i = 0; i < out.count(); ++i) {
      ASSERT_EQ(out.data()[i], at(c.inputs[0], c.shape, i) - at(c.inputs[1], c.shape, i)) << c.name;
    }
  }
}

TEST(Evaluate, ReductionsMatchLoops) {
  std::mt19937_64 rng(3);
  const Shape shape = {3, 4, 50, 7};
  const Array x = testing::random_array(rng, shape, -1, 1);
  for (const std::vector<std::int64_t>& dims :
       {std::vector<std::int64_t>{3}, {2}, {0}, {1, 2}, {0, 3}, {0, 1, 2, 3}, {2, 3}, {0, 1}}) {
    Attributes a;
    a.dims = dims;
    Shape kept = shape;
    for (const std::int64_t d : dims) kept[d] = 1;
    std::vector<long double> sum(count(kept), 0.0L), squares(count(kept), 0.0L);
    std::vector<double> top(count(kept), -kInf), bottom(count(kept), kInf);
    const Shape strides = row_major_strides(kept);
    for (std::int64_t i = 0; i < x.count(); ++i) {
      std::int64_t rest = i, to = 0;
      for (std::size_t d = 4; d-- > 0;) {
        if (kept[d] != 1) to += rest % shape[d] * strides[d];
        rest /= shape[d];
      }
      sum[to] += x.data()[i];
      squares[to] += static_cast<long double>(x.data()[i]) * x.data()[i];
      top[to] = std::max(top[to], x.data()[i]);
      bottom[to] = std::min(bottom[to], x.data()[i]);
    }
    const Array s = run(kSum, kept, {x}, a), n = run(kNorm, kept, {x}, a);
    const Array max = run(kAmax, kept, {x}, a), min = run(kAmin, kept, {x}, a);
    a.scalar = 0.25;
    const Array r = run(kVarianceRsqrt, kept, {x}, a);
    const auto terms = static_cast<long double>(x.count() / s.count());
    for (std::int64_t i = 0; i < s.count(); ++i) {
      ASSERT_NEAR(s.data()[i], static_cast<double>(sum[i]), 1e-11);
      ASSERT_NEAR(n.data()[i], std::sqrt(static_cast<double>(squares[i])), 1e-12);
      ASSERT_EQ(max.data()[i], top[i]);
      ASSERT_EQ(min.data()[i], bottom[i]);
      const long double mean = sum[i] / terms;
      ASSERT_NEAR(r.data()[i], static_cast<double>(1 / std::sqrt(squares[i] / terms - mean * mean + 0.25L)), 1e-12);
    }
  }
}

TEST(Evaluate, LargeReductionsSplitWithoutLoss) {
  const std::int64_t n = 300001;
  Array x = Array::uninitialized({n});
  for (std::int64_t i = 0; i < n; ++i) x.data()[i] = static_cast<double>(i % 1000) - 500;
  long double expected = 0;
  for (std::int64_t i = 0; i < n; ++i) expected += x.data()[i];
  Attributes a;
  a.dims = {0};
  EXPECT_EQ(run(kSum, {1}, {x}, a).item(), static_cast<double>(expected));
  Array wide = x.reshape({n, 1}).expand({n, 3});
  EXPECT_EQ(run(kSum, {1, 3}, {wide}, a).data()[2], static_cast<double>(expected));
  x.data()[n / 2] = kNaN;
  EXPECT_TRUE(std::isnan(run(kAmax, {1}, {x}, a).item()));
  EXPECT_TRUE(std::isnan(run(kSum, {1}, {x}, a).item()));
  EXPECT_EQ(run(kArgmax, {1}, {x}, a).item(), static_cast<double>(n / 2));
}

TEST(Evaluate, ExtremesOfInfinitiesAndEmptyReductions) {
  Attributes a;
  a.dims = {1};
  EXPECT_EQ(run(kAmax, {1, 1}, {array_of({1, 3}, {-kInf, -kInf, -kInf})}, a).item(), -kInf);
  EXPECT_EQ(run(kArgmax, {1, 1}, {array_of({1, 3}, {2, 5, 5})}, a).item(), 1);
  a.size = 4;
  const Array order = run(kArgsort, {1, 4}, {array_of({1, 5}, {2, kInf, 5, kNaN, 5})}, a);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(order.data()[i], (std::array{3, 1, 2, 4})[static_cast<std::size_t>(i)]);
  EXPECT_EQ(run(kSum, {2, 1}, {Array::zeros({2, 0})}, a).data()[1], 0);
  EXPECT_EQ(run(kSum, {0, 1}, {Array::zeros({0, 4})}, a).count(), 0);
  EXPECT_EQ(run(kSoftmax, {0, 4}, {Array::zeros({0, 4})}).count(), 0);
}

TEST(Evaluate, SoftmaxOfExtremeRows) {
  const Array p = run(kSoftmax, {2, 3}, {array_of({2, 3}, {1e308, 1e308, -kInf, 0, -800, kNaN})});
  EXPECT_DOUBLE_EQ(p.data()[0], 0.5);
  EXPECT_EQ(p.data()[2], 0);
  EXPECT_TRUE(std::isnan(p.data()[3]));
  const Array l = run(kLogSoftmax, {1, 2}, {array_of({1, 2}, {1000, 0})});
  EXPECT_EQ(l.data()[0], 0);
  EXPECT_EQ(l.data()[1], -1000);
}

// The error bound of our own products rests on it: 32 ones each added to 2^53 would all be lost.
TEST(Evaluate, MatmulSumsBlocksApart) {
  constexpr std::int64_t kBlock = cpu::kSumBlock, kBlocks = 5;
  for (const auto& [m, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 1}, {1, 40}, {17, 23}, {64, 64}}) {
    Array a = Array::full({m, kBlocks * kBlock}, 1), b = Array::full({kBlocks * kBlock, n}, 1);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t p = 0; p < kBlock; ++p) a.data()[i * kBlocks * kBlock + p] = p == 0 ? 0x1p53 : 0;
    const Array c = run(kMatmul, {m, n}, {a, b});
    for (std::int64_t i = 0; i < c.count(); ++i) EXPECT_EQ(c.data()[i] - 0x1p53, (kBlocks - 1) * kBlock);
  }
}

TEST(Evaluate, MatmulMatchesLoopsOnEveryLayout) {
  std::mt19937_64 rng(8);
  const auto check = [](const Array& a, const Array& b) {
    const std::size_t da = a.shape().size(), db = b.shape().size();
    const std::int64_t m = a.shape()[da - 2], k = a.shape()[da - 1], n = b.shape()[db - 1];
    Shape lead =
        broadcast(Shape(a.shape().begin(), a.shape().end() - 2), Shape(b.shape().begin(), b.shape().end() - 2));
    Shape sa = lead, sb = lead, sc = lead;
    sa.insert(sa.end(), {m, k});
    sb.insert(sb.end(), {k, n});
    sc.insert(sc.end(), {m, n});
    const Array x = a.expand(sa).materialize(), y = b.expand(sb).materialize();
    const Array c = run(kMatmul, sc, {a, b});
    for (std::int64_t batch = 0; batch < count(lead); ++batch) {
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          long double total = 0;
          for (std::int64_t l = 0; l < k; ++l) {
            total += static_cast<long double>(x.data()[(batch * m + i) * k + l]) * y.data()[(batch * k + l) * n + j];
          }
          ASSERT_NEAR(c.data()[(batch * m + i) * n + j], static_cast<double>(total),
                      1e-12 * static_cast<double>(k + 1));
        }
      }
    }
  };
  const auto r = [&](const Shape& shape) { return testing::random_array(rng, shape, -1, 1); };
  for (const testing::Case& c : testing::cases(4)) {
    if (c.primitive == kMatmul) check(c.inputs[0], c.inputs[1]);
  }
  check(r({150, 90}), r({90, 130}));  // Large enough to be cut among threads.
  check(r({90, 150}).restride({{150, 90}, {1, 150}, 0}), r({130, 90}).restride({{90, 130}, {1, 90}, 0}));
  check(r({64, 6, 5}), r({64, 5, 7}));
  check(r({8, 30, 20}), r({20, 40}));
  check(r({1, 5}), r({5, 1}));
  check(r({5, 1}), r({1, 5}));
  const auto transposed = [&](const Shape& shape) { return cpu::transpose_last_two(r(shape)); };
  for (const std::int64_t k : {1, 33, 70}) {  // By vectors, which are no products of the library.
    check(r({1, k}), r({k, 150}));
    check(r({1, k}), transposed({150, k}));
    check(r({150, k}), r({k, 1}));
    check(transposed({k, 150}), r({k, 1}));
    check(r({1, 2 * k}).restride({{1, k}, {k, 2}, 0}), transposed({150, k}));
    check(r({40, 1, k}), r({40, k, 36}));
    check(r({40, k, 1}), r({40, 1, 36}));
    check(r({40, 1, k}), transposed({40, 9, k}));
  }
  check(r({3, 0}), r({0, 4}));
  check(r({4, 1, 6}).expand({4, 3, 6}), r({6, 2}));
  check(r({40, 12}).restride({{10, 6}, {48, 2}, 1}), r({6, 3}));
}

// Large products near 1 alone are rounded, on every layout, and by no more than their terms allow.
TEST(Evaluate, MatmulInSinglePrecisionStaysWithinItsRoundings) {
  const auto draw = [](Shape shape, double scale) {
    Array x = Array::uninitialized(std::move(shape));
    for (std::int64_t i = 0; i < x.count(); ++i) x.data()[i] = scale * std::sin(static_cast<double>(i * i % 1009));
    return x;
  };
  for (const double scale : {1.0, 1e-60, 1e60})
    for (const bool accumulate : {false, true})
      for (const bool transposed : {false, true}) {
        const Array a = transposed ? cpu::transpose_last_two(draw({3, 128, 300}, scale)) : draw({3, 300, 128}, scale);
        const Array b = draw({128, 96}, 1);
        Array expected = draw({3, 300, 96}, scale), found = draw({3, 300, 96}, scale);
        cpu::matmul(a, b, expected, accumulate);
        {
          const cpu::SinglePrecision enough(true);
          cpu::matmul(a, b, found, accumulate);
        }
        double largest = 0;
        for (std::int64_t i = 0; i < found.count(); ++i)
          largest = std::fmax(largest, std::fabs(found.data()[i] - expected.data()[i]));
        EXPECT_LE(largest, 130 * 128 * 0x1p-24 * scale);
        EXPECT_EQ(largest > 0, scale == 1) << "scale " << scale;
      }
}

TEST(Evaluate, GatherAndScatterIgnoreIndicesThatNameNoRow) {
  const Array table = array_of({2, 2}, {1, 2, 3, 4});
  const Array g = run(kGatherRows, {3, 2}, {table, array_of({3}, {1, 7, kNaN})});
  EXPECT_EQ(g.data()[1], 4);
  EXPECT_TRUE(std::isnan(g.data()[2]));
  EXPECT_TRUE(std::isnan(g.data()[4]));
  Attributes a;
  a.size = 2;
  const Array s =
      run(kScatterAdd, {2, 2}, {array_of({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), array_of({4}, {1, -1, 9, 1})}, a);
  EXPECT_EQ(s.data()[0], 0);
  EXPECT_EQ(s.data()[2], 8);
  EXPECT_EQ(s.data()[3], 10);
}

TEST(Evaluate, RowsAreGatheredFromAStridedTableAsFromItsCopy) {
  std::mt19937 rng(5);
  std::uniform_real_distribution<double> value(-1, 1);
  for (const std::int64_t length : {1, 2, 511, 512, 513, 1600}) {
    Array columns = Array::uninitialized({length, 9});
    for (std::int64_t i = 0; i < columns.count(); ++i) columns.data()[i] = value(rng);
    const Array table = columns.window({{9, length}, {1, 9}, 0});
    const Array rows = run(kGatherRows, {11, length}, {table, array_of({11}, {8, 7, 6, 5, 4, 3, 2, 1, 0, 9, 3})});
    for (std::int64_t i = 0; i < 11; ++i)
      for (std::int64_t j = 0; j < length; ++j) {
        const double found = rows.data()[i * length + j];
        if (i == 9)
          ASSERT_TRUE(std::isnan(found)) << length << ": " << j;
        else
          ASSERT_EQ(found, columns.data()[j * 9 + (i == 10 ? 3 : 8 - i)]) << length << ": " << i << " " << j;
      }
  }
}

TEST(Evaluate, TransposedCopiesAndSumsAreThoseOfEachElement) {
  std::mt19937 rng(6);
  std::uniform_real_distribution<double> value(-1, 1);
  for (const std::int64_t rows : {1, 3, 4, 9, 66})
    for (const std::int64_t columns : {1, 7, 8, 21, 80}) {
      Array source = Array::uninitialized({columns, rows}), copied = Array::uninitialized({rows, columns});
      for (std::int64_t i = 0; i < source.count(); ++i) source.data()[i] = value(rng);
      const Array turned = source.window({{rows, columns}, {1, rows}, 0});
      const View whole{{rows, columns}, {columns, 1}, 0};
      cpu::copy(copied.data(), whole, turned);
      Array twice = Array::uninitialized({rows, columns});
      std::copy_n(copied.data(), copied.count(), twice.data());
      cpu::add(twice.data(), whole, turned);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c) {
          ASSERT_EQ(copied.data()[r * columns + c], source.data()[c * rows + r]) << rows << " " << columns;
          ASSERT_EQ(twice.data()[r * columns + c], 2 * source.data()[c * rows + r]) << rows << " " << columns;
        }
    }
}

TEST(Evaluate, WindowsOfContiguousArraysAreNotCopied) {
  const Array x = Array::full({4, 4}, 1);
  Attributes a;
  a.view = {{2, 2}, {4, 1}, 5};
  const std::vector<Array> in = {x};
  EXPECT_EQ(traits(kWindow).evaluate(a, {2, 2}, in).data(), x.data() + 5);
  EXPECT_EQ(x.reshape({16}).data(), x.data());
  EXPECT_NE(x.restride({{4, 4}, {1, 4}, 0}).reshape({16}).data(), x.data());
}

TEST(Evaluate, AssembleLaterPiecesWin) {
  Attributes a;
  a.size = 4;
  a.views = {{{3}, {1}, 0}, {{2}, {1}, 2}};
  const Array out = run(kAssemble, {4}, {array_of({3}, {1, 2, 3}), array_of({2}, {8, 9})}, a);
  EXPECT_EQ(out.data()[1], 2);
  EXPECT_EQ(out.data()[2], 8);
  EXPECT_EQ(out.data()[3], 9);
}

TEST(Parallel, CoversTheRangeOnceAlsoFromManyThreads) {
  std::vector<std::thread> callers;
  std::vector<std::vector<int>> seen(4, std::vector<int>(100000, 0));
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, c] {
      std::optional<cpu::Computing> computing;
      if (c % 2 == 0) computing.emplace();
      for (int repeat = 0; repeat < 50; ++repeat) {
        cpu::parallel_for(100000, 100, [&](std::int64_t begin, std::int64_t end) {
          cpu::parallel_for(end - begin, 1, [&](std::int64_t b, std::int64_t e) {  // Nested: serial.
            for (std::int64_t i = b; i < e; ++i) ++seen[c][begin + i];
          });
        });
      }
    });
  }
  for (std::thread& t : callers) t.join();
  for (const auto& s : seen) {
    for (const int n : s) ASSERT_EQ(n, 50);
  }
  int calls = 0;
  cpu::parallel_for(0, 1, [&](std::int64_t, std::int64_t) { ++calls; });
  EXPECT_EQ(calls, 0);
}

TEST(Parallel, ShortLoopsAreWholeWhereAllProcessorsHaveAnAudit) {
  const auto pieces = [](std::int64_t n, std::int64_t grain) {
    std::atomic<std::int64_t> seen = 0, calls = 0;
    cpu::parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
      seen += end - begin;
      ++calls;
    });
    EXPECT_EQ(seen, n);
    return calls.load();
  };
  const bool several = cpu::threads() > 1;
  EXPECT_EQ(pieces(100, 10) > 1, several);
  std::vector<std::unique_ptr<cpu::Computing>> audits;
  for (int i = 0; i < cpu::threads(); ++i) audits.push_back(std::make_unique<cpu::Computing>());
  EXPECT_EQ(pieces(100, 10), 1);
  EXPECT_EQ(pieces(1000, 10) > 1, several);
  audits.pop_back();
  EXPECT_EQ(pieces(100, 10) > 1, several);
}

TEST(Parallel, ProcessorsAreThoseThatTheThreadWasGiven) {
  EXPECT_GE(cpu::processors(), 1);
  std::thread([] {
    const int here = sched_getcpu();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(cpu::processors(), 1);
  }).join();
}

}  // namespace
}  // namespace plumbline
