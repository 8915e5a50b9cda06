#include "server/work/device_worker.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "kernels/array.h"
#include "server/work/cuda.h"
#include "tests/unit/work/fake_device.h"

namespace plumbline {
namespace {

using test::FakeBoard;

constexpr std::int64_t kLimit = 1 << 20;

void use_memory() { Array::full({1000}, 1.0); }

TEST(DeviceWorker, ComputesOnItsDevice) {
  FakeBoard board(1 << 30);
  const auto worker = board.worker("cuda:0", kLimit);
  EXPECT_EQ(worker->product(), "Fake 9000");
  double sum = 0;
  EXPECT_TRUE(worker
                  ->run([&] {
                    EXPECT_NE(current_device(), nullptr);
                    const Array ones = Array::full({100}, 1.0);
                    for (int i = 0; i < 100; ++i) sum += ones.data()[i];
                  })
                  .ok());
  EXPECT_EQ(sum, 100);
  EXPECT_EQ(current_device(), nullptr);
  EXPECT_EQ(worker->memory().lent, 0);
  EXPECT_GE(worker->memory().most, 800);
}

TEST(DeviceWorker, SaysThatItHasNoMemoryWhateverBecameOfIt) {
  FakeBoard board(1 << 30);
  const auto worker = board.worker("cuda:0", kLimit);
  const absl::Status thrown = worker->run([] { Array::uninitialized({1 << 20}); });
  EXPECT_TRUE(absl::IsResourceExhausted(thrown)) << thrown;
  EXPECT_NE(thrown.message().find("cuda:0: out of memory within the 1048576 bytes of --gpu-memory-limit"),
            std::string::npos)
      << thrown;
  const absl::Status swallowed = worker->run([] {
    try {
      Array::uninitialized({1 << 20});
    } catch (const std::bad_alloc&) {
    }
  });
  EXPECT_TRUE(absl::IsResourceExhausted(swallowed));
  EXPECT_TRUE(worker->run(use_memory).ok());
  EXPECT_EQ(worker->restarts(), 0);
}

TEST(DeviceWorker, OpensADeviceAgainThatReportedAnError) {
  FakeBoard board(1 << 30);
  const auto worker = board.worker("cuda:0", kLimit);
  board.fail_at_allocation(2, "an illegal address was met");
  const absl::Status failed = worker->run([] {
    use_memory();
    Array::full({3000}, 1.0);
    use_memory();
  });
  EXPECT_TRUE(absl::IsInternal(failed));
  EXPECT_EQ(failed.message(), "cuda:0: an illegal address was met");
  EXPECT_EQ(board.opened(), 2);
  EXPECT_EQ(worker->restarts(), 1);
  EXPECT_FALSE(worker->lost());
  EXPECT_TRUE(worker->run(use_memory).ok());
}

TEST(DeviceWorker, AnErrorThatOnlyWaitingShowsIsOneToo) {
  FakeBoard board(1 << 30);
  const auto worker = board.worker("cuda:0", kLimit);
  const absl::Status failed = worker->run([&] {
    board.run(absl::Seconds(1));
    board.fail("misaligned address");
    current_device()->wait();
  });
  EXPECT_EQ(failed.message(), "cuda:0: misaligned address");
}

TEST(DeviceWorker, IsLostWithItsDevice) {
  FakeBoard board(1 << 30);
  const auto worker = board.worker("cuda:0", kLimit);
  const absl::Status failed = worker->run([&] { board.lose(); });
  EXPECT_EQ(failed.message(), "cuda:0: the device is lost; it cannot be opened again: expected a device, found none");
  EXPECT_TRUE(worker->lost());
  EXPECT_EQ(worker->memory().lent, 0);
}

TEST(DeviceWorker, GivesUpADeviceThatFailsTimeAfterTime) {
  FakeBoard board(1 << 30);
  const auto worker = board.worker("cuda:0", kLimit);
  const auto fail = [&] { return worker->run([&] { board.fail("broken"); }); };
  EXPECT_FALSE(fail().ok());
  EXPECT_FALSE(fail().ok());
  EXPECT_TRUE(worker->run(use_memory).ok()) << "which starts the count anew";
  for (int i = 1; i < DeviceWorker::kFailuresMax; ++i) EXPECT_FALSE(fail().ok());
  EXPECT_FALSE(worker->lost());
  EXPECT_EQ(fail().message(), "cuda:0: broken; it has failed 3 times in a row and is given up");
  EXPECT_TRUE(worker->lost());
}

TEST(DeviceWorker, WhatTheWorkThrowsIsItsOwn) {
  FakeBoard board(1 << 30);
  const auto worker = board.worker("cuda:0", kLimit);
  EXPECT_THROW(static_cast<void>(worker->run([] { throw std::logic_error("mine"); })), std::logic_error);
  EXPECT_EQ(current_device(), nullptr);
  EXPECT_EQ(worker->restarts(), 0);
}

TEST(Cuda, WithoutItsLibraryThereIsNone) {
  const absl::Status missing = open_cuda(3).status();
  EXPECT_EQ(missing.message().substr(0, 62), "cuda:3: expected a backend in libplumbline_cuda.so, found none");
  EXPECT_FALSE(cuda_memory_opener());
}

}  // namespace
}  // namespace plumbline
