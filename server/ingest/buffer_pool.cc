#include "server/ingest/buffer_pool.h"

#include <algorithm>
#include <utility>

namespace plumbline {

std::shared_ptr<BufferPool::Buffer> BufferPool::take(std::uint64_t bytes) {
  auto buffer = std::make_unique<Buffer>();
  {
    const std::lock_guard lock(mutex_);
    const auto found = idle_.lower_bound(bytes);
    if (found != idle_.end() && found->first / 2 <= bytes) {  // A larger one would waste more than it saves.
      idle_bytes_ -= found->first;
      least_idle_ = std::min(least_idle_, idle_bytes_);
      *buffer = std::move(found->second);
      idle_.erase(found);
    }
  }
  if (buffer->size() > bytes) buffer->resize(bytes);
  buffer->reserve(bytes);
  return {buffer.release(), [pool = shared_from_this()](Buffer* used) {
            pool->give_back(std::move(*used));
            delete used;
          }};
}

void BufferPool::give_back(Buffer buffer) {
  const std::uint64_t bytes = buffer.capacity();
  std::vector<Buffer> dropped;  // Freed without the lock.
  const std::lock_guard lock(mutex_);
  if (bytes > bytes_max_) {
    dropped.push_back(std::move(buffer));
    return;
  }
  while (idle_bytes_ + bytes > bytes_max_) drop_smallest(&dropped);  // They are the cheapest to get again.
  idle_bytes_ += bytes;
  idle_.emplace(bytes, std::move(buffer));
}

void BufferPool::release_unneeded() {
  std::vector<Buffer> dropped;
  const std::lock_guard lock(mutex_);
  const std::uint64_t needed = idle_bytes_ - least_idle_;
  while (idle_bytes_ > needed) drop_smallest(&dropped);
  least_idle_ = idle_bytes_;
}

void BufferPool::drop_smallest(std::vector<Buffer>* dropped) {
  const auto smallest = idle_.begin();
  idle_bytes_ -= smallest->first;
  least_idle_ = std::min(least_idle_, idle_bytes_);
  dropped->push_back(std::move(smallest->second));
  idle_.erase(smallest);
}

std::uint64_t BufferPool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

std::shared_ptr<BufferPool::Buffer> take_buffer(const std::shared_ptr<BufferPool>& pool, std::uint64_t bytes) {
  if (pool != nullptr && bytes >= BufferPool::kPooledBytesMin) return pool->take(bytes);
  auto buffer = std::make_shared<BufferPool::Buffer>();
  buffer->reserve(bytes);
  return buffer;
}

}  // namespace plumbline
