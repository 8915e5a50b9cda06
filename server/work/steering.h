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
  std::int64_t steps = 0;  // The run had so many so far.
  std::int64_t since = 0;  // So many of these came after the last sampled one.
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

  // A sampled step may cost this share of a step, where its slice is ours to choose.
  static constexpr double kPeakShare = 1;
  static constexpr double kMemoryShare = 0.5;  // Likewise, it may take this share of a worker's memory.
  static constexpr double kSliceMin = 1.0 / 4096;
  // A slice grows or shrinks by no more from one sampled step to the next.
  static constexpr double kGrowthMax = 4, kShrinkMax = 8;
  // No larger share of what a sampled step costs is taken for fixed.
  static constexpr double kFixedMax = 0.75;
  // Plans use this share of the time that a worker may spend on one run.
  static constexpr double kWorkerShare = 0.8;
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
  double audit_seconds_ = 0;  // The last audit took so long.
  double memory_share_ = 0;
};

}  // namespace plumbline
