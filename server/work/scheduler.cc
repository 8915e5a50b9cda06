#include "server/work/scheduler.h"

#include <time.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/parallel.h"
#include "server/work/steady.h"

namespace plumbline {
namespace {

constexpr absl::Duration kAbout = absl::Seconds(10);  // How long a job is taken to be about after a task.
// It counts what a task is said to be, which audits compute several times.
constexpr double kMultiplicationsPerSecond = 1e9;
constexpr double kHistory = 20;

bool lately(absl::Time ended, absl::Time now) { return now - ended < kAbout; }

}  // namespace

absl::Duration Scheduler::spent_by_this_thread() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return absl::DurationFromTimespec(spent);
}

Scheduler::Scheduler(Options options)
    : options_(std::move(options)), states_(options_.places.size()), ratio_time_(options_.now()) {
  for (std::size_t place = 0; place < options_.places.size(); ++place) {
    const Place& each = options_.places[place];
    const auto add = [&](Lane lane) {
      Worker& worker = workers_.emplace_back();
      worker.place = place;
      worker.lane = lane;
    };
    for (int i = 0; i < each.workers; ++i) {
      add(Lane::kAhead);
      if (each.device) continue;
      add(Lane::kAhead);   // One has a short task, the other a long one,
      add(Lane::kBehind);  // unless this one has it.
    }
  }
  for (Worker& worker : workers_) threads_.emplace_back([this, &worker] { loop(&worker); });
}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (Worker& worker : workers_) worker.wake.notify_one();
  }
  for (auto& thread : threads_) thread.join();
}

absl::StatusOr<Scheduler::Ticket> Scheduler::submit(Task task) {
  const std::lock_guard lock(mutex_);
  if (draining_ || stop_) return absl::UnavailableError("the daemon is draining");
  const Place* const largest = largest_open();
  if (largest == nullptr) return absl::FailedPreconditionError("no worker is left: each of --workers has failed");
  if (task.bytes > largest->memory_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("auditing the step takes up to ", task.bytes, " bytes, more than the ", largest->memory_bytes,
                     " that ", largest->device ? "--gpu-memory-limit" : "--memory-limit", " leaves for audits"));
  }
  const Ticket ticket = next_ticket_++;
  const JobKey key{task.owner, task.job};
  const auto [job, fresh_job] = jobs_.try_emplace(key);
  if (fresh_job) order_.push_back(key);
  const auto [run, fresh_run] = job->second.runs.try_emplace(task.run);
  if (fresh_run) job->second.order.push_back(task.run);
  run->second.push_back({ticket, std::move(task), false});
  ++queued_;
  give();
  return ticket;
}

void Scheduler::make_ready(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  for (auto& [job_name, job] : jobs_) {
    for (auto& [run_name, run] : job.runs) {
      for (Queued& queued : run) {
        if (queued.ticket == ticket) queued.task.ready = true;
      }
    }
  }
  give();
}

void Scheduler::close(std::size_t place) {
  const std::lock_guard lock(mutex_);
  states_[place].open = false;
  give();
}

bool Scheduler::open(std::size_t place) const {
  const std::lock_guard lock(mutex_);
  return states_[place].open;
}

const Scheduler::Place* Scheduler::largest_open() const {
  const Place* largest = nullptr;
  for (std::size_t place = 0; place < states_.size(); ++place) {
    const Place& each = options_.places[place];
    if (states_[place].open && (largest == nullptr || each.memory_bytes > largest->memory_bytes)) largest = &each;
  }
  return largest;
}

std::uint64_t Scheduler::memory_max() const {
  const std::lock_guard lock(mutex_);
  const Place* const largest = largest_open();
  return largest == nullptr ? 0 : largest->memory_bytes;
}

bool Scheduler::drain(absl::Time deadline) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const auto idle = [this] { return queued_ == 0 && running_.empty(); };
  if (deadline == absl::InfiniteFuture()) {
    idle_.wait(lock, idle);
    return true;
  }
  return idle_.wait_for(lock, absl::ToChronoNanoseconds(deadline - steady_now()), idle);
}

