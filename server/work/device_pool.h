// A device's memory for arrays, under a hard limit: what is lent out and what is kept to be lent again never exceed it
// together. Kept memory goes back to the device when something else needs the room. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/device.h"

namespace plumbline {

class DevicePool final : public MemoryResource {
 public:
  DevicePool(Device& device, std::int64_t limit_bytes) : device_(device), limit_(limit_bytes) {}
  ~DevicePool() override;  // Nothing may be lent out any more.

  void* allocate(std::size_t bytes) override;
  void free(void* memory, std::size_t bytes) noexcept override;
  std::int64_t limit() const override { return limit_; }

  struct Use {
    std::int64_t lent = 0;
    std::int64_t kept = 0;
    std::int64_t most = 0;     // The most that both together ever were.
    std::int64_t refused = 0;  // Allocations that got nothing.
  };
  Use use() const;

 private:
  bool give_back_largest();  // With the lock held, as below.
  void* refuse();

  Device& device_;
  const std::int64_t limit_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::vector<void*>> kept_;  // The key is the size.
  Use use_;
};

}  // namespace plumbline
