// Audits onto workers: the host's and those of devices. What a device fails (no memory, an error) is computed once more
// on the host; a device that is lost takes nothing more, and where no worker is left that could run a task, the task is
// told so. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/metrics/metrics.h"
#include "server/work/device_worker.h"
#include "server/work/scheduler.h"

namespace plumbline {

class Workers {
 public:
  struct Options {
    int host_workers = 1;  // 0: none.
    std::uint64_t host_bytes = UINT64_MAX;
    Metrics* metrics = nullptr;  // May be null.
    // It is told what an operator should know, a line at a time, and may be empty.
    std::function<void(const std::string&)> report;
    std::function<absl::Time()> now = absl::Now;
  };

  struct Ran {
    // INTERNAL: the computation threw (fault.h). FAILED_PRECONDITION: no worker is left that can run it.
    absl::Status status;
    std::string backend;             // "cpu", "cuda:0"
    std::vector<std::string> notes;  // What went wrong on the way.
  };
  struct Task {
    std::string job;
    std::string run;
    std::uint64_t bytes = 0;
    bool ready = true;
    std::function<void()> compute;           // Where it is called again, from the start, its first results are void.
    std::function<void(const Ran&)> finish;  // Once, on the same thread. What it throws is lost.
    double multiplications = 0;              // That it is taken to be.
    std::string owner = "";                  // The job's owner.
  };

  Workers(Options options, std::vector<std::unique_ptr<DeviceWorker>> devices);

  absl::StatusOr<Scheduler::Ticket> submit(Task task);  // As Scheduler::submit.
  void make_ready(Scheduler::Ticket ticket) { scheduler_.make_ready(ticket); }
  bool drain(absl::Time deadline) { return scheduler_.drain(deadline); }

  bool any_left() const;
  std::int64_t queued() const { return scheduler_.queued(); }
  std::uint64_t memory_used() const;
  std::uint64_t memory_max() const { return scheduler_.memory_max(); }  // That one task may take.
  double take_busy_ratio() { return scheduler_.take_busy_ratio(); }
  void show(Metrics* metrics) const;  // What each worker is and holds, for a scrape.
  std::string describe() const;       // "cuda:0 (NVIDIA H100, 8127 MiB), cpu x 2"

 private:
  struct State;
  Scheduler::Ran run(State& state, const Scheduler::Turn& turn);
  void finish(State& state);
  void device_failed(std::size_t place, const absl::Status& failed);

  const Options options_;
  const std::vector<std::unique_ptr<DeviceWorker>> devices_;  // One for each place; the host comes after them.
  Scheduler scheduler_;                                       // Last: its threads use the others.
};

}  // namespace plumbline
