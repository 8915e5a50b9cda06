// Waits for steps of runs at other daemons, which others are paired with, until the shared history has them.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "server/ingest/trace.h"
#include "server/store/shared_golden.h"

namespace plumbline {

// Under which a run's steps are recorded for those that are paired with it: the same on all nodes, and short whatever
// the names are.
std::string pair_name(const StepIdentity& run);

// Thread-safe.
class PairWatch {
 public:
  // `arrived` runs on the watch's thread: the step is there, or the run has passed it. `shared` outlives stop().
  PairWatch(SharedGolden* shared, std::function<void(const StepIdentity& step)> arrived);
  ~PairWatch();
  PairWatch(const PairWatch&) = delete;
  PairWatch& operator=(const PairWatch&) = delete;

  void add(const StepIdentity& step, absl::Time deadline);  // Of steady_now(). The latest one of a step holds.
  void stop();                                              // Waits for a query that runs.

 private:
  void loop();
  bool is_due(const StepIdentity& step) const;

  SharedGolden* const shared_;
  const std::function<void(const StepIdentity&)> arrived_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<StepIdentity, absl::Time> waiting_;
  bool stop_ = false;
  std::mutex join_;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace plumbline
