#include "server/work/device_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "tests/unit/work/fake_device.h"

namespace plumbline {
namespace {

using test::FakeBoard;

TEST(DevicePool, LendsWhatItKeepsAndCountsBoth) {
  FakeBoard board(1 << 20);
  const auto device = *board.open();
  {
    DevicePool pool(*device, 4096);
    void* const memory = pool.allocate(1000);
    EXPECT_EQ(pool.use().lent, 1024);
    pool.free(memory, 1000);
    EXPECT_EQ(pool.use().lent, 0);
    EXPECT_EQ(pool.use().kept, 1024);
    EXPECT_EQ(pool.allocate(1024), memory) << "kept memory of the same size";
    EXPECT_EQ(board.allocated(), 1024);
    pool.free(memory, 1024);
  }
  EXPECT_EQ(board.allocated(), 0);
}

TEST(DevicePool, GivesBackWhatItKeepsBeforeItExceedsItsLimit) {
  FakeBoard board(1 << 20);
  const auto device = *board.open();
  DevicePool pool(*device, 4096);
  void* const small = pool.allocate(1024);
  pool.free(pool.allocate(3072), 3072);
  void* const large = pool.allocate(2048);
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(pool.use().kept, 0);
  EXPECT_EQ(board.most(), 4096);
  EXPECT_EQ(pool.allocate(2048), nullptr);
  EXPECT_EQ(pool.allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(pool.use().refused, 2);
  EXPECT_EQ(pool.use().most, 4096);
  pool.free(small, 1024);
  pool.free(large, 2048);
}

TEST(DevicePool, AFullDeviceGetsBackAllThatNobodyUses) {
  FakeBoard board(4096);  // Less than the limit: the rest is the training job's.
  const auto device = *board.open();
  DevicePool pool(*device, 1 << 20);
  pool.free(pool.allocate(1024), 1024);
  void* const memory = pool.allocate(4096);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(pool.allocate(256), nullptr);
  EXPECT_EQ(pool.use().refused, 1);
  pool.free(memory, 4096);
}

TEST(DevicePool, ManyThreadsNeverExceedTheLimit) {
  constexpr std::int64_t kLimit = 16 << 10;
  FakeBoard board(1 << 20);
  const auto device = *board.open();
  {
    DevicePool pool(*device, kLimit);
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 4; ++seed) {
      threads.emplace_back([&pool, seed] {
        std::mt19937 random(seed);
        std::vector<std::pair<void*, std::size_t>> held;
        for (int i = 0; i < 2000; ++i) {
          const std::size_t bytes = std::size_t{256} << random() % 6;
          if (void* const memory = pool.allocate(bytes); memory != nullptr) {
            std::memset(memory, static_cast<int>(seed), bytes);  // Nobody else's.
            held.emplace_back(memory, bytes);
          }
          if (held.size() > 8 || (!held.empty() && random() % 2 == 0)) {
            pool.free(held.back().first, held.back().second);
            held.pop_back();
          }
        }
        for (const auto& [memory, bytes] : held) pool.free(memory, bytes);
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(pool.use().lent, 0);
    EXPECT_EQ(pool.use().kept, board.allocated());
    EXPECT_GT(pool.use().refused, 0) << "the limit was reached";
    EXPECT_LE(pool.use().most, kLimit);
  }
  EXPECT_LE(board.most(), kLimit);
  EXPECT_EQ(board.allocated(), 0);
}

}  // namespace
}  // namespace plumbline
