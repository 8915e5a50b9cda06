#include "server/work/steering.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace plumbline {
namespace {

// A training whose sampled steps cost fixed + slope * slice, in steps of `step_seconds`.
struct Training {
  double step_seconds = 0.1, fixed = 0.02, slope = 0.2;  // Seconds.
  bool rotating = true;
  double noise = 0;
  double audit_per_slice = 0;
  double memory_per_slice = 0;  // Shares of a worker's.

  std::int64_t steps = 0, samples = 0;
  double slice = 1.0 / 16, spent = 0, covered = 0;
  std::uint64_t bytes = 0;

  void run(Steering& steering, std::int64_t until) {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> jitter(1 - noise, 1 + noise);
    while (steps < until) {
      const double cost = (fixed + slope * slice) * jitter(random);
      const auto sent = static_cast<std::uint64_t>(1e9 * slice);
      spent += cost;
      bytes += sent;
      covered += slice;
      ++samples;
      steering.audited(audit_per_slice * slice, memory_per_slice * slice);
      const Steer next = steering.decide({steps + 1, 0, step_seconds, cost, sent, slice, rotating}, 0);
      steps += next.every;
      if (rotating) slice = next.slice;
    }
  }
  double share() const { return spent / (static_cast<double>(steps) * step_seconds); }
};

TEST(Steering, SpendsWhatTheBudgetAllowsAndNotMuchLess) {
  for (const double budget : {0.005, 0.02, 0.2}) {
    for (const double noise : {0.0, 0.5}) {
      Training training;
      training.noise = noise;
      Steering steering({budget, 0});
      training.run(steering, 20'000);
      EXPECT_LE(training.share(), budget * 1.01) << budget << " " << noise;
      EXPECT_GE(training.share(), budget * 0.9) << budget << " " << noise;
    }
  }
}

TEST(Steering, CoversTheModelAndKeepsEachSampledStepBelowItsPeak) {
  Training training;
  Steering steering({0.02, 0});
  training.run(steering, 200);
  EXPECT_GE(training.covered, 1.0);
  training.run(steering, 5'000);
  EXPECT_LE(training.fixed + training.slope * training.slice, 1.01 * Steering::kPeakShare * training.step_seconds);
  EXPECT_GT(training.slice, 1.0 / 16);
}

TEST(Steering, AFirstStepThatCostMuchIsPaidBack) {
  Steering steering({0.02, 0});
  const Steer next = steering.decide({1, 0, 0.1, 1.0, 0, 1.0 / 16, true}, 0);
  EXPECT_GE(next.every, 500);  // One second at 2 ms a step.
  EXPECT_LE(next.slice, 1.0 / 16 / 8 + 1e-12);
}

TEST(Steering, BytesPerSecond) {
  Training training;
  training.fixed = training.slope = 0;
  Steering steering({0, 1e8});
  training.run(steering, 5'000);
  EXPECT_LE(static_cast<double>(training.bytes), 1.05e8 * static_cast<double>(training.steps) * training.step_seconds);
}

TEST(Steering, NoFasterThanTheDaemonJudges) {
  Training training;
  training.audit_per_slice = 100;
  training.fixed = training.slope = 1e-6;
  Steering steering({0.5, 0});
  training.run(steering, 5'000);
  EXPECT_LE(training.covered * training.audit_per_slice,
            1.05 * Steering::kWorkerShare * static_cast<double>(training.steps) * training.step_seconds + 200);
  const Steer free = steering.decide({10'000, 0, 0.1, 1e-6, 0, 1, true}, 0);
  const Steer busy = steering.decide({10'000, 0, 0.1, 1e-6, 0, 1, true}, 3);
  EXPECT_GT(busy.every, 3 * free.every);
}

TEST(Steering, SlicesFitAWorkersMemory) {
  Training training;
  training.fixed = training.slope = 1e-6;
  training.memory_per_slice = 5;
  Steering steering({0.5, 0});
  training.run(steering, 100);
  EXPECT_NEAR(training.slice, Steering::kMemoryShare / 5, 1e-9);
  steering.audited(0, 4);  // Refused.
  EXPECT_EQ(steering.decide({101, 0, 0.1, 1e-6, 0, 0.4, true}, 0).slice, 0.05);
}

TEST(Steering, StepsThatRanBeforeTheCostWasKnownArePaidFor) {
  const Steer at_once = Steering({0.02, 0}).decide({1, 0, 0.1, 0.1, 0, 1, true}, 0);
  const Steer late = Steering({0.02, 0}).decide({21, 20, 0.1, 0.1, 0, 1, true}, 0);
  EXPECT_EQ(at_once.every, late.every);
}

TEST(Steering, OneMeasurementAloneDecidesLittle) {
  Steering steering({0.02, 0});
  const Steer before = steering.decide({1, 0, 0.1, 0.04, 0, 0.25, true}, 0);
  steering.decide({200, 0, 0.1, 0, 0, 0.25, true}, 0);
  EXPECT_NEAR(before.slice, 0.625, 1e-12);
  const Steer dear = steering.decide({400, 0, 0.1, 0.12, 0, 0.25, true}, 0);
  EXPECT_GT(dear.slice, 0.25);  // Alone it would say less: 0.12 s where 0.1 s are the most.
}

// What the first sampled step cost beyond others is paid for, and makes no later slice smaller.
TEST(Steering, WhatIsSetUpOnceSaysNothingOfOthers) {
  Steering steering({0.02, 0});
  steering.decide({10, 0, 1, 1, 0, 0.0625, true}, 0);
  const Steer next = steering.decide({100, 0, 1, 0.4, 0, 0.0625, true}, 0);
  EXPECT_NEAR(next.slice, 0.0625 / 0.4, 1e-12);
  EXPECT_EQ(next.every, 20);  // 1 + 0.4 + 1 of 0.02 a step.
}

// A large fixed part is no reason for small slices: the model is covered within what the budget pays.
TEST(Steering, TakesLargeSlicesWhereMostOfTheCostIsFixed) {
  for (const double noise : {0.0, 0.3}) {
    Training training;
    training.step_seconds = 1;
    training.fixed = 0.3;
    training.slope = 1;
    training.noise = noise;
    Steering steering({0.02, 0});
    training.run(steering, 200);
    EXPECT_GE(training.covered, 1.0) << noise;
    training.run(steering, 20'000);
    EXPECT_LE(training.share(), 0.0202) << noise;
  }
}

TEST(Steering, PatternsKeepTheirSlice) {
  Training training;
  training.rotating = false;
  training.slice = 0.5;
  Steering steering({0.02, 0});
  EXPECT_EQ(steering.decide({1, 0, 0.1, 0.17, 0, 0.5, false}, 0).slice, 0);
  training.run(steering, 20'000);
  EXPECT_LE(training.share(), 0.0202);
}

TEST(Steering, NumbersAtTheirLimits) {
  Steering steering({1e-9, 1e-9});
  const Steer next = steering.decide({1, 0, 1e-9, 1e9, UINT64_MAX, 1e-300, true}, SIZE_MAX);
  EXPECT_EQ(next.every, Steering::kEveryMax);
  EXPECT_GE(next.slice, Steering::kSliceMin);
  const Steer nothing = Steering({0.02, 0}).decide({1, 0, 1, 0, 0, 1, true}, 0);
  EXPECT_EQ(nothing.every, 1);
  EXPECT_EQ(nothing.slice, 1);
}

}  // namespace
}  // namespace plumbline
