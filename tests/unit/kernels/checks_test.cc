// Counts and sums for checks (kernels/checks.h) against the same, written out.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace plumbline
