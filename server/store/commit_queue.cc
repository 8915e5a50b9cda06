#include "server/store/commit_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

constexpr std::size_t kGroupMax = 256;

}  // namespace

CommitQueue::CommitQueue(SqliteConnection* connection, std::size_t pending_max, std::function<void()> committed)
    : connection_(connection),
      pending_max_(pending_max),
      committed_(std::move(committed)),
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
    commit(group);
    for (Item& item : group) item.done(item.answer);
  }
}

void CommitQueue::commit(std::deque<Item>& group) {
  auto fail_all = [&](const absl::Status& status) {
    for (Item& item : group) item.answer = status;
  };
  if (auto begun = connection_->run("BEGIN IMMEDIATE"); !begun.ok()) return fail_all(begun);
  for (Item& item : group) {
    if (auto marked = connection_->run("SAVEPOINT change"); !marked.ok()) {
      if (connection_->in_transaction()) connection_->run("ROLLBACK").IgnoreError();
      return fail_all(marked);
    }
    const absl::Status changed = item.change(&item.answer);
    if (!changed.ok()) {
      item.answer = changed;
      // Some errors (disk full, I/O) end the whole transaction in SQLite itself: nothing of the group is left then.
      if (!connection_->in_transaction()) return fail_all(changed);
      connection_->run("ROLLBACK TO change").IgnoreError();
    }
    connection_->run("RELEASE change").IgnoreError();
  }
  if (auto ended = connection_->run("COMMIT"); !ended.ok()) {
    if (connection_->in_transaction()) connection_->run("ROLLBACK").IgnoreError();
    return fail_all(ended);
  }
  committed_();
}

}  // namespace plumbline
