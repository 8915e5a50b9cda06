// A device without hardware: host memory with a size, the host's operations, a clock of its own, and every fault that a
// test wants. The board is what stays when a Device is closed and opened again. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device.h"
#include "server/work/device_worker.h"

namespace plumbline::test {

class FakeBoard {
 public:
  explicit FakeBoard(std::int64_t total_bytes) : total_(total_bytes) {}
  ~FakeBoard();

  // Faults. Allocations are counted from now on, 1 is the next.
  void refuse_allocation(int number);                            // And every later one, until mend().
  void fail_at_allocation(int number, const std::string& what);  // An error that shows later, as a kernel's does.
  void fail(const std::string& what);                            // The same, at once.
  void lose();                                                   // For good: it cannot be opened again.
  void mend();

  void run(absl::Duration kernel);  // On the current device: takes its time on the board's clock.
  absl::Time now() const;

  std::int64_t allocated() const;
  std::int64_t most() const;  // Ever allocated.
  int opened() const;

  absl::StatusOr<std::unique_ptr<Device>> open();
  // A worker "cuda:N" on this board.
  std::unique_ptr<DeviceWorker> worker(const std::string& name, std::int64_t limit_bytes);

 private:
  friend class FakeDevice;
  const std::int64_t total_;
  mutable std::mutex mutex_;
  std::map<void*, std::int64_t> blocks_;
  std::int64_t allocated_ = 0, most_ = 0;
  int allocations_ = 0, refuse_from_ = 0, fail_at_ = 0, opened_ = 0;
  std::string failure_;  // To come at `fail_at_`.
  std::optional<DeviceError> error_;
  bool lost_ = false;
  absl::Time now_ = absl::UnixEpoch();
};

}  // namespace plumbline::test
