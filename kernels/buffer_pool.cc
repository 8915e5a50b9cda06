#include "kernels/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "kernels/device.h"

namespace plumbline {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::size_t kSmallest = 4096;  // Bytes; smaller buffers are left to the allocator.

// Sizes are rounded up to eight steps a power of two, so that similar ones are exchanged.
std::size_t size_class(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(64, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  static Pool& instance() {
    static Pool* const pool = new Pool;  // Outlives every array.
    return *pool;
  }

  void* take(std::size_t bytes) {
    if (bytes >= kSmallest) {
      const std::lock_guard lock(mutex_);
      const auto found = free_.find(bytes);
      if (found != free_.end() && !found->second.empty()) {
        void* const buffer = found->second.back();
        found->second.pop_back();
        reserved_ -= bytes;
        return buffer;
      }
    }
    return ::operator new(bytes, kAlignment);
  }

  void give(void* buffer, std::size_t bytes) {
    if (bytes >= kSmallest) {
      const std::lock_guard lock(mutex_);
      if (reserved_ + bytes <= limit_) {
        free_[bytes].push_back(buffer);
        reserved_ += bytes;
        return;
      }
    }
    ::operator delete(buffer, kAlignment);
  }

  void set_limit(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
    for (auto it = free_.rbegin(); it != free_.rend() && reserved_ > limit_; ++it) {
      while (!it->second.empty() && reserved_ > limit_) {
        ::operator delete(it->second.back(), kAlignment);
        it->second.pop_back();
        reserved_ -= it->first;
      }
    }
  }

  std::size_t reserved() {
    const std::lock_guard lock(mutex_);
    return reserved_;
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;  // By size.
  std::size_t reserved_ = 0;
  std::size_t limit_ = std::size_t{512} << 20;
};

}  // namespace

std::shared_ptr<double[]> allocate_buffer(std::int64_t count) {
  if (count < 0 || count > std::int64_t{1} << 58) throw std::bad_alloc();
  const std::size_t bytes = size_class(std::max<std::size_t>(1, static_cast<std::size_t>(count)) * sizeof(double));
  if (MemoryResource* const memory = current_memory()) {
    auto* const buffer = static_cast<double*>(memory->allocate(bytes));
    if (buffer == nullptr) throw std::bad_alloc();
    return {buffer, [memory, bytes](double* freed) { memory->free(freed, bytes); }};
  }
  auto* const buffer = static_cast<double*>(Pool::instance().take(bytes));
  return {buffer, [bytes](double* freed) { Pool::instance().give(freed, bytes); }};
}

void set_buffer_reserve_limit(std::int64_t bytes) {
  Pool::instance().set_limit(static_cast<std::size_t>(std::max<std::int64_t>(0, bytes)));
}

std::int64_t buffer_reserve_bytes() { return static_cast<std::int64_t>(Pool::instance().reserved()); }

}  // namespace plumbline
