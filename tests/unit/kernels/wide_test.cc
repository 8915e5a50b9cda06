// The wide evaluation of every primitive against the fp64 registry, and what comparators usually get wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/wide/compare.h"
#include "kernels/wide/evaluate.h"
#include "kernels/wide/integers.h"
#include "tests/unit/kernels/cases.h"

namespace plumbline {
namespace {

using testing::array_of;
using enum Primitive;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<WideArray> wide_of(const std::vector<Array>& arrays) {
  std::vector<WideArray> result;
  for (const Array& x : arrays) result.push_back(WideArray::of(x));
  return result;
}

// The same elements, every other one of a larger buffer, the first dimension running fastest.
WideArray spread(const WideArray& x) {
  View view{x.shape(), x.shape(), 1};
  std::int64_t step = 2;
  for (std::size_t d = 0; d < view.sizes.size(); ++d) {
    view.strides[d] = step;
    step *= view.sizes[d];
  }
  WideArray buffer = WideArray::uninitialized({step + 1});
  std::fill_n(buffer.data(), buffer.count(), static_cast<Wide>(kNaN));
  const WideArray dense = x.materialize();
  for (std::int64_t i = 0; i < x.count(); ++i) {
    std::int64_t rest = i, at = 1;
    for (std::size_t d = view.sizes.size(); d-- > 0; rest /= view.sizes[d])
      at += rest % view.sizes[d] * view.strides[d];
    buffer.data()[at] = dense.data()[i];
  }
  return buffer.window(view);
}

std::vector<Wide> elements(const WideArray& x) {
  const WideArray dense = x.materialize();
  return {dense.data(), dense.data() + dense.count()};
}

WideArray run(Primitive p, const Shape& shape, const std::vector<WideArray>& in, const Attributes& a = {}) {
  return wide::evaluate(p, a, shape, in);
}

bool indices_or_outcomes(Primitive p) { return p == kArgmax || p == kArgsort || traits(p).bitwise; }

TEST(Wide, EveryPrimitiveAgreesWithFp64) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    for (const testing::Case& c : testing::cases(seed)) {
      if (c.primitive == kLeaf) continue;
      const Array narrow = traits(c.primitive).evaluate(c.attributes, c.shape, c.inputs).materialize();
      const WideArray result = wide::evaluate(c.primitive, c.attributes, c.shape, wide_of(c.inputs));
      ASSERT_EQ(result.shape(), c.shape) << c.name;
      const Array apart = wide::difference(result, narrow);
      for (std::int64_t i = 0; i < narrow.count(); ++i) {
        // Inputs are of size 1 and sums of some 40 terms.
        const double allowed = indices_or_outcomes(c.primitive) ? 0 : 0x1p-46 * (1 + std::fabs(narrow.data()[i]));
        ASSERT_LE(std::fabs(apart.data()[i]), allowed) << c.name << " element " << i;
      }
    }
  }
}

TEST(Wide, LayoutOfOperandsDoesNotMatter) {
  for (const testing::Case& c : testing::cases(7)) {
    if (c.primitive == kLeaf) continue;
    const std::vector<WideArray> dense = wide_of(c.inputs);
    std::vector<WideArray> strided;
    for (const WideArray& x : dense) strided.push_back(spread(x));
    EXPECT_EQ(elements(wide::evaluate(c.primitive, c.attributes, c.shape, dense)),
              elements(wide::evaluate(c.primitive, c.attributes, c.shape, strided)))
        << c.name;
  }
}

