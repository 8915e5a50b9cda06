#include "server/work/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <future>
#include <stdexcept>

#include "kernels/array.h"
#include "tests/unit/work/fake_device.h"

namespace plumbline {
namespace {

using test::FakeBoard;

constexpr std::int64_t kLimit = 1 << 20;

// Nothing is shared with the worker's: the library that counts a status's owners is none that the sanitizer sees into.
Workers::Ran copy_of(const Workers::Ran& ran) {
  return {absl::Status(ran.status.code(), ran.status.message()), ran.backend, ran.notes};
}

struct Machine {
  explicit Machine(int boards, int host_workers) {
    std::vector<std::unique_ptr<DeviceWorker>> devices;
    for (int i = 0; i < boards; ++i) {
      this->boards.push_back(std::make_unique<FakeBoard>(1 << 30));
      // Limits of their own tell devices apart.
      devices.push_back(this->boards.back()->worker("cuda:" + std::to_string(i), kLimit + 1024 * i));
    }
    Workers::Options options;
    options.host_workers = host_workers;
    options.metrics = &metrics;
    options.report = [this](const std::string& line) {
      const std::lock_guard lock(mutex);
      reported.push_back(line);
    };
    workers = std::make_unique<Workers>(std::move(options), std::move(devices));
  }

  Workers::Ran run(std::function<void()> compute, std::uint64_t bytes = 1000, const std::string& run = "r") {
    std::promise<Workers::Ran> done;
    const auto ticket = workers->submit({"job", run, bytes, true, std::move(compute),
                                         [&done](const Workers::Ran& ran) { done.set_value(copy_of(ran)); }});
    if (!ticket.ok()) return {ticket.status(), "", {}};
    return done.get_future().get();
  }
  std::string metric(const std::string& series) {
    workers->show(&metrics);
    const std::string page = "\n" + metrics.scrape();
    const auto at = page.find("\n" + series + " ");
    return at == std::string::npos
               ? "none"
               : page.substr(at + series.size() + 2, page.find('\n', at + 1) - at - series.size() - 2);
  }

