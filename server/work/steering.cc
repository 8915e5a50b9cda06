#include "server/work/steering.h"

#include <algorithm>
#include <cmath>

namespace plumbline {

// Least squares. Where all slices are alike the whole cost is taken for the slice's: above what a larger slice costs.
Steering::Fit Steering::fit(double slice, double cost_seconds) {
  constexpr double kAlike = 0.01;  // Variance over the mean's square.
  const double kept = ++sampled_ == 2 ? 0 : 0.5;
  const auto add = [kept](double* sum, double value) { *sum = value + kept * *sum; };
  add(&weights_, 1);
  add(&slices_, slice);
  add(&costs_, cost_seconds);
  add(&squares_, slice * slice);
  add(&products_, slice * cost_seconds);
  const double mean_slice = slices_ / weights_, mean_cost = costs_ / weights_, whole = mean_cost / mean_slice;
  const double variance = squares_ / weights_ - mean_slice * mean_slice;
  if (!(variance > kAlike * mean_slice * mean_slice)) return {0, whole};
  const double slope = (products_ / weights_ - mean_slice * mean_cost) / variance;
  const Fit fitted{0, std::clamp(slope, (1 - kFixedMax) * whole, whole)};
  return {mean_cost - fitted.slope * mean_slice, fitted.slope};
}

Steer Steering::decide(const Pace& pace, std::size_t waiting) {
  spent_seconds_ += pace.cost_seconds;
  Steer steer;
  const Fit cost = fit(pace.slice, pace.cost_seconds);
  double growth = 1;  // The next slice is so many times the last one.
  if (pace.rotating) {
    const double left = kPeakShare * pace.step_seconds - cost.fixed;
    double room = cost.slope > 0 ? left / (cost.slope * pace.slice) : kGrowthMax;
    if (memory_share_ > 0) room = std::min(room, kMemoryShare / memory_share_);
    steer.slice = std::clamp(pace.slice * std::clamp(room, 1 / kShrinkMax, kGrowthMax), kSliceMin, 1.0);
    growth = steer.slice / pace.slice;
  }
  double every = 1;
  if (budget_.step_share > 0) {
    // An account: each step of training pays its share in, each sampled step takes its cost out.
    const double income = budget_.step_share * pace.step_seconds;
    const double owed = spent_seconds_ + cost.at(growth * pace.slice) - income * static_cast<double>(pace.steps);
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
