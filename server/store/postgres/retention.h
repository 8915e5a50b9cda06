// Removes from the shared history what is beyond its limits, a daemon at a time.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/store/postgres/postgres.h"
#include "server/store/store.h"

namespace plumbline {

// A thread with a connection of its own, whose session holds an advisory lock: of the daemons that have limits one
// applies its own, and another takes over once that session is gone. It removes some hundred rows a commit, between
// which the daemons ship, and drops each day that is empty by then. Ages count from the server's clock. Thread-safe.
class SharedRetention {
 public:
  struct Options {
    PostgresSettings settings;
    Retention retention;
    absl::Duration every = absl::Minutes(1);
    // Takes why nothing is removed, once until something is again. May be empty.
    std::function<void(const std::string&)> trouble = {};
  };
  explicit SharedRetention(Options options);
  ~SharedRetention();  // Waits for a commit, or for an attempt to connect.
  SharedRetention(const SharedRetention&) = delete;
  SharedRetention& operator=(const SharedRetention&) = delete;

 private:
  void run();
  absl::Status apply();
  absl::StatusOr<bool> take_turn();  // Whether this daemon is the one.
  absl::StatusOr<bool> remove_some(std::int64_t now_us);

  const Options options_;
  const PostgresConnection connection_;
  int session_ = 0;  // That holds the lock, by its process on the server; 0: none.
  std::mutex mutex_;
  std::condition_variable wake_;
  bool end_ = false;
  bool told_ = false;
  const std::function<bool()> stop_;
  std::thread thread_;  // Last: it uses all of the above.
};

}  // namespace plumbline