  Metrics metrics{"v", "c0ffee", "cuda"};
  std::mutex mutex;
  std::vector<std::string> reported;
  std::vector<std::unique_ptr<FakeBoard>> boards;
  std::unique_ptr<Workers> workers;
};

TEST(Workers, ADeviceComputesAndSaysSo) {
  Machine machine(1, 1);
  const auto ran = machine.run([] { EXPECT_NE(current_device(), nullptr); });
  EXPECT_TRUE(ran.status.ok());
  EXPECT_EQ(ran.backend, "cuda:0");
  EXPECT_TRUE(ran.notes.empty());
  EXPECT_EQ(machine.workers->describe(), "cuda:0 (Fake 9000, 1 MiB), cpu x 1");
  EXPECT_EQ(machine.metric(R"(plumbline_worker_up{worker="cuda:0"})"), "1");
  EXPECT_EQ(machine.metric(R"(plumbline_worker_restarts_total{worker="cpu"})"), "0");
}

TEST(Workers, WithoutMemoryTheHostBeginsAgain) {
  Machine machine(1, 1);
  int computed = 0;
  const auto ran = machine.run([&] {
    ++computed;
    Array::full({kLimit}, 1.0);  // Eight times the limit, on a device.
  });
  EXPECT_TRUE(ran.status.ok()) << ran.status;
  EXPECT_EQ(ran.backend, "cpu");
  EXPECT_EQ(computed, 2);
  ASSERT_EQ(ran.notes.size(), 1u);
  EXPECT_EQ(ran.notes[0], "cuda:0: out of memory within the 1048576 bytes of --gpu-memory-limit");
  EXPECT_EQ(machine.metric(R"(plumbline_worker_spills_total{reason="out_of_memory"})"), "1");
  EXPECT_EQ(machine.metric(R"(plumbline_worker_restarts_total{worker="cuda:0"})"), "0");
  EXPECT_EQ(machine.run([] {}).backend, "cuda:0") << "which is as good as before";
}

TEST(Workers, AfterAnErrorTheHostBeginsAgainAndTheDeviceIsOpenedAgain) {
  Machine machine(1, 1);
  machine.boards[0]->fail_at_allocation(1, "an illegal address was met");
  const auto ran = machine.run([] { Array::full({1000}, 1.0); });
  EXPECT_TRUE(ran.status.ok());
  EXPECT_EQ(ran.backend, "cpu");
  EXPECT_EQ(ran.notes, std::vector<std::string>{"cuda:0: an illegal address was met"});
  EXPECT_EQ(machine.metric(R"(plumbline_worker_spills_total{reason="device_error"})"), "1");
  EXPECT_EQ(machine.metric(R"(plumbline_worker_restarts_total{worker="cuda:0"})"), "1");
  EXPECT_EQ(machine.boards[0]->opened(), 2);
  EXPECT_EQ(machine.run([] {}).backend, "cuda:0");
}

TEST(Workers, TooLargeForADeviceIsTheHosts) {
  Machine machine(1, 1);
  EXPECT_EQ(machine.run([] {}, kLimit + 1).backend, "cpu");
  EXPECT_EQ(machine.metric(R"(plumbline_worker_spills_total{reason="too_large"})"), "1");
}

TEST(Workers, ALostDeviceLeavesTheOthersWorking) {
  Machine machine(2, 0);
  std::barrier both(2);  // So that each device gets one.
  std::promise<Workers::Ran> done[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(machine.workers
                    ->submit({"job", std::to_string(i), 1, true,
                              [&] {
                                both.arrive_and_wait();
                                if (current_memory()->limit() == kLimit) machine.boards[0]->lose();
                              },
                              [&done, i](const Workers::Ran& ran) { done[i].set_value(copy_of(ran)); }})
                    .ok());
  }
  Workers::Ran first = done[0].get_future().get(), second = done[1].get_future().get();
  if (first.status.ok()) std::swap(first, second);
  EXPECT_TRUE(absl::IsFailedPrecondition(first.status));
  EXPECT_NE(first.status.message().find("no worker is left that can run it; cuda:0: the device is lost"),
            std::string::npos)
      << first.status;
  EXPECT_TRUE(second.status.ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(machine.run([] {}).backend, "cuda:1");
  EXPECT_EQ(machine.metric(R"(plumbline_worker_up{worker="cuda:0"})"), "0");
  EXPECT_EQ(machine.metric(R"(plumbline_worker_up{worker="cuda:1"})"), "1");
  ASSERT_EQ(machine.reported.size(), 1u);
  EXPECT_NE(machine.reported[0].find("; the others go on"), std::string::npos) << machine.reported[0];
}

TEST(Workers, WhereNoneIsLeftTasksAreToldAndNothingHangs) {
  Machine machine(1, 0);
  std::promise<void> queued;
  std::promise<Workers::Ran> behind;
  std::promise<Workers::Ran> first;
  ASSERT_TRUE(machine.workers
                  ->submit({"job", "r", 1, true,
                            [&] {
                              queued.get_future().wait();
                              machine.boards[0]->lose();
                            },
                            [&](const Workers::Ran& ran) { first.set_value(copy_of(ran)); }})
                  .ok());
  ASSERT_TRUE(machine.workers
                  ->submit({"other", "r", 1, true, [] { FAIL() << "nobody can"; },
                            [&](const Workers::Ran& ran) { behind.set_value(copy_of(ran)); }})
                  .ok());
  queued.set_value();
  EXPECT_TRUE(absl::IsFailedPrecondition(first.get_future().get().status));
  EXPECT_EQ(behind.get_future().get().status.message(), "no worker is left that can run it");
  EXPECT_TRUE(absl::IsFailedPrecondition(machine.run([] {}).status));
  EXPECT_FALSE(machine.workers->any_left());
  EXPECT_NE(machine.reported.at(0).find("; no worker is left"), std::string::npos);
  EXPECT_TRUE(machine.workers->drain(absl::InfiniteFuture()));
}

TEST(Workers, WhatAComputationThrowsIsItsTasksError) {
  Machine machine(1, 1);
  const auto ran = machine.run([] { throw std::runtime_error("a wrong trace"); });
  EXPECT_TRUE(absl::IsInternal(ran.status));
  EXPECT_NE(ran.status.message().find("fault"), std::string::npos) << "the log has the rest";
  EXPECT_EQ(machine.metric(R"(plumbline_worker_restarts_total{worker="cuda:0"})"), "0");
}

TEST(Workers, ManyJobsOnTwoDevicesStayWithinTheirMemory) {
  Machine machine(2, 2);
  std::atomic<int> finished = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string job = "job " + std::to_string(i % 5);
    ASSERT_TRUE(machine.workers
                    ->submit({job, "run " + std::to_string(i % 7), 1000, true,
                              [i] {
                                std::vector<Array> held;
                                for (int k = 0; k <= i % 4; ++k)
                                  held.push_back(Array::full({1000 * (1 + i % 50)}, 1.0));
                              },
                              [&](const Workers::Ran& ran) { finished += ran.status.ok() ? 1 : 0; }})
                    .ok());
  }
  ASSERT_TRUE(machine.workers->drain(absl::InfiniteFuture()));
  EXPECT_EQ(finished, 200);
  for (const auto& board : machine.boards) EXPECT_LE(board->most(), kLimit + 1024);
  EXPECT_NE(machine.metric(R"(plumbline_worker_spills_total{reason="out_of_memory"})"), "0");
}

}  // namespace
}  // namespace plumbline
