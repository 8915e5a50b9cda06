// Start-time fair queueing (Goyal, Vin, Cheng 1996): who has tasks waiting gets an equal share of the time, whatever
// the tasks cost. Time is virtual: a task starts where the last one of the same name ended, or now, if that is later.
// Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace plumbline {

class FairShares {
 public:
  // Where the next task of this name starts: the least comes first.
  absl::Duration start(const std::string& name) const;
  // It is charged this much until it has ended, and then `more` (which may be negative).
  void begin(const std::string& name, absl::Duration charged);
  void end(const std::string& name, absl::Duration more);
  // Forgets names without tasks, but for those that what they were served makes wait.
  void forget(const std::function<bool(const std::string& name)>& has_tasks);
  bool empty() const { return served_.empty(); }

 private:
  absl::Duration clock_ = absl::ZeroDuration();   // Where the last task that was begun started.
  std::map<std::string, absl::Duration> served_;  // Where the next task of the name starts, if not behind the clock.
};

}  // namespace plumbline
