// The series of jobs: at most so many pairs of (project, job) at a time. One that was quiet for kQuiet makes room for
// another, the longest quiet one first; until there is room, another counts as "other", so that many names drive no
// working job out. What was quiet for kEnded has ended: its series go. Thread-safe.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "server/metrics/metrics.h"

namespace plumbline {

class JobSeries {
 public:
  static constexpr absl::Duration kQuiet = absl::Minutes(10), kEnded = absl::Hours(24);

  JobSeries(prometheus::Registry* registry, std::size_t most);

  // As Metrics's functions of these names.
  void open(const std::string& project, const std::string& job, absl::Time now);
  void add_verdict(const Verdict& verdict, absl::Time now);
  void add_steps(const std::string& project, const std::string& job, StepOutcome outcome, std::int64_t steps,
                 absl::Time now);
  void expire(absl::Time now);

 private:
  using Name = std::pair<std::string, std::string>;  // Project, job.
  struct Series {
    Name name;
    absl::Time active;
    prometheus::Gauge* last_type_ii = nullptr;
    std::map<std::pair<Outcome, Grade>, prometheus::Counter*> verdicts;
    std::map<StepOutcome, prometheus::Counter*> steps;
  };
  Series& of(const std::string& project, const std::string& job, absl::Time now);  // With the lock held, as below.
  bool make_room(absl::Time now);
  Series begin(const Name& name, absl::Time now);
  prometheus::Counter* verdicts_of(const Name& name, Outcome outcome, Grade grade);
  void remove(const Series& series);

  const std::size_t most_;
  prometheus::Family<prometheus::Counter>&verdicts_, &steps_;
  prometheus::Family<prometheus::Gauge>& last_type_ii_;
  std::mutex mutex_;
  std::map<Name, Series> all_;  // And "other", once there is one.
};

}  // namespace plumbline
