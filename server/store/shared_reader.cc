#include "server/store/shared_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline {

SharedReader::SharedReader(Parts parts)
    : node_(parts.node),
      name_(absl::StrCat(parts.host, "/", parts.node)),
      same_users_(parts.same_users),
      queries_(std::move(parts.readers), parts.node),
      listeners_(std::move(parts.watch)) {}

Visibility SharedReader::seen(Visibility here) const {
  if (!same_users_) here.node = node_;
  return here;
}

absl::Status SharedReader::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void SharedReader::failed(const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  state_ = absl::UnavailableError(why.message());
}

void SharedReader::answers() {
  {
    const std::lock_guard lock(mutex_);
    if (state_.ok()) return;
    state_ = absl::OkStatus();
  }
  listeners_.notify();
}

std::uint64_t SharedReader::subscribe(std::function<void()> listener) { return listeners_.add(std::move(listener)); }
void SharedReader::unsubscribe(std::uint64_t handle) { listeners_.remove(handle); }

}  // namespace plumbline
