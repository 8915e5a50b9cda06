#include "server/bound/enclose/legal_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/ball/round.h"
#include "kernels/checks.h"
#include "kernels/cpu/gemm.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

constexpr double kSlack = 1 + 0x1p-20;

// alpha a b + c of numbers that the format holds, as some execution gives it: sums in fp32 from the first term to the
// last, the result rounded once more.
struct Product {
  Node node;
  Profile profile;
  Arithmetic arithmetic;
  std::vector<Array> in;
  Array exact, seen;

  Product(Format held, std::int64_t batch, std::int64_t m, std::int64_t k, std::int64_t n, std::size_t inputs,
          bool shared_b, unsigned seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<double> normal;
    const RoundTo hold(held);
    const auto drawn = [&](const Shape& shape) {
      Array values = Array::uninitialized(shape);
      for (std::int64_t i = 0; i < values.count(); ++i) values.data()[i] = hold(normal(rng));
      return values;
    };
    node.primitive = Primitive::kMatmul;
    node.shape = {batch, m, n};
    in = {drawn({batch, m, k}), cpu::transpose_last_two(drawn(shared_b ? Shape{n, k} : Shape{batch, n, k}))};
    if (inputs > 2) in.push_back(drawn({1, n}).expand(node.shape));
    if (inputs > 3) in.push_back(Array::scalar(0.75));
    arithmetic = {.compute = Format::kFloat32, .result = held, .profile = &profile, .input = held};
    exact = traits(Primitive::kMatmul).evaluate({}, node.shape, in);
    seen = Array::uninitialized(node.shape);
    const Array a = in[0], b = in[1].expand({batch, k, n}).materialize();
    const Array c = inputs > 2 ? in[2].materialize() : Array();
    for (std::int64_t e = 0; e < seen.count(); ++e) {
      float sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum +=
            static_cast<float>(a.data()[e / n * k + l]) * static_cast<float>(b.data()[(e / n / m * k + l) * n + e % n]);
      if (inputs > 3) sum *= 0.75F;
      if (inputs > 2) sum += static_cast<float>(c.data()[e]);
      seen.data()[e] = hold(sum);
    }
  }

  // By exact sums, and by sums in fp32, which is asked first of what is held in 16 bits.
  bool legal() const {
    const bool by_exact = legal_product(node, arithmetic, in, exact, 0, LeafValue(seen), kSlack);
    const auto k = static_cast<double>(in[0].shape().back());
    const bool by_fp32 = legal_product(node, arithmetic, in, in_fp32(), k * 0x1p-24, LeafValue(seen), kSlack);
    EXPECT_LE(by_fp32, by_exact);  // It knows of no more.
    fp32_too = by_fp32;
    return by_exact;
  }
  // As far from the exact sums as sums in fp32 may be, to either side.
  Array in_fp32() const {
    Array off = Array::uninitialized(node.shape);
    std::vector<Array> magnitudes;
    for (const Array& x : in) {
      Array& of = magnitudes.emplace_back(x.materialize());
      Array positive = Array::uninitialized(of.shape());
      for (std::int64_t i = 0; i < of.count(); ++i) positive.data()[i] = std::fabs(of.data()[i]);
      of = positive;
    }
    if (magnitudes.size() > 2) magnitudes[2] = Array::zeros(magnitudes[2].shape());
    const Array sums = traits(Primitive::kMatmul).evaluate({}, node.shape, magnitudes);
    const double share = part * 0x1p-24 * static_cast<double>(in[0].shape().back());
    for (std::int64_t i = 0; i < off.count(); ++i)
      off.data()[i] = exact.data()[i] + (i % 2 == 0 ? share : -share) * sums.data()[i];
    return off;
  }
  double part = 0.25;  // Of how far they may be.
  mutable bool fp32_too = false;
  Bound bound() const { return traits(Primitive::kMatmul).local_error({}, arithmetic, in, exact); }
};

TEST(LegalProduct, KnowsOfLegalOnes) {
  for (const Format held : {Format::kBFloat16, Format::kFloat16})
    for (const std::size_t inputs : {2U, 3U, 4U})
      for (const bool shared_b : {false, true}) {
        Product product(held, 3, 70, 300, 90, inputs, shared_b, 1);
        product.part = 0.002;
        EXPECT_TRUE(product.legal()) << inputs;
        EXPECT_TRUE(product.fp32_too) << inputs;
        EXPECT_EQ(count_outside(product.seen, product.exact, product.bound(), kSlack, -HUGE_VAL, HUGE_VAL), 0);
      }
}

// What it acquits, the whole enclosure does: at single elements that lie about where their bounds end.
TEST(LegalProduct, AcquitsNothingThatTheWholeDoesNot) {
  std::mt19937 rng(2);
  int acquitted = 0, refused = 0;
  for (const std::int64_t k : {2, 40, 300})  // Blocks' norms, or a product of magnitudes.
    for (int round = 0; round < 60; ++round) {
      Product product(Format::kBFloat16, 2, 40, k, 50, 2 + round % 3, round % 2 == 0, 3 + round % 4);
      const Array radius = product.bound().values;
      const auto at = static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(product.seen.count()));
      const double share = 0.98 + 0.04 * static_cast<double>(rng() % 1000) / 999;
      product.seen.data()[at] = product.exact.data()[at] + (rng() % 2 == 0 ? 1 : -1) * share * radius.data()[at];
      const bool outside = count_outside(product.seen, product.exact, {radius}, kSlack, -HUGE_VAL, HUGE_VAL) > 0;
      const bool legal = product.legal();
      EXPECT_FALSE(legal && outside) << "k " << k << ", share " << share;
      (legal ? acquitted : refused) += 1;
    }
  EXPECT_GT(acquitted, 40);
  EXPECT_GT(refused, 40);
}

TEST(LegalProduct, LeavesWhatIsNotFiniteAndWideResultsToTheWhole) {
  Product product(Format::kBFloat16, 1, 20, 30, 20, 2, false, 1);
  product.seen.data()[7] = HUGE_VAL;
  EXPECT_FALSE(product.legal());
  product.seen.data()[7] = std::nan("");
  EXPECT_FALSE(product.legal());
  EXPECT_FALSE(Product(Format::kFloat32, 1, 20, 30, 20, 2, false, 1).legal());
}

// A product without terms is 0, and nothing else.
TEST(LegalProduct, OfNoTermsIsLeftToTheWhole) {
  Product product(Format::kBFloat16, 1, 100, 0, 100, 2, false, 1);
  EXPECT_FALSE(product.legal());
  product.seen.data()[5] = 1;
  EXPECT_FALSE(product.legal());
}

// Where many elements need their own bounds, the whole is cheaper.
TEST(LegalProduct, LeavesManyDoubtfulOnesToTheWhole) {
  Product product(Format::kBFloat16, 1, 100, 30, 100, 2, false, 1);
  const Array radius = product.bound().values;
  for (std::int64_t i = 0; i < product.seen.count(); i += 20)
    product.seen.data()[i] = product.exact.data()[i] + 0.999 * radius.data()[i];
  EXPECT_EQ(count_outside(product.seen, product.exact, {radius}, kSlack, -HUGE_VAL, HUGE_VAL), 0);
  EXPECT_FALSE(product.legal());
}

}  // namespace
}  // namespace plumbline
