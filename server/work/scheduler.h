// Tasks onto places where they can run (the host, devices): fair between jobs, in order within a run, within each
// place's memory. Knows neither traces nor devices nor transport. Thread-safe.
//
// Fair means that jobs which have tasks waiting share a place's time, whatever their tasks cost: start-time fair
// queueing (Goyal, Vin, Cheng 1996), a job's task starts at the virtual time where its last one ended. So one that
// queues a hundred steps does not keep another's single step waiting for more than the tasks that run already and one
// of its own turn's. The tasks of one run run one after the other, in order of submission; one that is not ready holds
// back its run only. A task that does not fit the memory that is left holds back everybody at its place until it fits,
// or it would never get its turn.
//
// Tasks are not interrupted, so that long ones would still hold every worker: while jobs of short tasks are about,
// those of long ones leave each place's last free worker to them, where it has more than one.
//
// Devices come before the host: there a task runs only if it fits no device, if it would fit but the device's memory is
// taken, or if a device has failed it. What can run nowhere (any more) is run with Why::kNowhere: nothing hangs.
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
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace plumbline {

class Scheduler {
 public:
  using Ticket = std::uint64_t;

  struct Place {
    std::string name = "cpu";
    int workers = 1;
    std::uint64_t memory_bytes = UINT64_MAX;  // Of all tasks that run here at a time.
    bool device = false;
  };
  struct Options {
    std::vector<Place> places = {Place{}};
    std::function<absl::Time()> now = absl::Now;
  };

  struct Turn {
    enum class Why {
      kOwn,       // On a device; on the host where there is no device.
      kTooLarge,  // On the host: larger than any device's memory.
      kFull,      // On the host: a device's memory is taken by others.
      kFailed,    // On the host: a device has failed it.
      kNowhere    // `place` means nothing: the task must give up.
    };
    std::size_t place = 0;
    Why why = Why::kOwn;
  };
  enum class Ran {
    kDone,
    kFailed  // By its device: again, on the host, before anything else of its run.
  };

  struct Task {
    std::string job;
    std::string run;
    std::uint64_t bytes = 0;               // That it takes at most while it runs.
    bool ready = true;                     // False: wait for make_ready().
    std::function<Ran(const Turn&)> work;  // Must not throw. Destroyed before the next task of its run starts.
  };

  explicit Scheduler(Options options);
  ~Scheduler();  // Drops what has not started, waits for what has.
  Scheduler(const Scheduler&) = delete;

  // RESOURCE_EXHAUSTED: larger than every place's memory. FAILED_PRECONDITION: every place is closed. UNAVAILABLE:
  // draining.
  absl::StatusOr<Ticket> submit(Task task);
  void make_ready(Ticket ticket);  // Of a task that has started or is unknown: no effect.
  void close(std::size_t place);   // It runs nothing more, for good.

  // Takes no more tasks and waits until all have run; true if they have by `deadline`.
  bool drain(absl::Time deadline);

  const std::vector<Place>& places() const { return options_.places; }
  bool open(std::size_t place) const;
  std::uint64_t memory_max() const;  // A task may take: that of the largest open place; 0: none is open.
  std::int64_t queued() const;
  std::uint64_t memory_used(std::size_t place) const;
  // Share of the workers' time that went into tasks since the last call, in [0, 1].
  double take_busy_ratio();

 private:
  struct Queued {
    Ticket ticket = 0;
    Task task;
    bool failed = false;  // By a device.
  };
  struct Job {
    std::map<std::string, std::deque<Queued>> runs;  // A run whose task is being run has an entry, perhaps empty.
    std::list<std::string> order;                    // Of runs, the next one first.
    std::map<std::string, bool> running;
  };
  struct State {  // Of a place.
    bool open = true;
    std::uint64_t memory = 0;                          // Of the tasks that run here.
    absl::Duration clock = absl::ZeroDuration();       // Virtual: where the last task that was taken started.
    std::map<std::string, absl::Duration> served;      // By job: where its next task starts, if not behind `clock`.
    std::map<std::string, absl::Duration> last_costs;  // By job: what a task is charged until it has ended.
    int running = 0;
    std::map<std::string, absl::Time> short_ended, long_ended;  // By job: when its last task of this kind did.
  };
  struct Running {
    absl::Time start;
    absl::Duration charged;
  };

  void loop(std::size_t place);
  const Place* largest_open() const;  // With the lock held, as all below.
  bool pick(std::size_t place, Queued* picked, Turn* turn);
  Turn::Why why_at(std::size_t place, const Queued& queued) const;
  bool leaves_to_others(std::size_t place, const std::string& job) const;
  bool may_run_here(std::size_t place, Turn::Why why) const;
  void started(const Queued& picked, const Turn& turn);
  void ended(Queued* current, const Turn& turn, Ran ran);
  absl::Duration busy_now(absl::Time now) const;

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::vector<State> states_;  // Of places.
  std::map<std::string, Job> jobs_;
  std::list<std::string> order_;  // Of jobs, the next one first among equals.
  Ticket next_ticket_ = 1;
  std::int64_t queued_ = 0;
  bool draining_ = false;
  bool stop_ = false;
  absl::Duration busy_ = absl::ZeroDuration();  // Of tasks that have ended.
  std::map<Ticket, Running> running_;
  absl::Time ratio_time_;
  absl::Duration ratio_busy_ = absl::ZeroDuration();
  std::vector<std::thread> workers_;  // Last: they use the others.
};

}  // namespace plumbline
