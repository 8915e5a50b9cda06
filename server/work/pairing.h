// Steps that wait for the step of the run they are compared with. Knows neither clocks nor threads: the caller says
// what time it is. Thread-safe; callbacks run in the thread that calls arrived() or expire(), without a lock held.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace plumbline {

class Pairing {
 public:
  // Calls `resume` once: with true when `key` arrives, with false when `deadline` has passed before that.
  void wait(const std::string& key, absl::Time deadline, std::function<void(bool arrived)> resume);
  void arrived(const std::string& key);
  // Gives up on what was due by `now`.
  void expire(absl::Time now);
  absl::Time next_deadline() const;                           // InfiniteFuture: nothing waits.
  std::size_t waiting(const std::string& prefix = "") const;  // For keys that begin with it.

 private:
  struct Waiting {
    absl::Time deadline;
    std::function<void(bool)> resume;
  };
  mutable std::mutex mutex_;
  std::multimap<std::string, Waiting> waiting_;
};

}  // namespace plumbline
