// Large buffers used again: the first touch of fresh memory costs many times what writing to it does. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace plumbline {

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  using Buffer = std::vector<std::uint8_t>;

  // Keeps at most `bytes_max` of memory that nobody uses.
  static std::shared_ptr<BufferPool> create(std::uint64_t bytes_max) {
    return std::shared_ptr<BufferPool>(new BufferPool(bytes_max));
  }

  // A buffer with room for `bytes`, at most so many in it, which mean nothing; it returns to the pool when its last
  // owner lets go of it, also if nobody else holds the pool any more.
  std::shared_ptr<Buffer> take(std::uint64_t bytes);
  std::uint64_t idle_bytes() const;
  // Frees what nobody asked for since the last call.
  void release_unneeded();

  static constexpr std::uint64_t kPooledBytesMin = 64u << 10;  // Smaller ones are the allocator's.

 private:
  explicit BufferPool(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}
  void give_back(Buffer buffer);
  void drop_smallest(std::vector<Buffer>* dropped);  // With the lock held; freed without it.

  const std::uint64_t bytes_max_;
  mutable std::mutex mutex_;
  std::multimap<std::uint64_t, Buffer> idle_;  // The key is the capacity.
  std::uint64_t idle_bytes_ = 0;
  std::uint64_t least_idle_ = 0;  // Since the last release.
};

// From the pool where there is one and the buffer is large.
std::shared_ptr<BufferPool::Buffer> take_buffer(const std::shared_ptr<BufferPool>& pool, std::uint64_t bytes);

}  // namespace plumbline
