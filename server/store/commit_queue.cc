#include "server/store/commit_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/fault/fault.h"

namespace plumbline {
namespace {

constexpr std::size_t kGroupMax = 256;
constexpr std::chrono::minutes kReportEvery{1};

}  // namespace

CommitQueue::CommitQueue(SqlConnection* connection, std::size_t pending_max, std::function<absl::Status()> lost,
                         std::function<void()> committed, std::function<void(const std::string&)> trouble,
                         std::function<void(double, std::size_t, bool)> timed)
    : connection_(connection),
      pending_max_(pending_max),
      lost_(std::move(lost)),
      committed_(std::move(committed)),
      trouble_(std::move(trouble)),
      timed_(std::move(timed)),
      writer_([this] { run(); }) {}

CommitQueue::~CommitQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  writer_.join();
}

void CommitQueue::push(Change change, Done done) {
  {
    std::lock_guard lock(mutex_);
    if (pending_.size() < pending_max_) {
      pending_.push_back({std::move(change), std::move(done), absl::OkStatus()});
      wake_.notify_one();
      return;
    }
  }
  done(absl::ResourceExhaustedError(absl::StrCat("the store has ", pending_max_, " records waiting for the disk")));
}

void CommitQueue::run() {
  for (;;) {
    std::deque<Item> group;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !pending_.empty(); });
      if (pending_.empty()) return;
      while (!pending_.empty() && group.size() < kGroupMax) {
        group.push_back(std::move(pending_.front()));
        pending_.pop_front();
      }
    }
    const auto begun = std::chrono::steady_clock::now();
    const absl::Status status = commit(group);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    if (timed_) timed_(took.count(), group.size(), status.ok());
    report(status, group.size());
    for (Item& item : group) contained("the store's thread", [&] { item.done(item.answer); }).IgnoreError();
  }
}

void CommitQueue::report(const absl::Status& status, std::size_t records) {
  const auto now = std::chrono::steady_clock::now();
  if (status.ok()) {
    if (refused_ > 0 && trouble_) {
      trouble_(absl::StrCat("the verdict database takes records again; ", refused_.load(), " were refused meanwhile"));
    }
    refused_ = 0;
    return;
  }
  const bool due = refused_ == 0 || now - reported_ >= kReportEvery;
  refused_ += records;
  if (!due) return;
  reported_ = now;
  if (trouble_) {
    trouble_(absl::StrCat(std::string(status.message()), "; ", refused_.load(),
                          " records were refused so far, and jobs are told to send their steps again"));
  }
}

absl::Status CommitQueue::commit(std::deque<Item>& group) {
  const auto fail_all = [&](const absl::Status& status) {
    connection_->roll_back().IgnoreError();
    for (Item& item : group) item.answer = status;
    return status;
  };
  if (auto begun = connection_->begin_write(); !begun.ok()) return fail_all(begun);
  for (Item& item : group) {
    if (auto marked = connection_->mark(); !marked.ok()) return fail_all(marked);
    absl::Status changed;
    const absl::Status fault = contained("the store's thread", [&] { changed = item.change(&item.answer); });
    if (!fault.ok()) changed = fault;
    if (!changed.ok()) item.answer = changed;
    // Some errors (disk full, I/O, a lost connection) end the whole transaction in the engine itself: nothing of the
    // group is left then.
    if (!changed.ok() && !connection_->in_transaction()) return fail_all(changed);
    const absl::Status ended = changed.ok() ? connection_->keep() : connection_->undo();
    if (!ended.ok()) return fail_all(ended);
  }
  if (auto lost = lost_ ? lost_() : absl::OkStatus(); !lost.ok()) return fail_all(lost);
  if (auto ended = connection_->commit(); !ended.ok()) return fail_all(ended);
  contained("the store's thread", committed_).IgnoreError();
  return absl::OkStatus();
}

}  // namespace plumbline
