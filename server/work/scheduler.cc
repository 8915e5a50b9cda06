#include "server/work/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace plumbline {

Scheduler::Scheduler(Options options) : options_(options), ratio_time_(absl::Now()) {
  for (int i = 0; i < std::max(1, options_.workers); ++i) workers_.emplace_back([this] { loop(); });
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
  if (task.bytes > options_.memory_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("auditing the step takes up to ", task.bytes,
                                                     " bytes, more than the ", options_.memory_bytes,
                                                     " that --memory-limit leaves for audits"));
  }
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || stop_) return absl::UnavailableError("the daemon is draining");
    ticket = next_ticket_++;
    const auto [job, fresh_job] = jobs_.try_emplace(task.job);
    if (fresh_job) order_.push_back(task.job);
    const auto [run, fresh_run] = job->second.runs.try_emplace(task.run);
    if (fresh_run) job->second.order.push_back(task.run);
    run->second.push_back({ticket, std::move(task)});
    ++queued_;
  }
  wake_.notify_one();
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

bool Scheduler::drain(absl::Time deadline) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  return idle_.wait_until(lock, absl::ToChronoTime(deadline), [this] { return queued_ == 0 && running_ == 0; });
}

std::int64_t Scheduler::queued() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

std::uint64_t Scheduler::memory_used() const {
  const std::lock_guard lock(mutex_);
  return memory_;
}

absl::Duration Scheduler::busy_now(absl::Time now) const {
  absl::Duration busy = busy_;
  for (const auto& [ticket, start] : started_) busy += now - start;
  return busy;
}

double Scheduler::take_busy_ratio() {
  const std::lock_guard lock(mutex_);
  const absl::Time now = absl::Now();
  const absl::Duration busy = busy_now(now);
  const double capacity = absl::ToDoubleSeconds(now - ratio_time_) * static_cast<double>(workers_.size());
  const double ratio = capacity > 0 ? absl::ToDoubleSeconds(busy - ratio_busy_) / capacity : 0;
  ratio_time_ = now;
  ratio_busy_ = busy;
  return std::clamp(ratio, 0.0, 1.0);
}

bool Scheduler::pick(Queued* picked) {
  for (auto job_name = order_.begin(); job_name != order_.end(); ++job_name) {
    Job& job = jobs_.at(*job_name);
    for (auto run_name = job.order.begin(); run_name != job.order.end(); ++run_name) {
      std::deque<Queued>& run = job.runs.at(*run_name);
      if (run.empty() || job.running.count(*run_name) > 0 || !run.front().task.ready) continue;
      if (run.front().task.bytes > options_.memory_bytes - memory_) return false;
      *picked = std::move(run.front());
      run.pop_front();
      job.running[*run_name] = true;
      job.order.splice(job.order.end(), job.order, run_name);
      order_.splice(order_.end(), order_, job_name);
      return true;
    }
  }
  return false;
}

void Scheduler::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Queued current;
    wake_.wait(lock, [&] { return stop_ || pick(&current); });
    if (current.ticket == 0) return;
    --queued_;
    ++running_;
    memory_ += current.task.bytes;
    started_[current.ticket] = absl::Now();
    lock.unlock();
    current.task.work();
    current.task.work = nullptr;
    lock.lock();
    busy_ += absl::Now() - started_[current.ticket];
    started_.erase(current.ticket);
    memory_ -= current.task.bytes;
    --running_;
    Job& job = jobs_.at(current.task.job);
    job.running.erase(current.task.run);
    if (job.runs.at(current.task.run).empty()) {
      job.runs.erase(current.task.run);
      job.order.remove(current.task.run);
    }
    if (job.runs.empty()) {
      jobs_.erase(current.task.job);
      order_.remove(current.task.job);
    }
    wake_.notify_all();  // Memory came back, and the run may go on.
    if (queued_ == 0 && running_ == 0) idle_.notify_all();
  }
}

}  // namespace plumbline
