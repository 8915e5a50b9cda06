#include "server/serve/watch.h"

#include <algorithm>
#include <utility>

#include "server/serve/query_status.h"

namespace plumbline {
namespace {

constexpr int kPageMax = 64;

}  // namespace

Watch::Watch(VerdictStore* store, SerialExecutor* disk, grpc::CallbackServerContext* context,
             const v1::WatchVerdictsRequest& request, Seen seen, std::function<void()> done)
    : store_(store),
      disk_(disk),
      context_(context),
      request_(request),
      seen_(std::move(seen)),
      done_(std::move(done)) {}

void Watch::start() {
  disk_->post([self = shared_from_this()] { self->begin(); },
              [self = shared_from_this()](const absl::Status& fault) { self->end(query_status(fault)); });
}

void Watch::begin() {
  // Subscribed first: what is committed from here on either is in last_sequence() already, and then of the past, or
  // wakes us.
  const std::uint64_t subscription = store_->subscribe([this] {
    std::lock_guard lock(mutex_);
    is_stale_ = true;
    want();
  });
  absl::StatusOr<std::int64_t> after = std::int64_t{0};
  if (!request_.include_past()) after = store_->last_sequence();
  {
    std::lock_guard lock(mutex_);
    is_fetching_ = false;
    if (!is_done_) {
      subscription_ = subscription;
      if (!after.ok()) return finish(query_status(after.status()));
      if (is_finished_) return;
      after_ = *after;
      is_stale_ = true;
      StartSendInitialMetadata();
      return want();
    }
  }
  store_->unsubscribe(subscription);  // The call ended before it began.
}

void Watch::want() {
  if (is_finished_ || is_fetching_ || is_writing_ || !page_.empty() || !is_stale_) return;
  is_fetching_ = true;
  disk_->post([self = shared_from_this()] { self->fetch(); },
              [self = shared_from_this()](const absl::Status& fault) { self->end(query_status(fault)); });
}

void Watch::fetch() {
  std::int64_t after;
  {
    std::lock_guard lock(mutex_);
    if (is_finished_) return;
    after = after_;
    is_stale_ = false;
  }
  const auto last = store_->last_sequence();
  const auto seen = seen_();
  const auto list = [&]() -> absl::StatusOr<std::vector<StoredVerdict>> {
    if (!last.ok()) return last.status();
    if (!seen.ok()) return seen.status();
    return store_->list(request_.filter(), after, kPageMax, /*whole=*/true, *seen);
  };
  auto found = list();

  std::lock_guard lock(mutex_);
  is_fetching_ = false;
  if (!found.ok()) return finish(query_status(found.status()));
  if (found->empty()) {
    after_ = std::max(after_, *last);  // Nothing up to there matched: the next fetch need not look at it again.
    return want();
  }
  after_ = found->back().sequence;
  is_stale_ = true;  // There may be another page.
  for (StoredVerdict& stored : *found) page_.push_back(std::move(stored.verdict));
  write_next();
}

void Watch::write_next() {
  if (is_finished_ || page_.empty()) return;
  written_ = std::move(page_.front());
  page_.pop_front();
  is_writing_ = true;
  StartWrite(&written_);
}

void Watch::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  is_writing_ = false;
  if (is_finished_) return Finish(status_);
  if (!ok) return finish({grpc::StatusCode::CANCELLED, "the watcher is gone"});
  write_next();
  want();
}

void Watch::OnCancel() {
  std::lock_guard lock(mutex_);
  finish({grpc::StatusCode::CANCELLED, "the watcher is gone"});
}

void Watch::end(const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  finish(status);
}

void Watch::cancel() { context_->TryCancel(); }

void Watch::finish(const grpc::Status& status) {
  if (std::exchange(is_finished_, true)) return;
  status_ = status;
  page_.clear();
  if (!is_writing_) Finish(status_);  // Otherwise when the write is done.
}

void Watch::OnDone() {
  std::uint64_t subscription;
  {
    std::lock_guard lock(mutex_);
    is_done_ = true;
    subscription = subscription_;
  }
  if (subscription != 0) store_->unsubscribe(subscription);
  const std::function<void()> done = done_;  // It may destroy this watch.
  done();
}

}  // namespace plumbline
