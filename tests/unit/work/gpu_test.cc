#include "server/work/gpu.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TEST(Gpu, UuidIsWrittenAsTheToolsWriteIt) {
  const std::string bytes("\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff", 16);
  EXPECT_EQ(gpu_uuid(bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_EQ(gpu_uuid(""), "");
  EXPECT_EQ(gpu_uuid(bytes + "x"), "");
}

TEST(Gpu, NumberIsTheDriversOwn) {
  const std::string library = PLUMBLINE_NVML_FAKE;
  EXPECT_EQ(gpu_number("GPU-00112233-4455-6677-8899-aabbccddeeff", library), 1u);
  EXPECT_EQ(gpu_number("GPU-00000000-0000-0000-0000-000000000000", library), 0u);
  EXPECT_EQ(gpu_number("GPU-ffffffff-0000-0000-0000-000000000000", library), std::nullopt);
  EXPECT_EQ(gpu_number("GPU-00000000-0000-0000-0000-000000000000", "libnot-there.so"), std::nullopt);
  EXPECT_EQ(gpu_number("GPU-00000000-0000-0000-0000-000000000000", "libm.so.6"), std::nullopt) << "another library";
}

}  // namespace
}  // namespace plumbline
