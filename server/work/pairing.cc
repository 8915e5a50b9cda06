#include "server/work/pairing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/fault/fault.h"

namespace plumbline {

void Pairing::wait(const std::string& key, absl::Time deadline, std::function<void(bool arrived)> resume) {
  const std::lock_guard lock(mutex_);
  waiting_.emplace(key, Waiting{deadline, std::move(resume)});
}

void Pairing::arrived(const std::string& key) {
  std::vector<std::function<void(bool)>> resumed;
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = waiting_.equal_range(key);
    for (auto it = first; it != last; ++it) resumed.push_back(std::move(it->second.resume));
    waiting_.erase(first, last);
  }
  for (const auto& resume : resumed) contained("pairing", [&] { resume(true); }).IgnoreError();
}

void Pairing::expire(absl::Time now) {
  std::vector<std::function<void(bool)>> resumed;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (it->second.deadline > now) {
        ++it;
        continue;
      }
      resumed.push_back(std::move(it->second.resume));
      it = waiting_.erase(it);
    }
  }
  for (const auto& resume : resumed) contained("pairing", [&] { resume(false); }).IgnoreError();
}

absl::Time Pairing::next_deadline() const {
  const std::lock_guard lock(mutex_);
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [key, waiting] : waiting_) next = std::min(next, waiting.deadline);
  return next;
}

std::size_t Pairing::waiting(const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  const auto first = waiting_.lower_bound(prefix);
  const auto other = [&prefix](const auto& wait) { return !wait.first.starts_with(prefix); };
  return static_cast<std::size_t>(std::distance(first, std::find_if(first, waiting_.end(), other)));
}

}  // namespace plumbline
