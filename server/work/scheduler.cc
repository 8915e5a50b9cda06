#include "server/work/scheduler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(100);  // A task may take and still be a short one.
constexpr absl::Duration kAbout = absl::Seconds(10);        // How long a job is taken to be about after a task.

bool lately(absl::Time ended, absl::Time now) { return now - ended < kAbout; }

}  // namespace

Scheduler::Scheduler(Options options)
    : options_(std::move(options)), states_(options_.places.size()), ratio_time_(options_.now()) {
  for (std::size_t place = 0; place < options_.places.size(); ++place) {
    for (int i = 0; i < std::max(1, options_.places[place].workers); ++i) {
      workers_.emplace_back([this, place] { loop(place); });
    }
  }
}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

absl::StatusOr<Scheduler::Ticket> Scheduler::submit(Task task) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || stop_) return absl::UnavailableError("the daemon is draining");
    const Place* const largest = largest_open();
    if (largest == nullptr) return absl::FailedPreconditionError("no worker is left: each of --workers has failed");
    if (task.bytes > largest->memory_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("auditing the step takes up to ", task.bytes, " bytes, more than the ", largest->memory_bytes,
                       " that ", largest->device ? "--gpu-memory-limit" : "--memory-limit", " leaves for audits"));
    }
    ticket = next_ticket_++;
    const auto [job, fresh_job] = jobs_.try_emplace(task.job);
    if (fresh_job) order_.push_back(task.job);
    const auto [run, fresh_run] = job->second.runs.try_emplace(task.run);
    if (fresh_run) job->second.order.push_back(task.run);
    run->second.push_back({ticket, std::move(task), false});
    ++queued_;
  }
  wake_.notify_all();  // Not each worker can take it.
  return ticket;
}

void Scheduler::make_ready(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [job_name, job] : jobs_) {
      for (auto& [run_name, run] : job.runs) {
        for (Queued& queued : run) {
          if (queued.ticket == ticket) queued.task.ready = true;
        }
      }
    }
  }
  wake_.notify_all();
}

void Scheduler::close(std::size_t place) {
  {
    const std::lock_guard lock(mutex_);
    states_[place].open = false;
  }
  wake_.notify_all();
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
  return idle_.wait_until(lock, absl::ToChronoTime(deadline), [this] { return queued_ == 0 && running_.empty(); });
}

std::int64_t Scheduler::queued() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

