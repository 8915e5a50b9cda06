#include "server/work/fair_shares.h"

#include <algorithm>

namespace plumbline {

absl::Duration FairShares::start(const std::string& name) const {
  const auto found = served_.find(name);
  return found == served_.end() ? clock_ : std::max(clock_, found->second);
}

void FairShares::begin(const std::string& name, absl::Duration charged) {
  clock_ = start(name);
  served_[name] = clock_ + charged;
}

void FairShares::end(const std::string& name, absl::Duration more) { served_[name] += more; }

void FairShares::forget(const std::function<bool(const std::string& name)>& has_tasks) {
  std::erase_if(served_, [&](const auto& each) { return each.second <= clock_ && !has_tasks(each.first); });
}

}  // namespace plumbline
