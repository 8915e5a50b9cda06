#include "server/ingest/buffer_pool.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

TEST(BufferPool, GivesABufferAgain) {
  const auto pool = BufferPool::create(4 * kMiB);
  auto one = pool->take(kMiB);
  one->assign(kMiB, 7);
  const auto* memory = one->data();
  one.reset();
  EXPECT_EQ(pool->idle_bytes(), kMiB);
  const auto again = pool->take(kMiB - 5);
  EXPECT_EQ(again->data(), memory);
  EXPECT_LE(again->size(), kMiB - 5);
  EXPECT_EQ(pool->idle_bytes(), 0u);
}

TEST(BufferPool, DoesNotWasteALargeBufferOnASmallPayload) {
  const auto pool = BufferPool::create(8 * kMiB);
  pool->take(4 * kMiB).reset();
  const auto small = pool->take(kMiB);
  EXPECT_LT(small->capacity(), 2 * kMiB);
  EXPECT_EQ(pool->idle_bytes(), 4 * kMiB);
}

TEST(BufferPool, KeepsNoMoreThanItsLimit) {
  const auto pool = BufferPool::create(3 * kMiB);
  {
    const auto one = pool->take(kMiB), two = pool->take(2 * kMiB), three = pool->take(kMiB),
               four = pool->take(5 * kMiB);
  }
  EXPECT_LE(pool->idle_bytes(), 3 * kMiB);
  EXPECT_GT(pool->idle_bytes(), 0u);
}

TEST(BufferPool, FreesWhatNobodyAskedForSinceTheLastRelease) {
  const auto pool = BufferPool::create(8 * kMiB);
  { const auto one = pool->take(kMiB), two = pool->take(2 * kMiB); }
  pool->release_unneeded();  // Both were asked for.
  EXPECT_EQ(pool->idle_bytes(), 3 * kMiB);
  pool->take(2 * kMiB).reset();
  pool->release_unneeded();
  EXPECT_EQ(pool->idle_bytes(), 2 * kMiB);
  pool->release_unneeded();
  EXPECT_EQ(pool->idle_bytes(), 0u);
}

TEST(BufferPool, OutlivesWhoeverMadeIt) {
  auto pool = BufferPool::create(kMiB);
  auto buffer = pool->take(kMiB);
  pool.reset();
  buffer->push_back(1);
  buffer.reset();
}

TEST(BufferPool, LeavesSmallOnesToTheAllocator) {
  const auto pool = BufferPool::create(kMiB);
  take_buffer(pool, 100).reset();
  EXPECT_EQ(pool->idle_bytes(), 0u);
  take_buffer(pool, BufferPool::kPooledBytesMin).reset();
  EXPECT_EQ(pool->idle_bytes(), BufferPool::kPooledBytesMin);
  EXPECT_EQ(take_buffer(nullptr, kMiB)->capacity(), kMiB);
}

}  // namespace
}  // namespace plumbline
