// Counts and sums for checks (kernels/checks.h) against the same, written out; and what charges of nothing add.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/primitive/rounding.h"
#include "kernels/sums.h"
#include "tests/unit/kernels/checks_cases.h"

namespace plumbline {
namespace {

TEST(Checks, CountWhatTheySay) {
  for (const Format format : testing::kChecked) {
    SCOPED_TRACE(traits(format).name);
    const testing::CheckedArrays arrays(format, 3);
    const testing::Checked expected = testing::checked_one_by_one(arrays);
    testing::expect_near(testing::checked(arrays), expected);
    EXPECT_GT(expected.outside, 0);
    EXPECT_GT(expected.absorbed.lost_elements, 0);
  }
}

TEST(Charges, WhatIsNotRoundedAddsNothingWhateverItsCotangent) {
  for (const double cotangent : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    EXPECT_EQ(weighted_bound(Array::scalar(cotangent), Bound{Array::scalar(0)}).get(), 0);
    const Totals<2> noise = primitive::charge(cotangent, 0, 0);
    EXPECT_EQ(noise.of[0], 0);
    EXPECT_EQ(noise.of[1], 0);
    EXPECT_EQ(primitive::dropped(cotangent, 1, 1, 0, 1, 0x1p-24), 0) << "1 + 0";
    EXPECT_FALSE(weighted_bound(Array::scalar(cotangent), Bound{Array::scalar(1)}).get() < HUGE_VAL);
  }
}

}  // namespace
}  // namespace plumbline
