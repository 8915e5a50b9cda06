// --workers and --gpu-memory-limit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plumbline {

struct WorkerList {
  std::vector<int> cuda;  // Numbers of devices, in the order given.
  int cpu = 0;            // Audits at a time on the host.
};

// "cuda:0,cuda:1,cpu,cpu" or "cpu:2". Errors name the entry.
absl::StatusOr<WorkerList> parse_workers(const std::string& text);

// A part of a device's memory: "8GiB" or "10%".
struct DeviceMemory {
  std::uint64_t bytes = 0;  // 0: percent holds.
  double percent = 10;
};
absl::StatusOr<DeviceMemory> parse_device_memory(const std::string& text);
// Bytes of a device that has so many in all.
absl::StatusOr<std::int64_t> device_memory_bytes(const DeviceMemory& wanted, std::int64_t total_bytes);

}  // namespace plumbline
