#include "server/work/pair_watch.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/bound/findings/invariants.h"
#include "server/fault/fault.h"
#include "server/work/steady.h"

namespace plumbline {
namespace {

constexpr std::chrono::milliseconds kAskEvery{250};

}  // namespace

std::string pair_name(const StepIdentity& run) {
  const std::string name = absl::StrCat(run.job, "/", run.run);
  return content_digest({name.begin(), name.end()});
}

PairWatch::PairWatch(SharedGolden* shared, std::function<void(const StepIdentity&)> arrived)
    : shared_(shared),
      arrived_(std::move(arrived)),
      thread_([this] { contained("the thread that waits for pairs", [this] { loop(); }).IgnoreError(); }) {}

PairWatch::~PairWatch() { stop(); }

void PairWatch::add(const StepIdentity& step, absl::Time deadline) {
  {
    const std::lock_guard lock(mutex_);
    absl::Time& until = waiting_.try_emplace(step, deadline).first->second;
    until = std::max(until, deadline);
  }
  wake_.notify_all();
}

void PairWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  const std::lock_guard lock(join_);
  if (thread_.joinable()) thread_.join();
}

// While the history is away the step may still come.
bool PairWatch::is_due(const StepIdentity& step) const {
  const auto reach = shared_->reach(step.project, pair_name(step), step.rank, step.step);
  return reach.ok() && *reach != SharedGolden::Reach::kNotYet;
}

void PairWatch::loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (waiting_.empty()) {
      wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      continue;
    }
    const absl::Time now = steady_now();
    std::erase_if(waiting_, [&](const auto& wait) { return wait.second <= now; });
    std::vector<StepIdentity> asked;
    for (const auto& [step, deadline] : waiting_) asked.push_back(step);
    for (const StepIdentity& step : asked) {
      if (stop_) return;
      lock.unlock();
      const bool due = is_due(step);
      if (due) contained("a pair", [&] { arrived_(step); }).IgnoreError();
      lock.lock();
      if (due) waiting_.erase(step);
    }
    wake_.wait_for(lock, kAskEvery, [this] { return stop_; });
  }
}

}  // namespace plumbline