TEST(Wide, ElementwiseSpecialValuesAreThoseOfFp64) {
  const std::vector<double> values = {0.0,    -0.0,  1,      -1,  0.5,  -0.5, 1.5,  2.5,  -2.5, 3,     1e-310, -1e-310,
                                      5e-324, 1e307, -1e307, 700, -700, 1e5,  -1e5, 1e22, kInf, -kInf, kNaN};
  const auto n = static_cast<std::int64_t>(values.size());
  const Array column = array_of({n, 1}, values), row = array_of({n}, values);
  for (int k = static_cast<int>(kNeg); k <= static_cast<int>(kSelect); ++k) {
    const auto p = static_cast<Primitive>(k);
    std::vector<Array> in;
    for (int operand = 0; operand < traits(p).arity; ++operand) in.push_back(operand == 1 ? row : column);
    const Shape shape = traits(p).arity == 1 ? Shape{n, 1} : Shape{n, n};
    const Array narrow = traits(p).evaluate({}, shape, in).materialize();
    const WideArray result = wide::evaluate(p, {}, shape, wide_of(in)).materialize();
    for (std::int64_t i = 0; i < narrow.count(); ++i) {
      const double x = narrow.data()[i], first = values[static_cast<std::size_t>(shape[1] == 1 ? i : i / n)],
                   second = values[static_cast<std::size_t>(i % n)];
      const auto rounded = static_cast<double>(result.data()[i]);
      if (std::isnan(x) || std::isinf(x)) {
        // What overflows in fp64 alone does so when it is rounded.
        EXPECT_TRUE(std::isnan(x) ? std::isnan(rounded) : rounded == x)
            << traits(p).name << "(" << first << ", " << second << ") = " << rounded << ", in fp64 " << x;
      } else {
        EXPECT_LE(std::fabs(rounded - x), traits(p).bitwise ? 0 : 0x1p-48 * std::fabs(x) + 0x1p-1070)
            << traits(p).name << "(" << first << ", " << second << ")";
        if (x == 0 && rounded == 0) {
          EXPECT_EQ(std::signbit(x), std::signbit(rounded)) << traits(p).name << " " << first;
        }
      }
    }
  }
}

TEST(Wide, ReductionsKeepNaNsTiesAndEmptyLines) {
  const WideArray x = WideArray::of(array_of({4, 3}, {1, 3, 3, -kInf, -kInf, -kInf, 2, kNaN, 5, -0.0, 0.0, -0.0}));
  Attributes last;
  last.dims = {1};
  const auto of = [&](Primitive p) { return elements(run(p, {4, 1}, {x}, last)); };
  EXPECT_EQ(of(kArgmax), (std::vector<Wide>{1, 0, 1, 0}));
  const std::vector<Wide> most = of(kAmax);
  EXPECT_EQ(most[0], 3);
  EXPECT_EQ(most[1], static_cast<Wide>(-kInf));
  EXPECT_NE(most[2], most[2]);
  EXPECT_NE(of(kAmin)[2], of(kAmin)[2]);
  EXPECT_NE(of(kSum)[2], of(kSum)[2]);
  last.size = 3;
  EXPECT_EQ(elements(run(kArgsort, {4, 3}, {x}, last)), (std::vector<Wide>{1, 2, 0, 0, 1, 2, 1, 2, 0, 0, 1, 2}));
  const WideArray none = WideArray::uninitialized({2, 0});
  EXPECT_EQ(elements(run(kSum, {2, 1}, {none}, last)), (std::vector<Wide>{0, 0}));
  EXPECT_EQ(elements(run(kArgmax, {2, 1}, {none}, last)), (std::vector<Wide>{-1, -1}));
  EXPECT_EQ(elements(run(kSoftmax, {2, 0}, {none})).size(), 0U);
}

TEST(Wide, SumsDoNotDependOnTheOrderOfBlocks) {
  const std::int64_t n = 100000;
  WideArray x = WideArray::uninitialized({n});
  for (std::int64_t i = 0; i < n; ++i) x.data()[i] = i % 2 == 0 ? Wide(1e15) + i : -(Wide(1e15) + i) + Wide(0x1p-60);
  Attributes all;
  all.dims = {0};
  EXPECT_EQ(run(kSum, {1}, {x}, all).data()[0], Wide(n / 2) * (Wide(0x1p-60) - 1));
}

