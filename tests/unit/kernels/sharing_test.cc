// Shared events found by sorting (kernels/sharing.h) against their definition, written out.
#include <gtest/gtest.h>

#include "tests/unit/kernels/sharing_cases.h"

namespace plumbline {
namespace {

TEST(Sharing, MergesWhatIsHeldAlike) {
  for (const testing::Sharing& of : testing::sharings(3)) {
    const Array expected = testing::merged(of), found = testing::merged_by_operations(of);
    ASSERT_EQ(found.shape(), expected.shape());
    for (std::int64_t i = 0; i < expected.count(); ++i)
      ASSERT_NEAR(found.data()[i], expected.data()[i], 1e-9 * (1 + std::fabs(expected.data()[i])))
          << i << " of " << of.operands.size() << " operands, rows of " << of.row;
  }
}

}  // namespace
}  // namespace plumbline
