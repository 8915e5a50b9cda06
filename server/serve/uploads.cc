#include "server/serve/uploads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace plumbline {

Uploads::Uploads(std::size_t most, std::chrono::steady_clock::duration pause)
    : most_(most), pause_(pause), watcher_([this] { watch(); }) {}

Uploads::~Uploads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

absl::StatusOr<std::unique_ptr<Uploads::Upload>> Uploads::begin(grpc::ServerContext* context) {
  {
    const std::lock_guard lock(mutex_);
    if (heard_.size() >= most_) {
      return absl::ResourceExhaustedError(absl::StrCat("expected at most ", most_, " files to be sent at one time"));
    }
    heard_[context] = Clock::now();
  }
  changed_.notify_all();
  return std::make_unique<Upload>(this, context);
}

void Uploads::touch(grpc::ServerContext* context) {
  const std::lock_guard lock(mutex_);
  heard_[context] = Clock::now();
}

void Uploads::end(grpc::ServerContext* context) {
  const std::lock_guard lock(mutex_);
  heard_.erase(context);
}

void Uploads::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    Clock::time_point next = Clock::time_point::max();
    for (auto& [context, heard] : heard_) {
      if (Clock::now() - heard >= pause_) {
        context->TryCancel();
        heard = Clock::now();  // Its call ends soon.
      }
      next = std::min(next, heard + pause_);
    }
    if (heard_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, next);
    }
  }
}

}  // namespace plumbline
