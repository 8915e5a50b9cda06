#include <gtest/gtest.h>

#include "tests/unit/kernels/projection_cases.h"

namespace plumbline {
namespace {

TEST(Projection, TellsRowsThatRoundingDoesNotExplain) { testing::expect_outlying_rows_told(); }

// Half of all signs hide two equal errors from one vector, not from 64. And where nothing is wrong, no vector makes it
// so.
TEST(Projection, HangsOnNoSign) {
  const testing::ObservedProduct product(Format::kBFloat16, false, false);
  const double size = 8 * std::sqrt(static_cast<double>(product.kColumns)) * product.level[5];
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    ASSERT_EQ(product.told(seed, [](double*) {}), 0) << seed;
    ASSERT_EQ(
        product.told(seed, [&](double* y) { y[5 * product.kColumns] += size, y[5 * product.kColumns + 9] -= size; }), 1)
        << seed;
  }
}

}  // namespace
}  // namespace plumbline
