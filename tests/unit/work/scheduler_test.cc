#include "server/work/scheduler.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <thread>

#include "absl/time/clock.h"

namespace plumbline {
namespace {

using Work = std::function<Scheduler::Ran(const Scheduler::Turn&)>;

// A task that says when it starts and ends when it is told to.
struct Gate {
  std::promise<void> started, open;
  Work work() {
    return [this](const Scheduler::Turn&) {
      started.set_value();
      open.get_future().wait();
      return Scheduler::Ran::kDone;
    };
  }
};

struct Order {
  std::mutex mutex;
  std::vector<std::string> ran;
  Work work(const std::string& name) {
    return [this, name](const Scheduler::Turn&) {
      const std::lock_guard lock(mutex);
      ran.push_back(name);
      return Scheduler::Ran::kDone;
    };
  }
};

Scheduler::Options host(int workers, std::uint64_t bytes) {
  Scheduler::Options options;
  options.places[0].workers = workers;
  options.places[0].memory_bytes = bytes;
  return options;
}

Work nothing() {
  return [](const Scheduler::Turn&) { return Scheduler::Ran::kDone; };
}

Scheduler::Task task(const std::string& job, const std::string& run, Work work, std::uint64_t bytes = 1,
                     bool ready = true) {
  return {job, run, bytes, ready, std::move(work)};
}

TEST(Scheduler, IsFairBetweenJobsAndNotBetweenSteps) {
  Scheduler scheduler(host(1, 100));
  Gate gate;
  Order order;
  ASSERT_TRUE(scheduler.submit(task("gate", "gate", gate.work())).ok());
  gate.started.get_future().wait();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(scheduler.submit(task("many", "r", order.work("many"))).ok());
  ASSERT_TRUE(scheduler.submit(task("one", "r", order.work("one"))).ok());
  EXPECT_EQ(scheduler.queued(), 101);
  gate.open.set_value();
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  ASSERT_EQ(order.ran.size(), 101u);
  EXPECT_EQ(order.ran[1], "one");
}

TEST(Scheduler, AlternatesBetweenRunsOfAJob) {
  Scheduler scheduler(host(1, 100));
  Gate gate;
  Order order;
  ASSERT_TRUE(scheduler.submit(task("gate", "gate", gate.work())).ok());
  gate.started.get_future().wait();
  for (const char* run : {"a", "a", "b", "b"}) ASSERT_TRUE(scheduler.submit(task("j", run, order.work(run))).ok());
  gate.open.set_value();
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  EXPECT_EQ(order.ran, (std::vector<std::string>{"a", "b", "a", "b"}));
}

TEST(Scheduler, TasksOfOneRunNeverOverlap) {
  Scheduler scheduler(host(4, 100));
  Gate first;
  Order order;
  ASSERT_TRUE(scheduler.submit(task("j", "r", first.work())).ok());
  ASSERT_TRUE(scheduler.submit(task("j", "r", order.work("second"))).ok());
  first.started.get_future().wait();
  std::promise<void> other;
  ASSERT_TRUE(scheduler
                  .submit(task("j", "s",
                               [&other](const Scheduler::Turn&) {
                                 other.set_value();
                                 return Scheduler::Ran::kDone;
                               }))
                  .ok());
  other.get_future().wait();  // Another run's task does run meanwhile.
  EXPECT_TRUE(order.ran.empty());
  EXPECT_EQ(scheduler.queued(), 1);
  first.open.set_value();
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  EXPECT_EQ(order.ran.size(), 1u);
}

TEST(Scheduler, ATaskThatIsNotReadyHoldsBackItsRunOnly) {
  Scheduler scheduler(host(1, 100));
  Order order;
  const auto waiting = scheduler.submit(task("j", "r", order.work("r1"), 1, /*ready=*/false));
  ASSERT_TRUE(waiting.ok());
  ASSERT_TRUE(scheduler.submit(task("j", "r", order.work("r2"))).ok());
  std::promise<void> other;
  ASSERT_TRUE(scheduler
                  .submit(task("j", "s",
                               [&other](const Scheduler::Turn&) {
                                 other.set_value();
                                 return Scheduler::Ran::kDone;
                               }))
                  .ok());
  other.get_future().wait();
  EXPECT_TRUE(order.ran.empty());
  scheduler.make_ready(*waiting);
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  EXPECT_EQ(order.ran, (std::vector<std::string>{"r1", "r2"}));
}

TEST(Scheduler, RefusesWhatCanNeverFit) {
  Scheduler scheduler(host(1, 100));
  const auto refused = scheduler.submit(task("j", "r", nothing(), 101));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_NE(refused.status().message().find("--memory-limit"), std::string::npos);
}

TEST(Scheduler, StaysWithinItsMemory) {
  Scheduler scheduler(host(2, 100));
  Gate large;
  Order order;
  ASSERT_TRUE(scheduler.submit(task("a", "r", large.work(), 70)).ok());
  large.started.get_future().wait();
  ASSERT_TRUE(scheduler.submit(task("b", "r", order.work("b"), 70)).ok());
  ASSERT_TRUE(scheduler.submit(task("c", "r", order.work("c"), 70)).ok());
  EXPECT_EQ(scheduler.memory_used(0), 70u);
  EXPECT_EQ(scheduler.queued(), 2);
  large.open.set_value();
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  EXPECT_EQ(order.ran.size(), 2u);
  EXPECT_EQ(scheduler.memory_used(0), 0u);
}

TEST(Scheduler, SmallTasksDoNotKeepALargeOneWaitingForEver) {
  Scheduler scheduler(host(2, 100));
  Gate running;
  Order order;
  ASSERT_TRUE(scheduler.submit(task("a", "r", running.work(), 50)).ok());
  running.started.get_future().wait();
  ASSERT_TRUE(scheduler.submit(task("b", "r", order.work("large"), 100)).ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(scheduler.submit(task("c", "r", order.work("small"), 10)).ok());
  running.open.set_value();
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  ASSERT_EQ(order.ran.size(), 6u);
  EXPECT_EQ(order.ran[0], "large");
}

Scheduler::Task longer(const std::string& job, const std::string& run, Work work, std::uint64_t bytes = 1) {
  Scheduler::Task made = task(job, run, std::move(work), bytes);
  made.multiplications = 1e12;
  return made;
}

int nice_of_this_thread() { return getpriority(PRIO_PROCESS, 0); }

// Runs a task to its end, and returns how the system puts its thread behind that of the process.
int ran_behind(Scheduler* scheduler, Scheduler::Task task) {
  std::promise<int> done;
  task.work = [&done](const Scheduler::Turn&) {
    done.set_value(nice_of_this_thread());
    return Scheduler::Ran::kDone;
  };
  const std::uint64_t before = scheduler->memory_used(0);
  EXPECT_TRUE(scheduler->submit(std::move(task)).ok());
  const int nice = done.get_future().get();
  while (scheduler->memory_used(0) > before) std::this_thread::yield();
  return nice - nice_of_this_thread();
}

TEST(Scheduler, WhatIsSaidToBeLongKeepsNoShortOneWaiting) {
  Gate one, other;
  Scheduler scheduler(host(1, 100));
  ASSERT_TRUE(scheduler.submit(longer("long", "one", one.work())).ok());
  one.started.get_future().wait();
  ASSERT_TRUE(scheduler.submit(longer("long", "other", other.work())).ok());
  EXPECT_EQ(ran_behind(&scheduler, task("short", "run", nothing())), 0);
  EXPECT_EQ(scheduler.queued(), 1) << "one worker has one long task at a time";
  one.open.set_value();
  other.started.get_future().wait();
  other.open.set_value();
}

TEST(Scheduler, WhatWasLongIsTakenToBeLongAgain) {
  Gate again;
  std::atomic<int> seconds = 0;
  Scheduler::Options options = host(1, 100);
  options.spent = [&] { return absl::Seconds(seconds.load()); };
  Scheduler scheduler(options);
  std::promise<void> ended;
  ASSERT_TRUE(scheduler
                  .submit(task("job", "first",
                               [&](const Scheduler::Turn&) {
                                 seconds += 5;
                                 ended.set_value();
                                 return Scheduler::Ran::kDone;
                               }))
                  .ok());
  ended.get_future().wait();
  while (scheduler.memory_used(0) > 0) std::this_thread::yield();
  EXPECT_EQ(ran_behind(&scheduler, task("job", "short", nothing())), 0);  // Which makes it no job of short ones.
  ASSERT_TRUE(scheduler.submit(task("job", "again", again.work())).ok());
  again.started.get_future().wait();
  EXPECT_EQ(ran_behind(&scheduler, task("other", "run", nothing())), 0);
  again.open.set_value();
}

TEST(Scheduler, NoQuickTaskMakesALongOneShort) {
  Scheduler scheduler(host(1, 100));
  EXPECT_EQ(ran_behind(&scheduler, task("other", "run", nothing())), 0);
  // It gave up early; and one of which no work was told.
  EXPECT_GT(ran_behind(&scheduler, longer("gives up", "run", nothing())), 0);
  EXPECT_GT(ran_behind(&scheduler, longer("gives up", "run", nothing())), 0);
  EXPECT_EQ(ran_behind(&scheduler, task("mixed", "run", nothing())), 0);
  EXPECT_GT(ran_behind(&scheduler, longer("mixed", "run", nothing())), 0);
}

TEST(Scheduler, LongOnesStandBackWhileOthersShortOnesAreAbout) {
  std::mutex clock;
  absl::Time now = absl::UnixEpoch();
  Scheduler::Options options = host(1, 100);
  options.now = [&] {
    const std::lock_guard lock(clock);
    return now;
  };
  Scheduler scheduler(options);
  EXPECT_EQ(ran_behind(&scheduler, longer("long", "r", nothing())), 0) << "nobody is about";
  EXPECT_EQ(ran_behind(&scheduler, task("short", "r", nothing())), 0);
  EXPECT_GT(ran_behind(&scheduler, longer("another", "r", nothing())), 0);
  {
    const std::lock_guard lock(clock);
    now += absl::Seconds(11);
  }
  EXPECT_EQ(ran_behind(&scheduler, longer("another", "r", nothing())), 0) << "nobody is about any more";
}

TEST(Scheduler, LongOnesLeaveOneWorkerOfSeveralWhileOthersShortOnesAreAbout) {
  std::mutex clock;
  absl::Time now = absl::UnixEpoch();
  Scheduler::Options options = host(2, 100);
  options.now = [&] {
    const std::lock_guard lock(clock);
    return now;
  };
  Gate one, other;
  Scheduler scheduler(options);
  ran_behind(&scheduler, task("short", "r", nothing()));
  ASSERT_TRUE(scheduler.submit(longer("long", "one", one.work())).ok());
  one.started.get_future().wait();
  ASSERT_TRUE(scheduler.submit(longer("long", "other", other.work())).ok());
  EXPECT_EQ(scheduler.queued(), 1);
  EXPECT_EQ(ran_behind(&scheduler, task("short", "r", nothing())), 0);
  EXPECT_EQ(scheduler.queued(), 1) << "of two workers one has a long task";
  {
    const std::lock_guard lock(clock);
    now += absl::Seconds(11);
  }
  other.started.get_future().wait();  // Nobody else is about any more, which is noticed by time alone.
  one.open.set_value();
  other.open.set_value();
}

TEST(Scheduler, WhereMemoryIsShortALongOneGetsItsTurnAndNoMore) {
  Gate small, large, late;
  Order order;
  Scheduler scheduler(host(3, 100));
  ran_behind(&scheduler, task("short", "r", nothing()));
  ASSERT_TRUE(scheduler.submit(task("short", "r", small.work(), 50)).ok());
  small.started.get_future().wait();
  ASSERT_TRUE(scheduler.submit(longer("large", "r", large.work(), 80)).ok());
  // It fits once the short one has ended: others wait for it. (That it waits is known once a worker looked.)
  while (!scheduler.waits_for_memory(0)) std::this_thread::yield();
  ASSERT_TRUE(scheduler.submit(task("other", "r", order.work("held back"), 10)).ok());
  EXPECT_EQ(scheduler.queued(), 2);
  small.open.set_value();
  large.started.get_future().wait();
  while (scheduler.queued() > 0) std::this_thread::yield();
  // What fits only once a long one has ended holds nobody back.
  ASSERT_TRUE(scheduler.submit(longer("larger", "r", late.work(), 90)).ok());
  while (!scheduler.waits_for_memory(0)) std::this_thread::yield();
  EXPECT_EQ(ran_behind(&scheduler, task("short", "r", nothing(), 10)), 0);
  large.open.set_value();
  late.started.get_future().wait();
  late.open.set_value();
}

TEST(Scheduler, IsFairBetweenOwnersWhateverTheirJobs) {
  Scheduler scheduler(host(1, 100));
  Gate gate;
  Order order;
  const auto owned = [&](const std::string& owner, const std::string& job) {
    Scheduler::Task made = task(job, "r", order.work(owner));
    made.owner = owner;
    return made;
  };
  ASSERT_TRUE(scheduler.submit(task("gate", "gate", gate.work())).ok());
  gate.started.get_future().wait();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(scheduler.submit(owned("many", "job " + std::to_string(i))).ok());
  ASSERT_TRUE(scheduler.submit(owned("one", "job")).ok());
  gate.open.set_value();
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  ASSERT_EQ(order.ran.size(), 21u);
  EXPECT_EQ(order.ran[1], "one") << "a job's name is one owner's";
}

TEST(Scheduler, DrainsUntilTheDeadlineAndDropsTheRest) {
  Gate gate;
  Order order;
  {
    Scheduler scheduler(host(1, 100));
    ASSERT_TRUE(scheduler.submit(task("j", "r", gate.work())).ok());
    gate.started.get_future().wait();
    ASSERT_TRUE(scheduler.submit(task("j", "r", order.work("late"), 1, /*ready=*/false)).ok());
    EXPECT_FALSE(scheduler.drain(absl::InfinitePast()));
    EXPECT_TRUE(absl::IsUnavailable(scheduler.submit(task("j", "r", nothing())).status()));
    gate.open.set_value();
  }
  EXPECT_TRUE(order.ran.empty());
}

TEST(Scheduler, SaysHowBusyItsWorkersAre) {
  Scheduler scheduler(host(1, 100));
  Gate gate;
  ASSERT_TRUE(scheduler.submit(task("j", "r", gate.work())).ok());
  gate.started.get_future().wait();
  scheduler.take_busy_ratio();
  EXPECT_GT(scheduler.take_busy_ratio(), 0.99);  // It is a share of the time between the two calls.
  gate.open.set_value();
  ASSERT_TRUE(scheduler.drain(absl::InfiniteFuture()));
  scheduler.take_busy_ratio();
  EXPECT_EQ(scheduler.take_busy_ratio(), 0.0);
}

}  // namespace
}  // namespace plumbline
