// Keeps a run within what its budget allows: decides, after each sampled step, when the next one comes and how much of
// the models it audits. Arithmetic alone: no clock, no thread. Not thread-safe.
//
// A sampled step costs a fixed part (all steps have loss, hooks and messages) and one in proportion to its slice. Both
// are fitted to the last sampled steps, each weighing half as much as the next: one alone says what else the machine
// did just then. The first one of a run pays for what is set up once as well; it is paid for, but says nothing of
// others.
#pragma once

#include <cstdint>

namespace plumbline {

struct Budget {
  double step_share = 0;        // Share of the time of training without audit; 0: no limit.
  double bytes_per_second = 0;  // 0: no limit.
  bool given() const { return step_share > 0 || bytes_per_second > 0; }
  bool operator==(const Budget&) const = default;
};

// What the client measured of its last sampled step (audit.proto's Pace).
struct Pace {
  std::int64_t steps = 0;  // Of the run so far.
  std::int64_t since = 0;  // Of these, after the last sampled one.
  double step_seconds = 0;
  double cost_seconds = 0;
  std::uint64_t bytes = 0;
  double slice = 1;
  bool rotating = false;
};

struct Steer {
  std::int64_t every = 0;  // Steps from the last sampled one to the next.
  double slice = 0;        // 0: not ours to choose.
};

class Steering {
 public:
  explicit Steering(Budget budget) : budget_(budget) {}

  // A step's audit took so long, and was taken to need this share of what a worker has (beyond 1: it was refused).
  void audited(double seconds, double memory_share) {
    audit_seconds_ = seconds;
    memory_share_ = memory_share;
  }
  Steer decide(const Pace& pace, std::size_t waiting);  // `waiting`: steps of the run that have no verdict yet.

  static constexpr double kPeakShare = 1;  // Of a step: what a sampled one may cost, where its slice is ours to choose.
  static constexpr double kMemoryShare = 0.5;  // Of a worker's memory, likewise.
  static constexpr double kSliceMin = 1.0 / 4096;
  static constexpr double kGrowthMax = 4, kShrinkMax = 8;  // Of a slice, from one sampled step to the next.
  static constexpr double kFixedMax = 0.75;                // Of what a sampled step costs.
  static constexpr double kWorkerShare = 0.8;              // Of the time that a worker may spend on one run.
  static constexpr std::int64_t kEveryMax = 1'000'000;

 private:
  struct Fit {
    double fixed = 0, slope = 0;  // Seconds; seconds for a slice of 1.
    double at(double slice) const { return fixed + slope * slice; }
  };
  Fit fit(double slice, double cost_seconds);

  const Budget budget_;
  double spent_seconds_ = 0;  // On sampled steps so far.
  std::int64_t sampled_ = 0;
  // Weighted sums over sampled steps: their number, slices, costs, and products.
  double weights_ = 0, slices_ = 0, costs_ = 0, squares_ = 0, products_ = 0;
  double audit_seconds_ = 0;  // Of the last audit.
  double memory_share_ = 0;
};

}  // namespace plumbline
