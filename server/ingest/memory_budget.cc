#include "server/ingest/memory_budget.h"

#include <algorithm>
#include <utility>

namespace plumbline {

MemoryBudget::Reservation::Reservation(Reservation&& other) noexcept { *this = std::move(other); }

MemoryBudget::Reservation& MemoryBudget::Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  release();
  share_ = other.share_;
  budget_ = other.budget_;  // The other keeps its budget, and starts again from nothing.
  bytes_ = std::exchange(other.bytes_, 0);
  waiting_ = std::exchange(other.waiting_, false);
  releases_seen_ = other.releases_seen_;
  return *this;
}

MemoryBudget::Answer MemoryBudget::Reservation::take(std::uint64_t bytes) {
  if (budget_ == nullptr || bytes == 0) {
    bytes_ += bytes;
    return Answer::kGranted;
  }
  std::vector<std::pair<Share*, std::uint64_t>> shares;  // With their limits.
  for (Share* each = share_.get(); each != nullptr; each = each->within_.get())
    shares.emplace_back(each, each->limit());
  const std::lock_guard lock(budget_->mutex_);
  if (waiting_) {
    budget_->waiting_ -= bytes_;
    waiting_ = false;
  }
  for (const auto& [share, limit] : shares) {
    if (share->used_ <= limit && bytes <= limit - share->used_) continue;
    beyond_ = share;
    return Answer::kBeyondShare;
  }
  if (bytes <= budget_->limit_ - budget_->used_) {
    budget_->used_ += bytes;
    for (const auto& [share, limit] : shares) share->used_ += bytes;
    bytes_ += bytes;
    return Answer::kGranted;
  }
  if (budget_->used_ == budget_->waiting_ + bytes_) return Answer::kDeadlock;
  waiting_ = true;
  budget_->waiting_ += bytes_;
  releases_seen_ = budget_->releases_;
  return Answer::kWait;
}

void MemoryBudget::Reservation::release() { give_back(bytes_); }

void MemoryBudget::Reservation::give_back(std::uint64_t bytes) {
  bytes = std::min(bytes, bytes_);
  if (budget_ == nullptr) {
    bytes_ -= bytes;
    return;
  }
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(budget_->mutex_);
    if (waiting_) budget_->waiting_ -= bytes_;
    waiting_ = false;
    if (bytes == 0) return;
    budget_->used_ -= bytes;
    for (Share* each = share_.get(); each != nullptr; each = each->within_.get()) each->used_ -= bytes;
    bytes_ -= bytes;
    ++budget_->releases_;
    callbacks.swap(budget_->callbacks_);
  }
  for (const auto& callback : callbacks) callback();
}

std::uint64_t MemoryBudget::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::uint64_t MemoryBudget::used(const Share& share) const {
  const std::lock_guard lock(mutex_);
  return share.used_;
}

void MemoryBudget::Reservation::when_released(std::function<void()> callback) {
  {
    const std::lock_guard lock(budget_->mutex_);
    if (budget_->releases_ == releases_seen_) {
      budget_->callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

}  // namespace plumbline
