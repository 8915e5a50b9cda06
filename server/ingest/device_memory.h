// Memory of a device that another process of this node shares by a handle (CUDA IPC), as far as ingest needs it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace plumbline {

class SharedDeviceMemory {
 public:
  SharedDeviceMemory() = default;
  virtual ~SharedDeviceMemory() = default;  // Closes it: the other process may free it from then on.
  SharedDeviceMemory(const SharedDeviceMemory&) = delete;
  SharedDeviceMemory& operator=(const SharedDeviceMemory&) = delete;

  virtual std::uint64_t size() const = 0;
  virtual absl::Status copy(std::uint64_t offset, std::uint64_t bytes, void* to) = 0;  // Done when it returns.
};

// Opens memory by the device's UUID (16 bytes) and the handle (64 bytes). Thread-safe.
using OpenDeviceMemory = std::function<absl::StatusOr<std::unique_ptr<SharedDeviceMemory>>(const std::string& device,
                                                                                           const std::string& handle)>;

}  // namespace plumbline