TEST(Wide, GatherOutsideOfTheTableIsNaNAndScatterDropsIt) {
  const WideArray table = WideArray::of(array_of({2, 2}, {1, 2, 3, 4})),
                  index = WideArray::of(array_of({3}, {1, -1, 2}));
  const std::vector<Wide> rows = elements(run(kGatherRows, {3, 2}, {table, index}));
  EXPECT_EQ(rows[1], 4);
  EXPECT_NE(rows[2], rows[2]);
  EXPECT_NE(rows[5], rows[5]);
  const WideArray source = WideArray::of(array_of({3, 2}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(elements(run(kScatterAdd, {2, 2}, {source, index})), (std::vector<Wide>{0, 0, 1, 2}));
}

// Plain loops.
WideArray plain_product(const WideArray& a, const WideArray& b) {
  const std::int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
  WideArray out = WideArray::uninitialized({m, n});
  for (std::int64_t i = 0; i < m * n; ++i) {
    Wide total = 0;
    for (std::int64_t l = 0; l < k; ++l) total += a.data()[i / n * k + l] * b.data()[l * n + i % n];
    out.data()[i] = total;
  }
  return out;
}

WideArray random_wide(std::mt19937_64& rng, const Shape& shape, int exponents) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::uniform_int_distribution<int> exponent(-exponents, exponents);
  WideArray x = WideArray::uninitialized(shape);
  for (std::int64_t i = 0; i < x.count(); ++i)
    x.data()[i] = scalbnf128(Wide(uniform(rng)) + Wide(uniform(rng)) * Wide(0x1p-60), exponent(rng));
  return x;
}

TEST(Wide, ProductsHoldAHundredBitsAtAnyExponent) {
  std::mt19937_64 rng(3);
  for (const int exponents : {0, 255, 600, 3000}) {
    for (const std::int64_t k : {1, 40, 300}) {
      const WideArray a = random_wide(rng, {19, k}, exponents), b = random_wide(rng, {k, 35}, exponents);
      const WideArray got = run(kMatmul, {19, 35}, {a, b}), plain = plain_product(a, b);
      const WideArray scale = plain_product(run(kAbs, a.shape(), {a}), run(kAbs, b.shape(), {b}));
      for (std::int64_t i = 0; i < got.count(); ++i) {
        const Wide error = fabsf128(got.data()[i] - plain.data()[i]);
        ASSERT_LE(error, scale.data()[i] * Wide(0x1p-100)) << exponents << " " << k << " element " << i;
      }
    }
  }
}

TEST(Wide, ProductsOfWhatIsNotFinite) {
  WideArray a = WideArray::of(array_of({3, 2}, {kInf, 1, kNaN, 1, 0, 2})),
            b = WideArray::of(array_of({2, 3}, {1, 0, -2, 3, 4, kInf}));
  const std::vector<Wide> got = elements(run(kMatmul, {3, 3}, {a, b}));
  const std::vector<double> wanted = {kInf, kNaN, kNaN, kNaN, kNaN, kNaN, 6, 8, kInf};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto x = static_cast<double>(got[i]);
    EXPECT_TRUE(std::isnan(wanted[i]) ? std::isnan(x) : x == wanted[i]) << i << ": " << x;
  }
}

TEST(Wide, WhatFp64LosesIsKept) {
  const WideArray one = WideArray::full({}, 1), tiny = WideArray::full({}, 1e-20);
  const WideArray back = run(kSub, {}, {run(kAdd, {}, {one, tiny}), one});
  EXPECT_NEAR(static_cast<double>(back.data()[0]), 1e-20, 1e-33);
  EXPECT_EQ(wide::difference(one, run(kAdd, {}, {one, tiny})).item(), static_cast<double>(1 - (1 + Wide(1e-20))));
  // Near the pole of 1 / (1 - x).
  const WideArray near = run(kSub, {}, {one, tiny});
  const WideArray pole = run(kReciprocal, {}, {run(kSub, {}, {one, near})});
  EXPECT_NEAR(static_cast<double>(pole.data()[0]) * 1e-20, 1, 1e-13);
  // Infinity in fp64, and a finite quotient in the end.
  const WideArray large = run(kExp, {}, {WideArray::full({}, 1000)});
  EXPECT_NEAR(static_cast<double>(run(kDiv, {}, {large, run(kAdd, {}, {large, large})}).data()[0]), 0.5, 1e-15);
  EXPECT_EQ(run(kIsFinite, {}, {large}).data()[0], 0);
}

