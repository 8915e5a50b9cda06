// The CUDA backend against the CPU's, for all primitives that it serves. Skipped where there is no device.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/cuda/backend.h"
#include "tests/unit/kernels/cases.h"

namespace plumbline {
namespace {

// What tests/report gpu reads.
TEST(Cuda, AgreesWithTheCpuBackend) {
  std::string reason;
  const bool available = cuda::available(&reason);
  RecordProperty("device", cuda::device_name());
  RecordProperty("reason", reason);
  if (!available) GTEST_SKIP() << "no CUDA device: " << reason;
  std::set<Primitive> primitives, compared, differing;
  int violations = 0;
  for (const testing::Case& c : testing::cases(21)) {
    if (!cuda::supports(c.primitive)) continue;
    SCOPED_TRACE(c.name);
    primitives.insert(c.primitive);
    std::string error;
    const Array device = cuda::evaluate(c.primitive, c.attributes, c.shape, c.inputs, &error);
    if (!device) {
      EXPECT_EQ(c.primitive, Primitive::kSum) << error;  // Only the last dimension or all.
      continue;
    }
    compared.insert(c.primitive);
    const Array host = traits(c.primitive).evaluate(c.attributes, c.shape, c.inputs).materialize();
    ASSERT_EQ(device.shape(), host.shape());
    const Profile profile = ieee();
    const Arithmetic arithmetic{Format::kFloat64, Format::kFloat64, &profile};
    const Bound bound = traits(c.primitive).local_error(c.attributes, arithmetic, c.inputs, host);
    for (std::int64_t i = 0; i < host.count(); ++i) {
      // Each may be off by its own bound; the device's erf and exp keep 2 ULP.
      const double limit = bound ? 3 * bound.values.data()[i] : 0.0;
      const double difference = std::fabs(device.data()[i] - host.data()[i]);
      if (difference <= limit) continue;
      ADD_FAILURE() << i << ": " << device.data()[i] << " on the device, " << host.data()[i] << " on the host";
      differing.insert(c.primitive);
      ++violations;
    }
  }
  RecordProperty("primitives", static_cast<int>(primitives.size()));
  RecordProperty("agree", static_cast<int>(compared.size() - differing.size()));
  RecordProperty("violations", violations);
  EXPECT_EQ(compared, primitives);
  EXPECT_GT(compared.size(), 10u);
}

TEST(Cuda, NamesWhatItDoesNotServe) {
  std::string error;
  const std::vector<Array> in = {Array::zeros({2, 2}), Array::zeros({2, 2})};
  EXPECT_FALSE(cuda::evaluate(Primitive::kMatmul, {}, {2, 2}, in, &error));
  EXPECT_NE(error.find("matmul"), std::string::npos);
}

}  // namespace
}  // namespace plumbline
