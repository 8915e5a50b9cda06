#include "server/work/steering.h"

#include <algorithm>
#include <cmath>

namespace plumbline {

Steer Steering::decide(const Pace& pace, std::size_t waiting) {
  spent_seconds_ += pace.cost_seconds;
  Steer steer;
  // A slice's cost is taken as proportional to it, by the last few sampled steps: one alone says what else the machine
  // did just then.
  costs_ = pace.cost_seconds + costs_ / 2;
  slices_ = pace.slice + slices_ / 2;
  const double cost = costs_ / slices_ * pace.slice;
  double growth = 1;  // Of the next slice over the last one.
  if (pace.rotating) {
    double room = cost > 0 ? kPeakShare * pace.step_seconds / cost : kGrowthMax;
    if (memory_share_ > 0) room = std::min(room, kMemoryShare / memory_share_);
    steer.slice = std::clamp(pace.slice * std::clamp(room, 1 / kShrinkMax, kGrowthMax), kSliceMin, 1.0);
    growth = steer.slice / pace.slice;
  }
  double every = 1;
  if (budget_.step_share > 0) {
    // An account: each step of training pays its share in, each sampled step takes its cost out.
    const double income = budget_.step_share * pace.step_seconds;
    const double owed = spent_seconds_ + growth * cost - income * static_cast<double>(pace.steps);
    every = std::max(every, owed / income + static_cast<double>(pace.since));
  }
  if (budget_.bytes_per_second > 0) {
    const double income = budget_.bytes_per_second * pace.step_seconds;
    every = std::max(every, growth * static_cast<double>(pace.bytes) / income);
  }
  // No faster than the daemon judges; what already waits comes first.
  every =
      std::max(every, (growth + static_cast<double>(waiting)) * audit_seconds_ / (kWorkerShare * pace.step_seconds));
  steer.every = every < static_cast<double>(kEveryMax) ? static_cast<std::int64_t>(std::ceil(every)) : kEveryMax;
  return steer;
}

}  // namespace plumbline
