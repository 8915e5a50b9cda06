#include "server/serve/watch.h"

#include <algorithm>
#include <utility>

#include "server/serve/query_status.h"

namespace plumbline {
namespace {

constexpr int kPageMax = 64;

}  // namespace

Watch::Watch(FleetFeed feed, SerialExecutor* disk, grpc::CallbackServerContext* context,
             const v1::WatchVerdictsRequest& request, Seen seen, std::function<void()> done)
    : feed_(std::move(feed)),
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
  // Subscribed first: what is committed from here on either is of the past already, or wakes us.
  const auto subscription = feed_.subscribe([this] {
    std::lock_guard lock(mutex_);
    is_stale_ = true;
    want();
  });
  const std::string& token = request_.resume_token();
  const absl::Status begun =
      token.empty() ? feed_.begin(request_.include_past()) : feed_.resume(request_.filter(), token);
  {
    std::lock_guard lock(mutex_);
    is_fetching_ = false;
    if (!is_done_) {
      subscription_ = subscription;
      if (!begun.ok()) return finish(query_status(begun));
      if (is_finished_) return;
      is_stale_ = true;
      context_->AddInitialMetadata("plumbline-history", feed_.scope());
      context_->AddInitialMetadata("plumbline-resume-token", feed_.token(request_.filter()));
      StartSendInitialMetadata();
      return want();
    }
  }
  feed_.unsubscribe(subscription);  // The call ended before it began.
}

void Watch::want() {
  if (is_finished_ || is_fetching_ || is_writing_ || !page_.empty() || !is_stale_) return;
  is_fetching_ = true;
  disk_->post([self = shared_from_this()] { self->fetch(); },
              [self = shared_from_this()](const absl::Status& fault) { self->end(query_status(fault)); });
}

void Watch::fetch() {
  {
    std::lock_guard lock(mutex_);
    if (is_finished_) return;
    is_stale_ = false;
  }
  const auto seen = seen_();
  auto found = seen.ok() ? feed_.next(request_.filter(), *seen, kPageMax) : seen.status();

  std::lock_guard lock(mutex_);
  is_fetching_ = false;
  if (!found.ok()) return finish(query_status(found.status()));
  is_stale_ = is_stale_ || found->more;
  for (v1::Verdict& verdict : found->verdicts) page_.push_back(std::move(verdict));
  write_next();
  want();
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
  std::optional<std::pair<std::uint64_t, std::uint64_t>> subscription;
  {
    std::lock_guard lock(mutex_);
    is_done_ = true;
    subscription = subscription_;
  }
  if (subscription) feed_.unsubscribe(*subscription);
  const std::function<void()> done = done_;  // It may destroy this watch.
  done();
}

}  // namespace plumbline