TEST(Wide, DifferencesAndNorms) {
  const WideArray a = WideArray::of(array_of({4}, {kInf, kNaN, 3, -kInf})),
                  b = WideArray::of(array_of({4}, {kInf, kNaN, 2, kInf}));
  const Array apart = wide::difference(a, b);
  EXPECT_EQ(apart.data()[0], 0);
  EXPECT_TRUE(std::isnan(apart.data()[1]));
  EXPECT_EQ(apart.data()[2], 1);
  EXPECT_EQ(apart.data()[3], -kInf);
  EXPECT_TRUE(std::isnan(wide::norm2(a)));
  EXPECT_TRUE(std::isnan(wide::norm_max(a)));
  const WideArray large = WideArray::of(array_of({2, 1}, {3e200, -4e200}));
  EXPECT_DOUBLE_EQ(wide::norm2(large), 5e200);
  EXPECT_EQ(wide::norm_max(large), 4e200);
  EXPECT_EQ(wide::norm_max(WideArray::uninitialized({0})), 0);
}

TEST(Wide, FunctionalsAreAddedInWideScalars) {
  const WideArray a = WideArray::of(array_of({2, 2}, {1e20, 1, -1e20, kInf}));
  const WideArray b = WideArray::of(array_of({4}, {1e20, 0, -1e20, kInf}));
  EXPECT_EQ(wide::dot(array_of({4}, {1, 1, 1, 0}), a), 1);
  EXPECT_TRUE(std::isinf(wide::dot(array_of({4}, {1, 1, 1, 1}), a)));
  EXPECT_EQ(wide::dot_difference(array_of({4}, {1, -3, 1, 1}), a, b), -3);
}

TEST(Wide, ProductsBroadcastWithoutCopies) {
  std::mt19937_64 rng(5);
  const WideArray a = random_wide(rng, {3, 4, 6}, 0), b = random_wide(rng, {6, 5}, 0);
  const WideArray repeated = b.expand({3, 6, 5});
  const std::vector<Wide> got = elements(run(kMatmul, {3, 4, 5}, {a, repeated}));
  EXPECT_EQ(got, elements(run(kMatmul, {3, 4, 5}, {a, b})));
  const std::vector<Wide> last = elements(run(kMatmul, {4, 5}, {a.window({{4, 6}, {6, 1}, 48}), b}));
  EXPECT_EQ(std::vector<Wide>(got.begin() + 40, got.end()), last);
}

TEST(Wide, IntegersWrapAsTheirFormatsDo) {
  const auto wrapped = [](Format format, Wide x) {
    return static_cast<double>(wide::wrapped(format, WideArray::full({1}, x)).data()[0]);
  };
  EXPECT_EQ(wrapped(Format::kInt32, 0x1p31), -0x1p31);
  EXPECT_EQ(wrapped(Format::kInt32, -0x1p31), -0x1p31);
  EXPECT_EQ(wrapped(Format::kUInt8, -1), 255);
  EXPECT_EQ(wrapped(Format::kInt8, 200), -56);
  EXPECT_EQ(wrapped(Format::kInt64, Wide(0x1p63) + 5), -0x1p63 + 5);
  EXPECT_EQ(wrapped(Format::kInt64, -3), -3);
  const auto product = [](std::int64_t a, std::int64_t b) {
    const WideArray c = wide::multiplied(WideArray::full({1}, a), WideArray::full({1}, b), {1});
    return static_cast<std::int64_t>(c.data()[0]);
  };
  EXPECT_EQ(product(6364136223846793005, 1442695040888963407),
            static_cast<std::int64_t>(6364136223846793005U * 1442695040888963407U));
  EXPECT_EQ(product(-7, 5), -35);
  EXPECT_TRUE(wide::integral(WideArray::full({2}, Wide(0x1p63) + 1)));
  EXPECT_FALSE(wide::integral(WideArray::full({2}, 0.5)));
  EXPECT_FALSE(wide::integral(WideArray::full({2}, kNaN)));
}

}  // namespace
}  // namespace plumbline