std::int64_t Scheduler::queued() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

std::uint64_t Scheduler::memory_used(std::size_t place) const {
  const std::lock_guard lock(mutex_);
  return states_[place].memory;
}

bool Scheduler::waits_for_memory(std::size_t place) const {
  const std::lock_guard lock(mutex_);
  return states_[place].waiting_long > 0;
}

absl::Duration Scheduler::busy_now(absl::Time now) const {
  absl::Duration busy = busy_;
  for (const auto& [ticket, running] : running_) busy += now - running.start;
  return busy;
}

double Scheduler::take_busy_ratio() {
  const std::lock_guard lock(mutex_);
  const absl::Time now = options_.now();
  const absl::Duration busy = busy_now(now);
  double workers = 0;
  for (const Place& place : options_.places) workers += place.workers;
  const double capacity = absl::ToDoubleSeconds(now - ratio_time_) * workers;
  const double ratio = capacity > 0 ? absl::ToDoubleSeconds(busy - ratio_busy_) / capacity : 0;
  ratio_time_ = now;
  ratio_busy_ = busy;
  return std::clamp(ratio, 0.0, 1.0);
}

// Where a task belongs at the moment: kOwn is a device's if there are devices.
Scheduler::Turn::Why Scheduler::why_at(std::size_t place, const Queued& queued) const {
  using Why = Turn::Why;
  bool host_holds = false, device_holds = false, device_has_room = false, any_device = false;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    any_device = any_device || options_.places[i].device;
    const std::uint64_t memory = options_.places[i].memory_bytes;
    if (!states_[i].open || queued.task.bytes > memory) continue;
    if (!options_.places[i].device) {
      host_holds = true;
    } else if (!queued.failed) {
      device_holds = true;
      device_has_room = device_has_room || queued.task.bytes <= memory - states_[i].memory;
    }
  }
  if (!host_holds && !device_holds) return Why::kNowhere;
  if (options_.places[place].device || !any_device) return Why::kOwn;
  if (queued.failed) return Why::kFailed;
  if (!device_holds) return Why::kTooLarge;
  return device_has_room ? Why::kOwn : Why::kFull;
}

// What a task will take: as its job's last one did, or more by as much as it is larger; without one, by its work, of
// which no history lowers it by more than kHistory: a task that gave up early tells little of the next.
absl::Duration Scheduler::expected(const State& state, const JobKey& job, const Task& task) const {
  const absl::Duration by_work = absl::Seconds(task.multiplications / kMultiplicationsPerSecond);
  const auto last = state.last.find(job);
  if (last == state.last.end()) return by_work;
  const double before = last->second.multiplications;
  const double larger = before > 0 ? std::max(1.0, task.multiplications / before) : 1.0;
  return std::max(by_work / (before > 0 ? kHistory : 1.0), last->second.cost * larger);
}

bool Scheduler::short_ones_about(const State& state, const JobKey& beside) const {
  const absl::Time now = options_.now();
  return std::ranges::any_of(state.last, [&](const auto& other) {
    return other.first != beside && other.second.cost <= kShort && lately(other.second.ended, now);
  });
}

// Whether a thread of this lane takes such a task, if there is memory.
bool Scheduler::takes(std::size_t place, Lane lane, const JobKey& job, absl::Duration expected) const {
  const State& state = states_[place];
  const int workers = options_.places[place].workers;
  if (options_.places[place].device) return true;
  if (expected <= kShort) return lane == Lane::kAhead && state.running_short < workers;
  if (short_ones_about(state, job)) return lane == Lane::kBehind && state.running_long < std::max(1, workers - 1);
  return lane == Lane::kAhead && state.running_long < workers;
}

