// |legal execution - exact| <= local_error, for every primitive of the registry, in several arithmetics and profiles.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/soundness/arithmetics.h"
#include "tests/soundness/check.h"

namespace plumbline::soundness {
namespace {

class LocalError : public ::testing::TestWithParam<Case> {};

TEST_P(LocalError, HoldsLegalExecutions) {
  Random random(2024);
  for (const PrimitiveTraits& row : all_primitives()) {
    const Tally tally = check(row.primitive, GetParam().arithmetic(), {.problems = 20, .executions = 8}, random);
    EXPECT_EQ(tally.violations, 0) << tally.first;
    EXPECT_GT(tally.executions, 0) << row.name << " has no executions";
  }
}

TEST_P(LocalError, HoldsProductsByWhateverTheirTermsAreKnown) {
  Random random(2025);
  for (const Magnitudes magnitudes : {Magnitudes::kByNorms, Magnitudes::kThemselves}) {
    Arithmetic arithmetic = GetParam().arithmetic();
    arithmetic.magnitudes = magnitudes;
    const Tally tally = check(Primitive::kMatmul, arithmetic, {.problems = 20, .executions = 8}, random);
    EXPECT_EQ(tally.violations, 0) << tally.first;
    EXPECT_GT(tally.executions, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, LocalError, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name(); });

TEST(LocalErrorRegistry, BitwisePrimitivesHaveNone) {
  const Profile profile = ieee();
  const Arithmetic arithmetic{Format::kFloat32, Format::kFloat32, &profile};
  const std::vector<Array> in = {Array::scalar(1.5), Array::scalar(-0.75), Array::scalar(2)};
  for (const PrimitiveTraits& row : all_primitives()) {
    if (!row.bitwise || row.arity < 1) continue;
    EXPECT_FALSE(row.local_error({}, arithmetic, Inputs(in).first(row.arity), Array::scalar(1.5))) << row.name;
  }
}

// Each term is 1, of factors from 2^-40 to 2^40: 8 roundings of fp32 beside a sum of 8, and norms know no better than
// 2^80.
TEST(LocalErrorRegistry, TermsThemselvesHoldWhereScalesCancel) {
  const Profile profile = ieee();
  Arithmetic arithmetic{Format::kFloat32, Format::kFloat32, &profile};
  Array row = Array::uninitialized({1, 8}), column = Array::uninitialized({8, 1});
  for (int k = 0; k < 8; ++k) {
    row.data()[k] = std::exp2(10 * k - 40);
    column.data()[k] = std::exp2(40 - 10 * k);
  }
  const std::vector<Array> in = {row, column};
  const auto bound = [&](Magnitudes magnitudes) {
    arithmetic.magnitudes = magnitudes;
    return traits(Primitive::kMatmul).local_error({}, arithmetic, in, Array::full({1, 1}, 8)).values.item();
  };
  EXPECT_GT(bound(Magnitudes::kByNorms), 0x1p40);
  EXPECT_GE(bound(Magnitudes::kThemselves), 7 * 8 * 0x1p-24);
  EXPECT_LE(bound(Magnitudes::kThemselves), 9 * 8 * 0x1p-24);
}

// Masked scores have an exponential of -infinity, which is 0 whatever a fast one loses with its argument.
TEST(LocalErrorRegistry, FastExponentialsOfMaskedScoresAreExact) {
  const Profile profile = pytorch_cpu();
  const Arithmetic arithmetic{Format::kFloat32, Format::kFloat32, &profile};
  Attributes fused;
  fused.scalar = 1;
  for (const double masked : {-HUGE_VAL, -0x1.fffffep127}) {
    const Array x = Array::scalar(masked);
    const Bound bound = traits(Primitive::kExp).local_error(fused, arithmetic, {&x, 1}, Array::scalar(0));
    EXPECT_LE(bound.values.item(), 0x1p-125) << masked;
  }
}

}  // namespace
}  // namespace plumbline::soundness
