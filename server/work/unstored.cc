#include "server/work/unstored.h"

#include <utility>

namespace plumbline {

void Unstored::put(const std::string& id, std::shared_ptr<const JudgedStep> judged) {
  const std::size_t bytes = judged->wire.ByteSizeLong();
  const std::lock_guard lock(mutex_);
  if (const auto old = entries_.find(id); old != entries_.end()) erase(old);
  entries_[id] = {std::move(judged), bytes, ages_.insert(ages_.end(), id)};
  bytes_ += bytes;
  while (entries_.size() > kStepsMax || bytes_ > kBytesMax) erase(entries_.find(ages_.front()));
}

std::shared_ptr<const JudgedStep> Unstored::find(const std::string& id, const std::string& digest) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.judged->wire.digest() != digest) return nullptr;
  return found->second.judged;
}

bool Unstored::holds(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return entries_.count(id) > 0;
}

void Unstored::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (const auto found = entries_.find(id); found != entries_.end()) erase(found);
}

void Unstored::erase(std::map<std::string, Entry>::iterator entry) {
  bytes_ -= entry->second.bytes;
  ages_.erase(entry->second.age);
  entries_.erase(entry);
}

}  // namespace plumbline