// What a worker could take of a job: the next task of its first run that has one for this lane.
std::optional<Scheduler::Choice> Scheduler::choose_of(std::list<JobKey>::iterator job_key, std::size_t place,
                                                      Lane lane) {
  const Place& here = options_.places[place];
  const State& state = states_[place];
  const bool any_device =
      std::any_of(options_.places.begin(), options_.places.end(), [](const Place& each) { return each.device; });
  Job& job = jobs_.at(*job_key);
  for (auto run_name = job.order.begin(); run_name != job.order.end(); ++run_name) {
    const std::deque<Queued>& run = job.runs.at(*run_name);
    if (run.empty() || job.running.count(*run_name) > 0 || !run.front().task.ready) continue;
    const Queued& next = run.front();
    const Turn::Why why = why_at(place, next);
    const absl::Duration expects = expected(state, *job_key, next.task);
    if (why != Turn::Why::kNowhere) {
      if (!state.open || next.task.bytes > here.memory_bytes) continue;
      if (here.device ? next.failed : any_device && why == Turn::Why::kOwn) continue;  // Another place's.
      if (!takes(place, lane, *job_key, expects)) continue;
    }
    const auto shares = state.jobs.find(job_key->first);
    const absl::Duration start =
        shares == state.jobs.end() ? absl::ZeroDuration() : shares->second.start(job_key->second);
    return Choice{job_key, run_name, {state.owners.start(job_key->first), start}, why, expects};
  }
  return std::nullopt;
}

std::optional<Scheduler::Choice> Scheduler::choose(std::size_t place, Lane lane) {
  std::optional<Choice> chosen;
  for (auto job = order_.begin(); job != order_.end(); ++job) {
    const auto choice = choose_of(job, place, lane);
    if (choice && (!chosen || choice->start < chosen->start)) chosen = choice;
  }
  return chosen;
}

// Whether a task that was chosen has the memory that it needs, and is not to leave it to a long one.
bool Scheduler::fits(std::size_t place, Lane lane, std::uint64_t bytes) {
  State& state = states_[place];
  const std::uint64_t memory = options_.places[place].memory_bytes;
  const bool fits = bytes <= memory - state.memory;
  if (lane == Lane::kBehind) {
    state.waiting_long = fits ? 0 : bytes;
    return fits;
  }
  const bool held_back = state.waiting_long > 0 && state.waiting_long <= memory - state.memory_of_long;
  return fits && !held_back;
}

bool Scheduler::pick(std::size_t place, Lane lane, Queued* picked, Turn* turn, absl::Duration* expects) {
  if (lane == Lane::kBehind) states_[place].waiting_long = 0;
  const auto chosen = choose(place, lane);
  if (!chosen) return false;
  Job& job = jobs_.at(*chosen->job);
  std::deque<Queued>& run = job.runs.at(*chosen->run);
  if (chosen->why != Turn::Why::kNowhere && !fits(place, lane, run.front().task.bytes)) return false;
  *picked = std::move(run.front());
  run.pop_front();
  *turn = {place, chosen->why};
  *expects = chosen->expected;
  job.running[*chosen->run] = true;
  job.order.splice(job.order.end(), job.order, chosen->run);
  order_.splice(order_.end(), order_, chosen->job);
  return true;
}

void Scheduler::started(const Queued& picked, const Turn& turn, absl::Duration expects) {
  State& state = states_[turn.place];
  const Task& task = picked.task;
  --queued_;
  const bool is_long = expects > kShort;
  running_[picked.ticket] = {options_.now(), expects, is_long};
  if (turn.why == Turn::Why::kNowhere) return;
  state.memory += task.bytes;
  if (is_long) state.memory_of_long += task.bytes;
  ++(is_long ? state.running_long : state.running_short);
  state.owners.begin(task.owner, expects);
  state.jobs[task.owner].begin(task.job, expects);
}

void Scheduler::account(const Task& task, const Turn& turn, const Running& running, absl::Duration cost) {
  if (turn.why == Turn::Why::kNowhere) return;
  State& state = states_[turn.place];
  const absl::Time now = options_.now();
  state.memory -= task.bytes;
  if (running.is_long) state.memory_of_long -= task.bytes;
  --(running.is_long ? state.running_long : state.running_short);
  state.owners.end(task.owner, cost - running.charged);
  state.jobs[task.owner].end(task.job, cost - running.charged);
  std::erase_if(state.last, [now](const auto& each) { return !lately(each.second.ended, now); });
  const auto [last, fresh] = state.last.try_emplace({task.owner, task.job});
  // A job of long tasks is one however many short ones lie between them.
  if (fresh || last->second.cost <= kShort || cost > kShort) last->second = {now, cost, task.multiplications};
}

