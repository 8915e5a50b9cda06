#include "server/store/courier.h"

#include <algorithm>
#include <random>
#include <utility>

#include "server/fault/fault.h"

namespace plumbline {

Courier::Courier(Options options, std::function<absl::Status()> deliver)
    : options_(std::move(options)), deliver_(std::move(deliver)) {
  thread_ = std::thread([this] {
    contained(options_.name, [this] { run(); }).IgnoreError();
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    done_.notify_all();
  });
}

Courier::~Courier() {
  end_by(Clock::now());
  thread_.join();
}

void Courier::wake() {
  {
    const std::lock_guard lock(mutex_);
    due_ = true;
  }
  wake_.notify_one();
}

void Courier::end_by(Clock::time_point end) {
  {
    const std::lock_guard lock(mutex_);
    end_ = end_ ? std::min(*end_, end) : end;
  }
  wake_.notify_one();
}

void Courier::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return is_done_; });
}

bool Courier::wait_until(Clock::time_point end) {
  std::unique_lock lock(mutex_);
  return done_.wait_until(lock, end, [this] { return is_done_; });
}

bool Courier::is_over() const {
  const std::lock_guard lock(mutex_);
  return end_ && Clock::now() >= *end_;
}

Delivery Courier::delivery() const {
  const std::lock_guard lock(mutex_);
  return delivery_;
}

void Courier::note(const absl::Status& status) {
  if (absl::IsCancelled(status)) return;  // It is the end.
  bool news = false;
  {
    const std::lock_guard lock(mutex_);
    news = status.ok() ? !delivery_.up : !lost_;
    delivery_.up = status.ok();
    delivery_.trouble = std::string(status.message());
    lost_ = !status.ok();
    if (lost_) ++delivery_.errors[static_cast<std::size_t>(trouble_of(status))];
  }
  if (!news) return;
  if (!status.ok()) {
    if (options_.lost) options_.lost(trouble_of(status), std::string(status.message()));
  } else if (options_.back) {
    options_.back();
  }
}

void Courier::run() {
  std::minstd_rand random(std::random_device{}());
  absl::Duration retry = options_.retry_min;
  for (;;) {
    bool ending = false;
    {
      const std::lock_guard lock(mutex_);
      due_ = false;
      ending = end_.has_value();
    }
    absl::Status delivered;
    const absl::Status fault = contained(options_.name, [&] { delivered = deliver_(); });
    note(fault.ok() ? delivered : fault);
    const bool failed = !fault.ok() || !delivered.ok();
    // Daemons that lost the server at one time do not come back at one time.
    const absl::Duration wait =
        failed ? retry * std::uniform_real_distribution<double>(0.5, 1)(random) : options_.idle_max;
    retry = failed ? std::min(retry * 2, options_.retry_max) : options_.retry_min;
    std::unique_lock lock(mutex_);
    if (ending || (end_ && failed)) return;
    wake_.wait_for(lock, absl::ToChronoNanoseconds(wait), [&] { return end_ || (due_ && !failed); });
    if (end_ && failed) return;
  }
}

}  // namespace plumbline
