#include "kernels/array_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "kernels/array.h"
#include "kernels/operations.h"

namespace plumbline {
namespace {

constexpr std::int64_t kHostWork = 100;

// A device with memory of its own, which counts what crosses.
class CountingDevice : public Device, public MemoryResource {
 public:
  CountingDevice() { set_host_work(kHostWork); }
  std::string name() const override { return "counting"; }
  std::int64_t total_bytes() const override { return limit(); }
  std::int64_t limit() const override { return std::int64_t{1} << 30; }
  void* allocate(std::size_t bytes) override {
    ++allocations;
    return ::operator new (bytes, std::align_val_t{256});
  }
  void free(void* memory, std::size_t) noexcept override { ::operator delete (memory, std::align_val_t{256}); }
  void fetch(const void* from, std::size_t bytes, void* to) override {
    ++fetches;
    fetched = bytes;
    std::memcpy(to, from, bytes);
  }
  void send(const void* from, std::size_t bytes, void* to) override {
    ++sends;
    std::memcpy(to, from, bytes);
  }
  std::optional<DeviceError> take_error() override { return {}; }
  const Operations& operations() const override { return host_operations(); }

  int allocations = 0, fetches = 0, sends = 0;
  std::size_t fetched = 0;

 protected:
  void synchronise() override { idle(); }
};

class ArrayMemoryOnDevice : public ::testing::Test {
 protected:
  Array made(std::int64_t elements) {
    const DeviceScope scope(device_, device_);
    return Array::uninitialized({elements});
  }
  // What a kernel did.
  static void compute(Array& out, double value) { std::fill_n(out.device_write(), out.count(), value); }

  CountingDevice device_;
};

TEST_F(ArrayMemoryOnDevice, WhatIsSmallAndStaysOnTheHostTakesNothingOfTheDevice) {
  Array small = made(kHostWork);
  small.data()[3] = 5;
  EXPECT_EQ(small.item(), small.data()[0]);
  EXPECT_FALSE(small.away());
  EXPECT_EQ(device_.allocations, 0);
  made(kHostWork + 1);
  EXPECT_EQ(device_.allocations, 1);  // Too large for the host: refused at once where the device is full.
}

TEST_F(ArrayMemoryOnDevice, ContentCrossesOnceEachWay) {
  Array x = made(10);
  x.data()[9] = 7;
  const Array& read = x;
  EXPECT_EQ(read.device_read()[9], 7);
  EXPECT_EQ(read.device_read()[9], read.data()[9]);
  EXPECT_EQ(device_.sends, 1);
  EXPECT_EQ(device_.fetches, 0);
  compute(x, 2);
  EXPECT_TRUE(x.away());
  EXPECT_EQ(read.data()[9], 2);
  EXPECT_EQ(read.item(), 2);
  EXPECT_EQ(read.on_host().data()[0], 2);
  EXPECT_EQ(device_.fetches, 1);
  x.data()[9] = 3;  // The device's is old now.
  EXPECT_EQ(read.device_read()[9], 3);
  EXPECT_EQ(device_.sends, 2);
}

TEST_F(ArrayMemoryOnDevice, WhatIsWrittenInPartsIsKept) {
  Array x = made(10);
  x.data()[0] = 1;
  Array end = x.restride({{5}, {1}, 5});
  compute(end, 2);
  EXPECT_EQ(x.device_read()[0], 1);
  Array begin = x.restride({{5}, {1}, 0});
  begin.data()[1] = 4;
  EXPECT_EQ(end.item(), 2);
  EXPECT_EQ(x.device_read()[1], 4);
  EXPECT_EQ(x.device_read()[9], 2);
}

TEST_F(ArrayMemoryOnDevice, ALargeArrayIsNotBroughtForAnElement) {
  Array x = made(1 << 20);
  compute(x, 6);
  EXPECT_EQ(x.item(), 6);
  EXPECT_EQ(device_.fetched, sizeof(double));
  const Array here = x.on_host();
  EXPECT_EQ(here.data()[1000], 6);
  EXPECT_EQ(here.device(), nullptr);
  EXPECT_TRUE(x.away());
  EXPECT_EQ(device_.fetches, 2);
}

TEST_F(ArrayMemoryOnDevice, PartOfALargeArrayIsBroughtAlone) {
  Array x = made(1 << 20);
  compute(x, 6);
  const Array part = x.restride({{8}, {1}, 100}).on_host();
  EXPECT_EQ(part.data()[7], 6);
  EXPECT_EQ(device_.fetched, 8 * sizeof(double));
}

}  // namespace
}  // namespace plumbline
