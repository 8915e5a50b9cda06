#include "server/work/device_pool.h"

#include <algorithm>

namespace plumbline {
namespace {

constexpr std::size_t kGranule = 256;  // Sizes are multiples of the device's own alignment.

// SIZE_MAX and its like are beyond every limit.
std::int64_t rounded(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(INT64_MAX) - kGranule) return INT64_MAX;
  return static_cast<std::int64_t>((std::max<std::size_t>(1, bytes) + kGranule - 1) / kGranule * kGranule);
}

}  // namespace

DevicePool::~DevicePool() {
  while (give_back_largest()) {
  }
}

void* DevicePool::allocate(std::size_t bytes) {
  const std::int64_t size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  if (size > limit_ - use_.lent) return refuse();
  void* memory = nullptr;
  if (const auto found = kept_.find(size); found != kept_.end()) {
    memory = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) kept_.erase(found);
    use_.kept -= size;
  } else {
    while (size > limit_ - use_.lent - use_.kept) give_back_largest();
    memory = device_.allocate(static_cast<std::size_t>(size));
    if (memory == nullptr) {  // The device is full of others' memory: all of ours that nobody uses may help.
      while (give_back_largest()) {
      }
      memory = device_.allocate(static_cast<std::size_t>(size));
    }
    if (memory == nullptr) return refuse();
  }
  use_.lent += size;
  use_.most = std::max(use_.most, use_.lent + use_.kept);
  return memory;
}

void DevicePool::free(void* memory, std::size_t bytes) noexcept {
  const std::int64_t size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  use_.lent -= size;
  try {
    kept_[size].push_back(memory);
    use_.kept += size;
  } catch (...) {  // No host memory to note it in.
    device_.free(memory, static_cast<std::size_t>(size));
  }
}

DevicePool::Use DevicePool::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

// The largest first: each call to the device is dear, and it waits for all of its work.
bool DevicePool::give_back_largest() {
  if (kept_.empty()) return false;
  const auto largest = std::prev(kept_.end());
  device_.free(largest->second.back(), static_cast<std::size_t>(largest->first));
  use_.kept -= largest->first;
  largest->second.pop_back();
  if (largest->second.empty()) kept_.erase(largest);
  return true;
}

void* DevicePool::refuse() {
  ++use_.refused;
  return nullptr;
}

}  // namespace plumbline
