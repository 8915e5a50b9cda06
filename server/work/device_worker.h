// One device at work: opened, given a pool under a limit, watched, opened again after an error, given up when it fails
// time after time or is not there any more. `run` is for one thread; the rest is thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "server/work/device_pool.h"

namespace plumbline {

class DeviceWorker {
 public:
  using Open = std::function<absl::StatusOr<std::unique_ptr<Device>>()>;
  // Bytes of a device that has so many in all.
  using Limit = std::function<absl::StatusOr<std::int64_t>(std::int64_t total_bytes)>;

  static constexpr int kFailuresMax = 3;  // One after the other: the device is given up.

  static absl::StatusOr<std::unique_ptr<DeviceWorker>> open(std::string name, Open open, const Limit& limit);

  // Runs `work` with its arrays and primitives on the device. OK: what it computed counts. RESOURCE_EXHAUSTED: it got
  // no memory. INTERNAL: the device reported an error. What `work` itself throws, where the device did nothing wrong,
  // is thrown.
  absl::Status run(const std::function<void()>& work);

  const std::string& name() const { return name_; }        // "cuda:0"
  const std::string& product() const { return product_; }  // "NVIDIA H100 80GB HBM3"
  std::int64_t limit_bytes() const { return limit_bytes_; }
  bool lost() const;  // Given up: run() must not be called any more.
  std::int64_t restarts() const;
  DevicePool::Use memory() const;

 private:
  DeviceWorker(std::string name, Open open) : name_(std::move(name)), open_(std::move(open)) {}
  absl::Status restart(const DeviceError& error);

  const std::string name_;
  const Open open_;
  std::string product_;
  std::int64_t limit_bytes_ = 0;
  int failures_ = 0;  // One after the other.
  mutable std::mutex mutex_;
  std::unique_ptr<Device> device_;    // Null: lost.
  std::unique_ptr<DevicePool> pool_;  // After its device.
  std::int64_t restarts_ = 0;
};

}  // namespace plumbline
