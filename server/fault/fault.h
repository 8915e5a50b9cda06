// No exception leaves a thread of the service: whatever a task throws is its own, is logged under an id, counted, and
// answered with INTERNAL and that id. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace plumbline {

// To be called within a catch block: logs what was thrown, `where`, counts it, and returns INTERNAL with the id.
absl::Status caught(std::string_view where) noexcept;

// Exceptions caught so far, by this process.
std::uint64_t faults() noexcept;

// Runs a task. INTERNAL: it threw.
template <class Task>
absl::Status contained(std::string_view where, Task&& task) noexcept {
  try {
    std::forward<Task>(task)();
    return absl::OkStatus();
  } catch (...) {
    return caught(where);
  }
}

}  // namespace plumbline
