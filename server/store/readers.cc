#include "server/store/readers.h"

#include <utility>

namespace plumbline {

Readers::Readers(std::vector<SqliteConnection> connections) : connections_(std::move(connections)) {
  for (const SqliteConnection& connection : connections_) free_.push_back(&connection);
}

Readers::Lease Readers::take(const std::function<bool()>& stop) {
  std::unique_lock lock(mutex_);
  returned_.wait(lock, [this] { return !free_.empty(); });
  const SqliteConnection* const connection = free_.back();
  free_.pop_back();
  return {this, connection, stop};
}

void Readers::give_back(const SqliteConnection* connection) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(connection);
  }
  returned_.notify_one();
}

}  // namespace plumbline
