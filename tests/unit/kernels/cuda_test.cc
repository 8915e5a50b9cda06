// The CUDA backend against the CPU's, for all primitives that it serves. Skipped where there is no device.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cuda/backend.h"
#include "tests/unit/kernels/cases.h"

namespace plumbline {
namespace {

TEST(Cuda, AgreesWithTheCpuBackend) {
  std::string reason;
  if (!cuda::available(&reason)) GTEST_SKIP() << "no CUDA device: " << reason;
  int compared = 0;
  for (const testing::Case& c : testing::cases(21)) {
    if (!cuda::supports(c.primitive)) continue;
    SCOPED_TRACE(c.name);
    std::string error;
    const Array device = cuda::evaluate(c.primitive, c.attributes, c.shape, c.inputs, &error);
    if (!device) {
      EXPECT_EQ(c.primitive, Primitive::kSum) << error;  // Only the last dimension or all.
      continue;
    }
    const Array host = traits(c.primitive).evaluate(c.attributes, c.shape, c.inputs).materialize();
    ASSERT_EQ(device.shape(), host.shape());
    const Profile profile = ieee();
    const Arithmetic arithmetic{Format::kFloat64, Format::kFloat64, &profile};
    const Bound bound = traits(c.primitive).local_error(c.attributes, arithmetic, c.inputs, host);
    for (std::int64_t i = 0; i < host.count(); ++i) {
      // Each may be off by its own bound; the device's erf and exp keep 2 ULP.
      const double limit = bound ? 3 * bound.values.data()[i] : 0.0;
      EXPECT_LE(std::fabs(device.data()[i] - host.data()[i]), limit) << i;
    }
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

TEST(Cuda, NamesWhatItDoesNotServe) {
  std::string error;
  const std::vector<Array> in = {Array::zeros({2, 2}), Array::zeros({2, 2})};
  EXPECT_FALSE(cuda::evaluate(Primitive::kMatmul, {}, {2, 2}, in, &error));
  EXPECT_NE(error.find("matmul"), std::string::npos);
}

}  // namespace
}  // namespace plumbline
