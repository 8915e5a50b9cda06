// Tasks onto places where they can run (the host, devices): fair between owners and between an owner's jobs, in order
// within a run, within each place's memory. Knows neither traces nor devices nor transport. Thread-safe.
//
// Fair means that owners (and jobs) which have tasks waiting share a place's time, whatever their tasks cost
// (fair_shares.h). So one that queues a hundred steps does not keep another's single step waiting for more than the
// tasks that run already and one of its own turn's. The tasks of one run run one after the other, in order of
// submission; one that is not ready holds back its run only. A task that does not fit the memory that is left holds
// back everybody at its place until it fits, or it would never get its turn.
//
// Tasks are not interrupted, so that long ones would still hold every worker of the host. Each of its workers is one
// for short tasks and one for long ones, which while others' short tasks are about is a thread that the system runs
// after theirs; one worker of several then takes no long task, so that who wakes up finds a processor without one.
// Which a task is, is expected before it starts: by the work that it is said to be, and by what the job's last task
// took. Where memory is short, a long task holds back short ones only if it fits once these have ended.
//
// Whoever changes something gives tasks to the threads that can take them, and wakes no other thread: one that stands
// back and woke for nothing could lose its processor while it holds the lock that all wait for.
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
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/work/fair_shares.h"

namespace plumbline {

class Scheduler {
 public:
  using Ticket = std::uint64_t;

  static absl::Duration spent_by_this_thread();

  struct Place {
    std::string name = "cpu";
    int workers = 1;                          // A device has one, and no task is long.
    std::uint64_t memory_bytes = UINT64_MAX;  // All tasks that run here at a time may take so much.
    bool device = false;
  };
  struct Options {
    std::vector<Place> places = {Place{}};
    std::function<absl::Time()> now = absl::Now;
    // The processor time of the calling thread is what tasks cost on the host, however busy the machine is.
    std::function<absl::Duration()> spent = &spent_by_this_thread;
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
    kFailed  // Its device failed it: it runs again, on the host, before anything else of its run.
  };

  struct Task {
    std::string job;
    std::string run;
    std::uint64_t bytes = 0;               // That it takes at most while it runs.
    bool ready = true;                     // False: wait for make_ready().
    std::function<Ran(const Turn&)> work;  // Must not throw. Destroyed before the next task of its run starts.
    double multiplications = 0;            // That it is taken to be; 0: nothing is known.
    std::string owner = "";                // The job's owner.
  };

  static constexpr absl::Duration kShort = absl::Milliseconds(100);  // A task may cost and still be a short one.

  explicit Scheduler(Options options);
  ~Scheduler();  // Drops what has not started, waits for what has.
  Scheduler(const Scheduler&) = delete;

  // RESOURCE_EXHAUSTED: larger than every place's memory. FAILED_PRECONDITION: every place is closed. UNAVAILABLE:
  // draining.
  absl::StatusOr<Ticket> submit(Task task);
  void make_ready(Ticket ticket);  // It has no effect on a task that has started or is unknown.
  void close(std::size_t place);   // It runs nothing more, for good.

  // Takes no more tasks and waits until all have run; true if they have by `deadline`.
  bool drain(absl::Time deadline);

  const std::vector<Place>& places() const { return options_.places; }
  bool open(std::size_t place) const;
  std::uint64_t memory_max() const;  // A task may take: that of the largest open place; 0: none is open.
  std::int64_t queued() const;
  std::uint64_t memory_used(std::size_t place) const;
  bool waits_for_memory(std::size_t place) const;  // A long task.
  // Share of the workers' time that went into tasks since the last call, in [0, 1].
  double take_busy_ratio();

 private:
  struct Queued {
    Ticket ticket = 0;
    Task task;
    bool failed = false;  // A device failed it.
  };
  using JobKey = std::pair<std::string, std::string>;  // Its owner, its name.
  enum class Lane { kAhead, kBehind };                 // Whether others come before a thread.
  struct Job {
    std::map<std::string, std::deque<Queued>> runs;  // A run whose task is being run has an entry, perhaps empty.
    std::list<std::string> order;                    // The runs, the next one first.
    std::map<std::string, bool> running;
  };
  struct Last {  // Task of a job at a place.
    absl::Time ended;
    absl::Duration cost;
    double multiplications = 0;
  };
  struct State {  // Each place has one.
    bool open = true;
    std::uint64_t memory = 0, memory_of_long = 0;  // The tasks that run here take so much.
    std::uint64_t waiting_long = 0;                // Bytes of the long task that waits for memory; 0: none does.
    int running_short = 0, running_long = 0;
    FairShares owners;
    std::map<std::string, FairShares> jobs;  // The key is an owner.
    std::map<JobKey, Last> last;             // It holds jobs that ran something lately.
  };
  struct Running {
    absl::Time start;
    absl::Duration charged;
    bool is_long = false;
  };
  // A thread of a place. It sleeps unless it was given a task.
  struct Worker {
    std::size_t place = 0;
    Lane lane = Lane::kAhead;
    std::condition_variable wake;
    bool idle = false, looks_again = false;  // It sleeps; and not for longer than some time.
    std::optional<Queued> given;
    Turn turn;
  };
  // What a worker could take of a job.
  struct Choice {
    std::list<JobKey>::iterator job;
    std::list<std::string>::iterator run;
    std::pair<absl::Duration, absl::Duration> start;  // The owner's, and the job's.
    Turn::Why why = Turn::Why::kOwn;
    absl::Duration expected;
  };

  void loop(Worker* self);
  const Place* largest_open() const;  // With the lock held, as all below.
  // Gives tasks to idle workers, to this one first.
  void give(Worker* first = nullptr);
  void sleep(Worker* self, std::unique_lock<std::mutex>* lock);
  bool pick(std::size_t place, Lane lane, Queued* picked, Turn* turn, absl::Duration* expects);
  std::optional<Choice> choose(std::size_t place, Lane lane);
  std::optional<Choice> choose_of(std::list<JobKey>::iterator job, std::size_t place, Lane lane);
  Turn::Why why_at(std::size_t place, const Queued& queued) const;
  absl::Duration expected(const State& state, const JobKey& job, const Task& task) const;
  bool short_ones_about(const State& state, const JobKey& beside) const;
  bool takes(std::size_t place, Lane lane, const JobKey& job, absl::Duration expected) const;
  bool fits(std::size_t place, Lane lane, std::uint64_t bytes);
  void started(const Queued& picked, const Turn& turn, absl::Duration expects);
  void account(const Task& task, const Turn& turn, const Running& running, absl::Duration cost);
  void forget_served();
  void ended(Queued* current, const Turn& turn, Ran ran, absl::Duration spent);
  absl::Duration busy_now(absl::Time now) const;

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<State> states_;  // There is one for each place.
  std::map<JobKey, Job> jobs_;
  std::list<JobKey> order_;  // The jobs, the next one first among equals.
  Ticket next_ticket_ = 1;
  std::int64_t queued_ = 0;
  bool draining_ = false;
  bool stop_ = false;
  absl::Duration busy_ = absl::ZeroDuration();  // The time of tasks that have ended.
  std::map<Ticket, Running> running_;
  absl::Time ratio_time_;
  absl::Duration ratio_busy_ = absl::ZeroDuration();
  std::deque<Worker> workers_;
  std::vector<std::thread> threads_;  // One for each of them. Last: they use the others.
};

}  // namespace plumbline
