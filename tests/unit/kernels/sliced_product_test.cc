// Sliced products on a device against exact ones, element by element: each keeps the promise of the native product, in
// every layout and whatever the operands hold.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/ball/sliced.h"
#include "kernels/operations.h"
#include "tests/unit/kernels/cases.h"
#include "tests/unit/kernels/cuda_fixture.h"
#include "tests/unit/kernels/exact_sum.h"

namespace plumbline {
namespace {

using testing::ExactSum;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kPiece = sliced::kTermsMax;

class CudaSliced : public testing::OnDevice {
 protected:
  void SetUp() override { open(1); }

  Array product(const Array& left, const Array& right) {
    Shape shape = left.shape();
    shape.back() = right.shape().back();
    const std::vector<Array> in = {left, right};
    const DeviceScope scope(*device_, *memory_);
    return traits(Primitive::kMatmul).evaluate({}, shape, in).materialize();
  }
  // start + left right, summed over a leading dimension that `start` has not: as adjoints are.
  Array added(const Array& start, const Array& left, const Array& right) {
    const std::vector<Array> in = {start, transposed(right)};
    const DeviceScope scope(*device_, *memory_);
    Array sum = start.materialize();
    const std::vector<Array*> into = {&sum, nullptr};
    traits(Primitive::kMatmul).pull_back({}, in, left, left, into);
    return sum.materialize();
  }
  static Array transposed(const Array& x) {
    View view{x.shape(), x.strides(), 0};
    std::swap(view.sizes.end()[-1], view.sizes.end()[-2]);
    std::swap(view.strides.end()[-1], view.strides.end()[-2]);
    return x.restride(view);
  }
};

// What the numbers of an operand are like.
enum class Kind { kUsual, kPositive, kWide, kSparse, kTiny, kHuge, kStrange };
constexpr Kind kKinds[] = {Kind::kUsual, Kind::kPositive, Kind::kWide,   Kind::kSparse,
                           Kind::kTiny,  Kind::kHuge,     Kind::kStrange};

Array drawn(std::mt19937_64& rng, const Shape& shape, Kind kind) {
  Array x = testing::random_array(rng, shape, kind == Kind::kPositive ? 0.5 : -1, 1);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    double& value = x.data()[i];
    if (kind == Kind::kWide) value *= std::ldexp(1.0, -static_cast<int>(rng() % 60));
    if (kind == Kind::kSparse && (rng() % 4 != 0 || (i / shape.back()) % 5 == 0)) value = 0;
    if (kind == Kind::kTiny) value *= 0x1p-530 * std::ldexp(1.0, static_cast<int>(rng() % 8));
    if (kind == Kind::kHuge) value *= 0x1p510;
    if (kind != Kind::kStrange || rng() % 200 != 0) continue;
    const double strange[] = {kInf, -kInf, std::nan(""), 0x1p1023, 0x1p-1074, -0.0};
    value = strange[rng() % std::size(strange)];
  }
  return x;
}

// left [p, m, t], right [p, t, n], found [p, m, n] or, summed over p, [m, n]; start: empty, or what was added to.
void expect_kept(const Array& left, const Array& right, const Array& start, const Array& found) {
  const std::int64_t p = left.shape()[0], m = left.shape()[1], t = left.shape()[2], n = right.shape()[2];
  const Array a = left.materialize(), b = right.materialize();
  const double *const x = a.data(), *const y = b.data();
  const std::int64_t together = found.shape().size() == 2 ? p : 1;
  const std::int64_t pieces = together * ((t + kPiece - 1) / kPiece);
  const auto terms = static_cast<long double>(std::min(kPiece, together * t));
  const long double additions = static_cast<long double>(pieces - 1 + (start ? 1 : 0));
  for (std::int64_t e = 0; e < found.count(); ++e) {
    const std::int64_t first = together == 1 ? e / (m * n) : 0, i = e / n % m, j = e % n;
    ExactSum sum, magnitude;
    double naive = start ? start.data()[e] : 0;
    bool finite = true;
    for (std::int64_t q = first; q < first + together; ++q)
      for (std::int64_t k = 0; k < t; ++k) {
        const double l = x[(q * m + i) * t + k], r = y[(q * t + k) * n + j];
        naive = std::fma(l, r, naive);
        finite = finite && std::isfinite(l) && std::isfinite(r);
        if (!finite) continue;
        sum.add(l, r);
        magnitude.add(std::fabs(l), std::fabs(r));
      }
    const double got = found.data()[e];
    if (!finite) {
      ASSERT_TRUE(got == naive || (std::isnan(got) && std::isnan(naive))) << e << ": " << got << " for " << naive;
      continue;
    }
    const long double of_terms = magnitude.value();
    const long double all = of_terms + (start ? std::fabs(start.data()[e]) : 0);
    if (!std::isfinite(got)) {  // Some order of the additions overflows.
      ASSERT_GE(all, std::numeric_limits<double>::max()) << e;
      continue;
    }
    if (start) sum.add(start.data()[e], 1);
    sum.subtract(got);
    const long double bound = sliced::kUnitRoundoff * (terms * of_terms + additions * all) * (1 + 0x1p-40L) +
                              static_cast<long double>(t) * 0x1p-1074L;
    ASSERT_LE(std::fabs(sum.value()), bound) << "element " << e << " of " << m << " x " << n << ", " << t << " terms";
  }
}

TEST_F(CudaSliced, KeepsThePromiseInEverySizeAndLayout) {
  std::mt19937_64 rng(41);
  int layout = 0;
  for (const auto& [p, m, n, t] : {std::array<std::int64_t, 4>{1, 32, 32, 32},
                                   {1, 33, 47, 64},
                                   {3, 40, 65, 100},
                                   {1, 32, 35, 511},
                                   {2, 37, 32, 512},
                                   {1, 50, 33, 513},
                                   {1, 34, 40, 1024},
                                   {2, 35, 36, 1100}})
    for (const Kind kind : kKinds) {
      SCOPED_TRACE(static_cast<int>(kind));
      const bool first = layout % 2 != 0, second = layout / 2 % 2 != 0;
      ++layout;
      const Array left = first ? transposed(drawn(rng, {p, t, m}, kind)) : drawn(rng, {p, m, t}, kind);
      const Array right = second ? transposed(drawn(rng, {p, n, t}, kind)) : drawn(rng, {p, t, n}, kind);
      expect_kept(left, right, {}, product(left, right));
      const Array start = drawn(rng, {m, n}, Kind::kUsual);
      expect_kept(left, right, start, added(start, left, right));
    }
  EXPECT_FALSE(device_->take_error().has_value());
}

TEST_F(CudaSliced, KeepsThePromiseOfUnlikeOperands) {
  std::mt19937_64 rng(42);
  for (const Kind of_left : kKinds)
    for (const Kind of_right : kKinds) {
      SCOPED_TRACE(static_cast<int>(of_left) * 10 + static_cast<int>(of_right));
      const Array left = drawn(rng, {1, 40, 70}, of_left), right = drawn(rng, {1, 70, 33}, of_right);
      expect_kept(left, right, {}, product(left, right));
    }
}

TEST_F(CudaSliced, KeepsThePromiseOfRepeatedOperands) {
  std::mt19937_64 rng(43);
  const Array left = drawn(rng, {4, 40, 90}, Kind::kUsual), right = drawn(rng, {90, 34}, Kind::kUsual);
  const Array repeated = right.restride({{4, 90, 34}, {0, 34, 1}, 0});
  expect_kept(left, repeated, {}, product(left, repeated));
  const Array transposed_rows = transposed(drawn(rng, {4, 90, 40}, Kind::kWide));  // No rows of one longer product.
  expect_kept(transposed_rows, repeated, {}, product(transposed_rows, repeated));
  const Array of_left = drawn(rng, {40, 90}, Kind::kUsual).restride({{4, 40, 90}, {0, 90, 1}, 0});
  const Array others = drawn(rng, {4, 90, 34}, Kind::kWide);
  expect_kept(of_left, others, {}, product(of_left, others));
}

// Positive terms have no cancellation: what is left is the rounding of the result, at most one unit roundoff, where a
// sum in fp64 has as many roundings as terms.
TEST_F(CudaSliced, RoundsOnce) {
  std::mt19937_64 rng(44);
  const Array left = drawn(rng, {1, 48, 512}, Kind::kPositive), right = drawn(rng, {1, 512, 64}, Kind::kPositive);
  const auto largest_error = [&] {
    const Array found = product(left, right);
    long double largest = 0;
    for (std::int64_t e = 0; e < found.count(); ++e) {
      ExactSum sum;
      for (std::int64_t k = 0; k < 512; ++k) sum.add(left.data()[e / 64 * 512 + k], right.data()[k * 64 + e % 64]);
      sum.subtract(found.data()[e]);
      largest = std::max(largest, std::fabs(sum.value()) / (sliced::kUnitRoundoff * found.data()[e]));
    }
    return largest;
  };
  EXPECT_LE(largest_error(), 1.1L);
  memory_.reset();
  open(0);
  EXPECT_GT(largest_error(), 1.1L) << "the native product rounds as rarely, and nothing was tested";
}

// More rows, columns and products than are worked out at a time.
TEST_F(CudaSliced, KeepsThePromiseInParts) {
  std::mt19937_64 rng(45);
  const auto expect_some_kept = [&](const Array& left, const Array& right) {
    const Array found = product(left, right);
    const std::int64_t m = left.shape()[1], t = left.shape()[2], n = right.shape()[2];
    for (std::int64_t i = 0; i < found.count(); i += i % 2 == 0 ? 1013 : 4999) {
      const std::int64_t p = i / (m * n), row = i / n % m, column = i % n;
      const auto line = [&](const Array& x, std::int64_t first, std::int64_t step, const Shape& shape) {
        return x.restride({shape, {0, step, step}, first}).materialize();
      };
      expect_kept(line(left, (p * m + row) * t, 1, {1, 1, t}), line(right, p * t * n + column, n, {1, t, 1}), {},
                  found.restride({{1, 1, 1}, {1, 1, 1}, i}).materialize());
    }
  };
  expect_some_kept(drawn(rng, {1, 480, 32}, Kind::kUsual), drawn(rng, {1, 32, 4103}, Kind::kUsual));
  expect_some_kept(drawn(rng, {1300, 32, 32}, Kind::kUsual), drawn(rng, {1300, 32, 32}, Kind::kUsual));
}

}  // namespace
}  // namespace plumbline
