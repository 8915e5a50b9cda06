// A device that computes beside the processor, as far as the daemon needs to know it: memory, a queue of work, errors,
// and its own table of operations. kernels/cuda implements it; a fake one tests scheduler and pools without hardware.
//
// A Device is one queue: work is launched by one thread, the worker that owns it, and runs in order. Everything that
// was launched may still be running when a call returns. Its memory is nothing that the host reads or writes: `fetch`
// and `send` copy (kernels/array_memory.h calls them where an array's content is needed on the other side).
//
//   DeviceScope scope(device, memory);  // In the worker's thread.
//   ...                                 // Arrays are made in `memory`, primitives run on `device`.
//   if (auto error = device.take_error()) ...
//
// Devices and memory resources outlive every Array that was made in their scope.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace plumbline {

struct Operations;  // kernels/operations.h

struct DeviceError {
  std::string message;
  bool lost = false;  // The device computes no more for this process's context: make a new Device, or give it up.
};

// Thrown by `wait` and by work that finds its device failed. What was computed since the last wait is worth nothing;
// take_error says what happened. (Out of memory is std::bad_alloc, as on the host.)
class DeviceFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Device;

// What Device::bring brings. Throws DeviceFailure where it did not come.
class Brought {
 public:
  Brought(Device* device, std::shared_ptr<const double[]> numbers, std::uint64_t launch)
      : device_(device), numbers_(std::move(numbers)), launch_(launch) {}
  const double* get() const;

 private:
  Device* device_;
  std::shared_ptr<const double[]> numbers_;
  std::uint64_t launch_;  // The copy has run when this one has.
};

class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual std::string name() const = 0;          // "NVIDIA H100 80GB HBM3"
  virtual std::int64_t total_bytes() const = 0;  // The size of the device's own memory.

  // Memory of the device, aligned to 256 bytes; slow, so that a pool stands in front of it. Null where it has no more.
  // Any thread. Freed memory may still be read by work in the queue: a pool may hand it out again at once, to this
  // device alone.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* memory, std::size_t bytes) noexcept = 0;

  // Blocks until everything launched has run. Any thread. Throws DeviceFailure where it did not run.
  void wait() { wait_for(launches()); }
  // The same up to the launch of this number.
  void wait_for(std::uint64_t launch) {
    if (done_.load(std::memory_order_acquire) < launch) synchronise();
  }
  // Work was put into the queue: the next `wait` blocks.
  void launched() { launches_.fetch_add(1, std::memory_order_release); }

  // Bytes of its memory, copied to the host's when all that was launched has run. Any thread.
  virtual void fetch(const void* from, std::size_t bytes, void* to) {
    wait();
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  // A few elements of its memory, on their way to the host's: whoever reads them first waits, unless somebody waited
  // since. By the thread that launches; `from` may be written again by work that is launched later.
  Brought bring(const double* from, std::int64_t count) {
    std::shared_ptr<const double[]> numbers = land(from, count);
    return {this, std::move(numbers), launches()};
  }
  // Bytes of the host's memory, copied to its own after all that was launched before; `from` may go on its return.
  virtual void send(const void* from, std::size_t bytes, void* to) { fetch(from, bytes, to); }
  double read(const double* element) {  // One of them.
    double value = 0;
    fetch(element, sizeof value, &value);
    return value;
  }

  // Elements of work that are left to the host where all that the work reads lies there: a launch and the wait for its
  // result take longer. Set before all else; 0: none is.
  std::int64_t host_work() const { return host_work_; }
  void set_host_work(std::int64_t elements) { host_work_ = elements; }

  // The first error since the last call; nothing after it counts. One that is lost stays.
  virtual std::optional<DeviceError> take_error() = 0;

  // What it computes: its own, or the host's.
  virtual const Operations& operations() const = 0;

 protected:
  virtual void synchronise() = 0;  // Blocks, then calls idle(); throws DeviceFailure.
  void idle() { idle(launches()); }
  void idle(std::uint64_t launch) { done_.store(launch, std::memory_order_release); }  // All up to it have run.
  std::uint64_t launches() const { return launches_.load(std::memory_order_acquire); }

  // Where elements of its memory land once all that was launched has run, their copy included.
  virtual std::shared_ptr<const double[]> land(const double* from, std::int64_t count) {
    std::shared_ptr<double[]> numbers(new double[static_cast<std::size_t>(count)]);
    fetch(from, static_cast<std::size_t>(count) * sizeof(double), numbers.get());
    return numbers;
  }

 private:
  std::atomic<std::uint64_t> launches_ = 0, done_ = 0;
  std::int64_t host_work_ = 0;
};

inline const double* Brought::get() const {
  device_->wait_for(launch_);
  return numbers_.get();
}

// Where buffers of arrays come from. Thread-safe; `free` from any thread, with the same size.
class MemoryResource {
 public:
  MemoryResource() = default;
  virtual ~MemoryResource() = default;
  MemoryResource(const MemoryResource&) = delete;
  MemoryResource& operator=(const MemoryResource&) = delete;

  virtual void* allocate(std::size_t bytes) = 0;  // Aligned to 64 bytes or more; null beyond the limit.
  virtual void free(void* memory, std::size_t bytes) noexcept = 0;
  virtual std::int64_t limit() const = 0;  // Bytes that are never exceeded, unused ones included.
};

// While it lives, primitives called by this thread run on `device` and its arrays are made in `memory`, which must be
// memory of that device. Scopes nest. Threads that parallel_for calls have no device of their own.
class DeviceScope {
 public:
  DeviceScope(Device& device, MemoryResource& memory) : DeviceScope(&device, &memory) {}
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 protected:
  DeviceScope(Device* device, MemoryResource* memory);

 private:
  Device* device_;
  MemoryResource* memory_;
};

// While it lives, the calling thread computes on the host, in the host's memory.
class HostScope : public DeviceScope {
 public:
  HostScope() : DeviceScope(nullptr, nullptr) {}
};

// The device on which the calling thread computes; null stands for the host and its pool.
Device* current_device();
MemoryResource* current_memory();

}  // namespace plumbline
