// The memory of an array: the host's, or a device's and the host's, of which each holds the content once it was needed
// there. A device's memory is nothing that the host can read: what crosses is copied, all of the array at once, and
// stays on both sides until either writes.
//
// Fresh memory belongs to no side yet. Where the content is, and its copies, are safe from several threads; who reads
// while another writes is the callers' own affair, as in arrays of the host alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "kernels/buffer_pool.h"
#include "kernels/device.h"

namespace plumbline {

class ArrayMemory {
 public:
  // Room for `count` doubles in the scope of the calling thread, uninitialised. Throws std::bad_alloc.
  explicit ArrayMemory(std::int64_t count);

  Device* device() const { return device_; }  // Null: the host's memory alone.
  // The content lies on the device and nowhere else, so that the host would have to wait for it.
  bool away() const { return state() == kDevice; }

  // The content in the host's memory. Throws DeviceFailure where it did not come, std::bad_alloc.
  const double* read() { return device_ == nullptr || (state() & kHost) != 0 ? host_.get() : on_host(false); }
  // The same to be written: the device holds it no more.
  double* write() { return device_ == nullptr || state() == kHost ? host_.get() : on_host(true); }
  // The element at `place` alone, where the whole is too much to be brought for it.
  double element(std::int64_t place);
  // Whether all of it may stay on both sides, so that nobody brings it twice.
  bool keeps_copy() const { return count_ <= kCopiedMax; }

  // For work in the queue of the device that it has, which must be the calling thread's.
  const double* device_read() { return (state() & kDevice) != 0 ? of_device_.get() : on_device(false); }
  double* device_write() { return state() == kDevice ? of_device_.get() : on_device(true); }

 private:
  // Elements. A larger array is copied for who asks, and its copy goes with them.
  static constexpr std::int64_t kCopiedMax = std::int64_t{1} << 16;
  enum State : unsigned { kFresh = 0, kHost = 1, kDevice = 2, kBoth = 3 };

  unsigned state() const { return state_.load(std::memory_order_acquire); }
  double* on_host(bool write);
  double* on_device(bool write);
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(double); }

  const std::int64_t count_;
  Device* const device_;
  MemoryResource* const memory_;
  Buffer host_, of_device_;
  std::atomic<unsigned> state_ = kFresh;
  std::mutex mutex_;
};

}  // namespace plumbline
