// A CUDA device to test on, and where its arrays come from.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "kernels/cuda/device.h"
#include "kernels/device.h"

namespace plumbline::testing {

// Straight from the device.
class Unpooled : public MemoryResource {
 public:
  explicit Unpooled(Device& device) : device_(device) {}
  void* allocate(std::size_t bytes) override { return device_.allocate(bytes); }
  void free(void* memory, std::size_t bytes) noexcept override { device_.free(memory, bytes); }
  std::int64_t limit() const override { return std::int64_t{1} << 40; }

 private:
  Device& device_;
};

// Kept for reuse: allocation is slow.
class Kept : public MemoryResource {
 public:
  explicit Kept(Device& device) : device_(device) {}
  ~Kept() override {
    for (const auto& [bytes, memory] : free_) device_.free(memory, bytes);
  }
  void* allocate(std::size_t bytes) override {
    const auto found = free_.find(bytes);
    if (found == free_.end()) return device_.allocate(bytes);
    void* const memory = found->second;
    free_.erase(found);
    return memory;
  }
  void free(void* memory, std::size_t bytes) noexcept override { free_.emplace(bytes, memory); }
  std::int64_t limit() const override { return std::int64_t{1} << 40; }

 private:
  Device& device_;
  std::multimap<std::size_t, void*> free_;
};

// Skipped where there is no device. PLUMBLINE_TEST_SLICED_WORK: the multiplications from which on products are sliced.
class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const work = std::getenv("PLUMBLINE_TEST_SLICED_WORK");
    open(work == nullptr ? 0 : std::atoll(work));
  }
  void open(std::int64_t sliced_work) {
    std::string reason;
    device_ = cuda::open(0, &reason, sliced_work);
    RecordProperty("device", device_ ? device_->name() : "");
    RecordProperty("reason", reason);
    if (!device_) GTEST_SKIP() << "no CUDA device: " << reason;
    memory_ = std::make_unique<Kept>(*device_);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Kept> memory_;
};

}  // namespace plumbline::testing
