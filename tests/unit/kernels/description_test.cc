#include "kernels/ball/description.h"

#include <gtest/gtest.h>

#include <cmath>

namespace plumbline {
namespace {

FormatDescription found(std::string_view name) {
  const auto result = describe(name);
  EXPECT_TRUE(std::holds_alternative<FormatDescription>(result)) << std::get<std::string>(result);
  return std::get<FormatDescription>(result);
}

std::string error(std::string_view name) {
  const auto result = describe(name);
  return std::holds_alternative<std::string>(result) ? std::get<std::string>(result) : "";
}

TEST(Description, NamedFormatsAreTheirGeneralForms) {
  const std::pair<const char*, const char*> same[] = {{"fp16", "e5m10"},  {"bf16", "e8m7"},  {"fp32", "e8m23"},
                                                      {"fp64", "e11m52"}, {"tf32", "e8m10"}, {"e5m2", "e5m2"}};
  for (const auto& [a, b] : same) {
    const FormatDescription x = found(a), y = found(b);
    EXPECT_EQ(x.bits, y.bits) << a;
    EXPECT_EQ(x.largest, y.largest) << a;
    EXPECT_EQ(x.smallest_normal, y.smallest_normal) << a;
    EXPECT_EQ(x.smallest_positive, y.smallest_positive) << a;
    EXPECT_EQ(x.unit_roundoff, y.unit_roundoff) << a;
  }
  EXPECT_FALSE(found("e4m3").infinities);
  EXPECT_EQ(found("e4m3").largest, 448);
  EXPECT_EQ(found("e4m3").bits, 8);
  EXPECT_EQ(described_formats().size(), 7U);
}

TEST(Description, FixedPoint) {
  const FormatDescription d = found("fixed<8,8>");
  EXPECT_EQ(d.bits, 16);
  EXPECT_EQ(d.bytes, 2);
  EXPECT_EQ(d.lowest, -128);
  EXPECT_EQ(d.largest, 128 - 0x1p-8);
  EXPECT_EQ(d.smallest_positive, 0x1p-8);
  EXPECT_FALSE(d.infinities || d.nan);
  EXPECT_EQ(found("fixed<1,63>").lowest, -1);
  EXPECT_EQ(found("fixed<64,0>").bytes, 8);
}

TEST(Description, WhatNoCodeHoldsIsSaid) {
  EXPECT_NE(error("fixed<40,40>").find("at most 64 bits, found 80"), std::string::npos);
  EXPECT_NE(error("fixed<64,1>").find("found 65"), std::string::npos);
  EXPECT_NE(error("fixed<0,8>").find("found 0"), std::string::npos);
  EXPECT_NE(error("e20m60").find("found 81 bits"), std::string::npos);
  EXPECT_NE(error("e1m3").find("at least 2 bits"), std::string::npos);
  EXPECT_NE(error("e12m10").find("fp64"), std::string::npos);
  for (const char* name : {"", "fp12", "fixed<8>", "fixed<-1,3>", "fixed<8,-1>", "fixed<8,8> ", "fixed<99999999999,1>",
                           "e5", "e5m", "em2", "e5m2x"})
    EXPECT_NE(error(name).find("expected"), std::string::npos) << name;
}

TEST(FixedPoint, RoundsEveryCodeToItselfAndBetweenThemToNeighbours) {
  const FixedPoint fixed{4, 4};
  for (int code = -128; code < 127; ++code) {
    const double x = code * fixed.step();
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic, Rounding::kTowardZero})
      ASSERT_EQ(fixed.round(x, rounding), x);
    const double between = x + 0.3 * fixed.step();
    ASSERT_EQ(fixed.round(between, Rounding::kNearest), x);
    ASSERT_EQ(fixed.round(between, Rounding::kStochastic, 0.31), x);
    ASSERT_EQ(fixed.round(between, Rounding::kStochastic, 0.29), x + fixed.step());
    ASSERT_EQ(fixed.round(between, Rounding::kTowardZero), code < 0 ? x + fixed.step() : x);
    ASSERT_EQ(std::fmod(fixed.round(x + 0.5 * fixed.step(), Rounding::kNearest) / fixed.step(), 2), 0)
        << "ties to even";
  }
  EXPECT_EQ(fixed.round(1e9, Rounding::kStochastic, 0), fixed.high());
  EXPECT_EQ(fixed.round(-1e9, Rounding::kNearest), fixed.low());
  EXPECT_EQ(fixed.round(fixed.high() + 0.6 * fixed.step(), Rounding::kNearest), fixed.high());
  EXPECT_EQ(fixed.round(std::nan(""), Rounding::kNearest), 0);
}

// The mean of stochastic roundings is the value.
TEST(FixedPoint, StochasticRoundingIsUnbiased) {
  const FixedPoint fixed{4, 4};
  const double x = 1 + 0.3 * fixed.step();
  double sum = 0;
  for (int i = 0; i < 1000; ++i) sum += fixed.round(x, Rounding::kStochastic, i / 1000.0);
  EXPECT_NEAR(sum / 1000, x, 1.1e-3 * fixed.step());
}

}  // namespace
}  // namespace plumbline