std::uint64_t Scheduler::memory_used(std::size_t place) const {
  const std::lock_guard lock(mutex_);
  return states_[place].memory;
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
  const double capacity = absl::ToDoubleSeconds(now - ratio_time_) * static_cast<double>(workers_.size());
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

// Whether a job of long tasks must not take the last worker that is free.
bool Scheduler::leaves_to_others(std::size_t place, const std::string& job) const {
  const State& state = states_[place];
  if (options_.places[place].workers < 2 || state.running + 1 < options_.places[place].workers) return false;
  const absl::Time now = options_.now();
  const auto own = state.long_ended.find(job);
  return own != state.long_ended.end() && lately(own->second, now) &&
         std::ranges::any_of(state.short_ended,
                             [&](const auto& other) { return other.first != job && lately(other.second, now); });
}

bool Scheduler::pick(std::size_t place, Queued* picked, Turn* turn) {
  const Place& here = options_.places[place];
  State& state = states_[place];
  const bool any_device =
      std::any_of(options_.places.begin(), options_.places.end(), [](const Place& each) { return each.device; });
  // What this worker could take of a job: its first run's next task. Whether it may wait is asked once it is chosen.
  struct Choice {
    std::list<std::string>::iterator job, run;
    absl::Duration start;
    Turn::Why why = Turn::Why::kOwn;
  };
  std::optional<Choice> chosen;
  for (auto job_name = order_.begin(); job_name != order_.end(); ++job_name) {
    if (leaves_to_others(place, *job_name)) continue;
    Job& job = jobs_.at(*job_name);
    const auto served = state.served.find(*job_name);
    const absl::Duration start = served == state.served.end() ? state.clock : std::max(state.clock, served->second);
    if (chosen && start >= chosen->start) continue;
    for (auto run_name = job.order.begin(); run_name != job.order.end(); ++run_name) {
      const std::deque<Queued>& run = job.runs.at(*run_name);
      if (run.empty() || job.running.count(*run_name) > 0 || !run.front().task.ready) continue;
      const Turn::Why why = why_at(place, run.front());
      if (why != Turn::Why::kNowhere) {
        if (!state.open || run.front().task.bytes > here.memory_bytes) continue;
        if (here.device ? run.front().failed : any_device && why == Turn::Why::kOwn) continue;  // Another place's.
      }
      chosen = {job_name, run_name, start, why};
      break;
    }
  }
  if (!chosen) return false;
  Job& job = jobs_.at(*chosen->job);
  std::deque<Queued>& run = job.runs.at(*chosen->run);
  if (chosen->why != Turn::Why::kNowhere && run.front().task.bytes > here.memory_bytes - state.memory) return false;
  *picked = std::move(run.front());
  run.pop_front();
  *turn = {place, chosen->why};
  job.running[*chosen->run] = true;
  job.order.splice(job.order.end(), job.order, chosen->run);
  order_.splice(order_.end(), order_, chosen->job);
  return true;
}

void Scheduler::started(const Queued& picked, const Turn& turn) {
  State& state = states_[turn.place];
  const std::string& job = picked.task.job;
  absl::Duration charged = absl::ZeroDuration();
  if (turn.why != Turn::Why::kNowhere) {
    state.memory += picked.task.bytes;
    ++state.running;
    absl::Duration& served = state.served.try_emplace(job, state.clock).first->second;
    state.clock = std::max(state.clock, served);
    charged = state.last_costs[job];
    served = state.clock + charged;
  }
  --queued_;
  running_[picked.ticket] = {options_.now(), charged};
}

void Scheduler::ended(Queued* current, const Turn& turn, Ran ran) {
  State& state = states_[turn.place];
  const Task& task = current->task;
  const Running running = running_.at(current->ticket);
  const absl::Time now = options_.now();
  const absl::Duration cost = now - running.start;
  busy_ += cost;
  running_.erase(current->ticket);
  if (turn.why != Turn::Why::kNowhere) {
    state.memory -= task.bytes;
    --state.running;
    (cost <= kShort ? state.short_ended : state.long_ended)[task.job] = now;
    for (auto* ended : {&state.short_ended, &state.long_ended})
      std::erase_if(*ended, [now](const auto& each) { return !lately(each.second, now); });
    state.served.at(task.job) += cost - running.charged;
    state.last_costs[task.job] = cost;
  }
  Job& job = jobs_.at(task.job);
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
  if (job.runs.empty()) {
    order_.remove(task.job);
    jobs_.erase(task.job);
  }
  // What a job was served is forgotten once it gives the job no later turn than a fresh one has.
  std::erase_if(state.served,
                [&](const auto& each) { return !jobs_.contains(each.first) && each.second <= state.clock; });
  std::erase_if(state.last_costs, [&](const auto& each) { return !state.served.contains(each.first); });
}

void Scheduler::loop(std::size_t place) {
  std::unique_lock lock(mutex_);
  for (;;) {
    Queued current;
    Turn turn;
    // With something queued, what others are left may end by time alone.
    while (!stop_ && !pick(place, &current, &turn))
      if (queued_ > 0)
        wake_.wait_for(lock, absl::ToChronoSeconds(kAbout) / 10);
      else
        wake_.wait(lock);
    if (current.ticket == 0) return;
    started(current, turn);
    lock.unlock();
    wake_.notify_all();  // Room was taken: the next may be the host's now.
    const Ran ran = current.task.work(turn);
    if (ran == Ran::kDone) current.task.work = nullptr;
    lock.lock();
    ended(&current, turn, ran);
    wake_.notify_all();  // Memory came back, and the run may go on.
    if (queued_ == 0 && running_.empty()) idle_.notify_all();
  }
}

}  // namespace plumbline
