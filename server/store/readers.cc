#include "server/store/readers.h"

#include <utility>

namespace plumbline {

Readers::Readers(std::vector<std::unique_ptr<SqlConnection>> connections) : connections_(std::move(connections)) {
  for (const auto& connection : connections_) free_.push_back(connection.get());
}

Readers::Lease Readers::take(const std::function<bool()>& stop) {
  std::unique_lock lock(mutex_);
  returned_.wait(lock, [this] { return !free_.empty(); });
  const SqlConnection* const connection = free_.back();
  free_.pop_back();
  return {this, connection, stop};
}

void Readers::give_back(const SqlConnection* connection) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(connection);
  }
  returned_.notify_one();
}

}  // namespace plumbline
