// Removes what --retention does not keep, and counts what projects have stored of their quotas, once a minute. A thread
// of its own; thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/project_use.h"
#include "server/ingest/golden_store.h"
#include "server/ingest/trace_store.h"
#include "server/store/store.h"

namespace plumbline {

struct KeepRules {
  Retention retention;
  KeepLimits golden;
};

// From "KIND=LIMIT", such as "verdicts=90d", "verdicts=1000000", "golden=50GiB": kinds are verdicts, errors, runs and
// golden; a limit is an age (with a unit: 90d, 12h), a number, or bytes (of verdicts and golden: 20GiB).
// INVALID_ARGUMENT.
absl::StatusOr<KeepRules> parse_retention(const std::vector<std::string>& rules);

// The wall clock, unless it was set forward while this ran: an hour that has not passed makes nothing an hour older.
class SoberClock {
 public:
  using Wall = std::chrono::system_clock;
  using Steady = std::chrono::steady_clock;
  SoberClock(Wall::time_point wall, Steady::time_point steady) : wall_(wall), steady_(steady) {}
  Wall::time_point now(Wall::time_point wall, Steady::time_point steady) const;

 private:
  const Wall::time_point wall_;
  const Steady::time_point steady_;
};

class Housekeeping {
 public:
  // All must outlive it. `log` takes what went wrong.
  struct Parts {
    VerdictStore* store = nullptr;
    TraceStore* kept = nullptr;
    TraceStore* references = nullptr;
    GoldenStore* golden = nullptr;
    ProjectUse* projects = nullptr;
    std::function<void(const std::string&)> log = nullptr;
    GoldenStore* pairs = nullptr;  // Steps of reference runs, kept for other daemons; null: none.
  };
  Housekeeping(Parts parts, const KeepRules& rules);
  ~Housekeeping();

  // Counts what projects and jobs have stored now, rather than within a minute. Does not block.
  void count_soon();

 private:
  void loop();
  void sweep();
  void count();
  absl::Status count_verdicts();
  bool stopping();

  const Parts parts_;
  const KeepRules rules_;
  const SoberClock clock_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  bool count_due_ = false;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace plumbline