void Scheduler::forget_served() {
  for (State& state : states_) {
    std::set<std::string> owners;
    for (const auto& [job, tasks] : jobs_) owners.insert(job.first);
    state.owners.forget([&](const std::string& owner) { return owners.contains(owner); });
    for (auto& [owner, jobs] : state.jobs)
      jobs.forget([&, of = owner](const std::string& job) { return jobs_.contains({of, job}); });
    std::erase_if(state.jobs, [](const auto& each) { return each.second.empty(); });
  }
}

void Scheduler::ended(Queued* current, const Turn& turn, Ran ran, absl::Duration spent) {
  const Task& task = current->task;
  const JobKey key{task.owner, task.job};
  const Running running = running_.at(current->ticket);
  const absl::Duration took = options_.now() - running.start;
  busy_ += took;
  running_.erase(current->ticket);
  account(task, turn, running, options_.places[turn.place].device ? took : spent);
  Job& job = jobs_.at(key);
  job.running.erase(task.run);
  if (ran == Ran::kFailed && !stop_) {
    current->failed = true;
    job.runs.at(task.run).push_front(std::move(*current));
    ++queued_;
    return;
  }
  if (job.runs.at(task.run).empty()) {
    job.runs.erase(task.run);
    job.order.remove(task.run);
  }
  if (!job.runs.empty()) return;
  order_.remove(key);
  jobs_.erase(key);
  forget_served();
}

// Until nothing changes: a task that takes the room of a device may make the next one the host's.
void Scheduler::give(Worker* first) {
  std::set<std::pair<std::size_t, Lane>> asked;  // What one thread cannot take, no other one of its kind can.
  const auto give_to = [&](Worker& worker) {
    if (!worker.idle || !asked.emplace(worker.place, worker.lane).second) return false;
    Queued picked;
    absl::Duration expects;
    if (!pick(worker.place, worker.lane, &picked, &worker.turn, &expects)) return false;
    started(picked, worker.turn, expects);
    worker.given = std::move(picked);
    worker.idle = worker.looks_again = false;
    worker.wake.notify_one();
    return true;
  };
  for (bool gave = true; gave && !stop_;) {
    asked.clear();
    gave = first != nullptr && give_to(*first);
    for (Worker& worker : workers_) gave = give_to(worker) || gave;
  }
  // With something queued, what nobody could take others are left with by time alone.
  if (queued_ == 0 || std::ranges::any_of(workers_, &Worker::looks_again)) return;
  const auto idle = std::ranges::find_if(workers_, &Worker::idle);
  if (idle == workers_.end()) return;
  idle->looks_again = true;
  idle->wake.notify_one();
}

void Scheduler::sleep(Worker* self, std::unique_lock<std::mutex>* lock) {
  self->idle = true;
  give(self);
  while (!stop_ && !self->given) {
    if (!self->looks_again) {
      self->wake.wait(*lock);
    } else if (self->wake.wait_for(*lock, absl::ToChronoSeconds(kAbout) / 10) == std::cv_status::timeout) {
      self->looks_again = false;
      give();
    }
  }
  self->idle = self->looks_again = false;
}

void Scheduler::loop(Worker* self) {
  if (self->lane == Lane::kBehind)
    cpu::stand_back();
  else
    cpu::give_way();
  std::unique_lock lock(mutex_);
  for (;;) {
    sleep(self, &lock);
    if (!self->given) return;
    Queued current = std::move(*self->given);
    self->given.reset();
    const Turn turn = self->turn;
    lock.unlock();
    const absl::Duration before = options_.spent();
    const Ran ran = current.task.work(turn);
    const absl::Duration spent = options_.spent() - before;
    if (ran == Ran::kDone) current.task.work = nullptr;
    lock.lock();
    ended(&current, turn, ran, spent);
    if (queued_ == 0 && running_.empty()) idle_.notify_all();
  }
}

}  // namespace plumbline
