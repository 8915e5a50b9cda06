// The scheduler with devices beside the host.
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "server/work/scheduler.h"
#include "tests/unit/work/fake_device.h"

namespace plumbline {
namespace {

using Turn = Scheduler::Turn;
using Why = Turn::Why;
using Ran = Scheduler::Ran;

constexpr std::size_t kDevice = 0, kHost = 1;

Scheduler::Options device_and_host(std::uint64_t device_bytes = 100, std::uint64_t host_bytes = 1000) {
  Scheduler::Options options;
  options.places = {{"cuda:0", 1, device_bytes, true}, {"cpu", 1, host_bytes, false}};
  return options;
}

// Where and why tasks ran, in order.
struct Log {
  std::mutex mutex;
  std::vector<std::pair<std::string, Why>> ran;

  Scheduler::Task task(const std::string& name, std::uint64_t bytes, const std::string& run = "",
                       std::function<Ran(const Turn&)> then = nullptr) {
    return {"job", run.empty() ? name : run, bytes, true, [this, name, then](const Turn& turn) {
              {
                const std::lock_guard lock(mutex);
                ran.emplace_back(name + (turn.why == Why::kNowhere ? ""
                                         : turn.place == kHost     ? "@host"
                                                                   : "@device"),
                                 turn.why);
              }
              return then ? then(turn) : Ran::kDone;
            }};
  }
};

using Seen = std::vector<std::pair<std::string, Why>>;

TEST(Places, ADeviceComesFirstAndTheHostTakesWhatIsTooLarge) {
  Scheduler scheduler(device_and_host());
  Log log;
  for (const char* name : {"a", "b"}) ASSERT_TRUE(scheduler.submit(log.task(name, 50)).ok());  // Both fit: b waits.
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  EXPECT_EQ(log.ran, (Seen{{"a@device", Why::kOwn}, {"b@device", Why::kOwn}}));
  Scheduler other(device_and_host());
  log.ran.clear();
  ASSERT_TRUE(other.submit(log.task("large", 101)).ok());
  ASSERT_TRUE(other.drain(absl::InfiniteFuture()));
  EXPECT_EQ(log.ran, (Seen{{"large@host", Why::kTooLarge}}));
}

TEST(Places, AFullDeviceSpillsAndABusyOneDoesNot) {
  Scheduler scheduler(device_and_host());
  Log log;
  std::promise<void> started, open, spilled;
  ASSERT_TRUE(scheduler
                  .submit(log.task("running", 60, "",
                                   [&](const Turn&) {
                                     started.set_value();
                                     open.get_future().wait();
                                     return Ran::kDone;
                                   }))
                  .ok());
  started.get_future().wait();
  ASSERT_TRUE(scheduler.submit(log.task("small", 40)).ok());  // There is room: it waits for the device.
  ASSERT_TRUE(scheduler
                  .submit(log.task("large", 41, "",
                                   [&](const Turn&) {
                                     spilled.set_value();
                                     return Ran::kDone;
                                   }))
                  .ok());
  spilled.get_future().wait();
  EXPECT_EQ(scheduler.queued(), 1);
  open.set_value();
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  EXPECT_EQ(log.ran, (Seen{{"running@device", Why::kOwn}, {"large@host", Why::kFull}, {"small@device", Why::kOwn}}));
}

TEST(Places, WhatADeviceFailedIsTheHostsBeforeTheRunGoesOn) {
  Scheduler scheduler(device_and_host());
  Log log;
  const auto fail = [](const Turn& turn) { return turn.place == kDevice ? Ran::kFailed : Ran::kDone; };
  ASSERT_TRUE(scheduler.submit(log.task("1", 10, "run", fail)).ok());
  ASSERT_TRUE(scheduler.submit(log.task("2", 10, "run")).ok());
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  EXPECT_EQ(log.ran, (Seen{{"1@device", Why::kOwn}, {"1@host", Why::kFailed}, {"2@device", Why::kOwn}}));
  EXPECT_EQ(scheduler.memory_used(kDevice), 0u);
  EXPECT_EQ(scheduler.memory_used(kHost), 0u);
}

TEST(Places, NothingHangsWhereNobodyIsLeft) {
  Scheduler::Options options;
  options.places = {{"cuda:0", 1, 100, true}, {"cuda:1", 1, 50, true}};
  Scheduler scheduler(options);
  Log log;
  // A failed task has no host to go to; and the last device of its size takes the tasks behind it with it.
  ASSERT_TRUE(scheduler
                  .submit(log.task("failed", 80, "",
                                   [&](const Turn& turn) {
                                     if (turn.why == Why::kNowhere) return Ran::kDone;
                                     scheduler.close(0);
                                     return Ran::kFailed;
                                   }))
                  .ok());
  ASSERT_TRUE(scheduler.submit(log.task("behind", 80)).ok() || !scheduler.open(0));
  ASSERT_TRUE(scheduler.submit(log.task("small", 10)).ok());
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  std::map<std::string, int> gave_up, ran;
  for (const auto& [name, why] : log.ran) ++(why == Why::kNowhere ? gave_up : ran)[name];
  EXPECT_EQ(gave_up["failed"], 1);
  EXPECT_EQ(ran["failed@device"], 1);
  EXPECT_EQ(ran["behind@device"], 0);
  EXPECT_EQ(ran["small@host"], 1) << "the other device, in the second place, goes on";
  Scheduler alone(options);
  alone.close(0);
  EXPECT_TRUE(absl::IsResourceExhausted(alone.submit(log.task("large", 80)).status()));
  alone.close(1);
  const absl::Status none = alone.submit(log.task("any", 1)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
}

TEST(Places, ARefusalNamesTheLimitThatIsTooSmall) {
  Log log;
  Scheduler small_host(device_and_host(100, 10));
  EXPECT_NE(small_host.submit(log.task("a", 101)).status().message().find("100 that --gpu-memory-limit leaves"),
            std::string::npos);
  Scheduler large_host(device_and_host(100, 1000));
  EXPECT_NE(large_host.submit(log.task("a", 1001)).status().message().find("1000 that --memory-limit leaves"),
            std::string::npos);
}

// Two jobs that always have tasks waiting, on one device whose clock only its tasks advance. What each job was given of
// the time while both had tasks.
std::map<std::string, double> shares(int light_tasks, int heavy_tasks, absl::Duration heavy) {
  test::FakeBoard board(1 << 20);
  Scheduler::Options options;
  options.places = {{"cuda:0", 1, 100, true}};
  options.now = [&board] { return board.now(); };
  Scheduler scheduler(options);
  std::promise<void> started, open;
  std::map<std::string, double> given;
  std::map<std::string, int> left = {{"light", light_tasks}, {"heavy", heavy_tasks}};
  EXPECT_TRUE(scheduler
                  .submit({"gate", "r", 1, true,
                           [&](const Turn&) {
                             started.set_value();
                             open.get_future().wait();
                             return Ran::kDone;
                           }})
                  .ok());
  started.get_future().wait();
  for (const auto& [job, count] : left) {
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(scheduler
                      .submit({job, "r", 1, true,
                               [&, job = job](const Turn&) {
                                 const absl::Duration cost = job == "heavy" ? heavy : absl::Seconds(1);
                                 board.run(cost);
                                 if (left["light"] > 0 && left["heavy"] > 0) given[job] += absl::ToDoubleSeconds(cost);
                                 --left[job];
                                 return Ran::kDone;
                               }})
                      .ok());
    }
  }
  open.set_value();
  EXPECT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  return given;
}

TEST(Places, TwoJobsShareADevice) {
  auto equal = shares(50, 50, absl::Seconds(1));
  EXPECT_NEAR(equal["light"] / equal["heavy"], 1, 0.05);
  auto unlike = shares(400, 20, absl::Seconds(7));
  EXPECT_NEAR(unlike["light"] / unlike["heavy"], 1, 0.2) << unlike["light"] << " s and " << unlike["heavy"] << " s";
}

}  // namespace
}  // namespace plumbline
