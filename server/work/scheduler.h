// Audits onto workers: fair between jobs, in order within a run, within a memory budget. Knows neither traces nor
// transport. Thread-safe.
//
// Fair means round-robin between jobs: one that queues a hundred steps does not keep another's single step waiting for
// more than the audits that run already and one of its own turn's. The tasks of one run run one after the other, in
// order of submission; one that is not ready holds back its run only. A task that does not fit the memory that is left
// holds back everybody until it fits, or it would never get its turn.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace plumbline {

class Scheduler {
 public:
  using Ticket = std::uint64_t;

  struct Options {
    int workers = 1;
    std::uint64_t memory_bytes = UINT64_MAX;  // Of all tasks that run at a time.
  };

  struct Task {
    std::string job;
    std::string run;
    std::uint64_t bytes = 0;     // That it takes at most while it runs.
    bool ready = true;           // False: wait for make_ready().
    std::function<void()> work;  // Must not throw. Destroyed before the next task of its run starts.
  };

  explicit Scheduler(Options options);
  ~Scheduler();  // Drops what has not started, waits for what has.
  Scheduler(const Scheduler&) = delete;

  // RESOURCE_EXHAUSTED: larger than the whole budget. UNAVAILABLE: draining.
  absl::StatusOr<Ticket> submit(Task task);
  void make_ready(Ticket ticket);  // Of a task that has started or is unknown: no effect.

  // Takes no more tasks and waits until all have run; true if they have by `deadline`.
  bool drain(absl::Time deadline);

  std::int64_t queued() const;
  std::uint64_t memory_used() const;
  // Share of the workers' time that went into tasks since the last call, in [0, 1].
  double take_busy_ratio();

 private:
  struct Queued {
    Ticket ticket = 0;
    Task task;
  };
  struct Job {
    std::map<std::string, std::deque<Queued>> runs;  // A run whose task is being run has an entry, perhaps empty.
    std::list<std::string> order;                    // Of runs, the next one first.
    std::map<std::string, bool> running;
  };

  void loop();
  bool pick(Queued* picked);  // With the lock held.
  absl::Duration busy_now(absl::Time now) const;

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::map<std::string, Job> jobs_;
  std::list<std::string> order_;  // Of jobs, the next one first.
  Ticket next_ticket_ = 1;
  std::int64_t queued_ = 0;
  int running_ = 0;
  std::uint64_t memory_ = 0;
  bool draining_ = false;
  bool stop_ = false;
  absl::Duration busy_ = absl::ZeroDuration();  // Of tasks that have ended.
  std::map<Ticket, absl::Time> started_;
  absl::Time ratio_time_;
  absl::Duration ratio_busy_ = absl::ZeroDuration();
  std::vector<std::thread> workers_;  // Last: they use the others.
};

}  // namespace plumbline
