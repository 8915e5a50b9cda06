#include "kernels/cpu/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kernels/cpu/cancel.h"

namespace plumbline::cpu {
namespace {

class Both : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    before_ = threads();
    set_threads(2);
  }
  static void TearDownTestSuite() { set_threads(before_); }

  static inline int before_ = 1;
};

std::int64_t sum_of_squares(std::int64_t n) {
  std::atomic<std::int64_t> sum = 0;
  parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t part = 0;
    for (std::int64_t i = begin; i < end; ++i) part += i * i;
    sum += part;
  });
  return sum;
}

// A place where two threads meet: neither passes alone.
class Meeting {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    ++here_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return here_ >= 2; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0;
};

TEST_F(Both, RunAtOnce) {
  Meeting meeting;
  std::thread::id first, second;
  both(
      [&] {
        meeting.wait();
        first = std::this_thread::get_id();
      },
      [&] {
        meeting.wait();
        second = std::this_thread::get_id();
      });
  EXPECT_EQ(first, std::this_thread::get_id());
  EXPECT_NE(first, second);
}

TEST_F(Both, LoopsOfEitherAreWhole) {
  for (int round = 0; round < 200; ++round) {
    std::int64_t few = 0, many = 0;
    const auto count_few = [&] { few = sum_of_squares(100); };
    const auto count_many = [&] {
      for (int i = 0; i < 20; ++i) many += sum_of_squares(1000);
    };
    if (round % 2 == 0)
      both(count_few, count_many);
    else
      both(count_many, count_few);
    EXPECT_EQ(few, 328350);
    EXPECT_EQ(many, 20 * 332833500L);
  }
}

// The loop of the one that lasts meets itself: two threads are in it once the other is over.
TEST_F(Both, WhoIsOverHelpsTheOther) {
  const auto nothing = [] {};
  for (const bool second_lasts : {true, false}) {
    Meeting meeting;
    const auto lasts = [&] { parallel_for(2, 1, [&](std::int64_t, std::int64_t) { meeting.wait(); }); };
    second_lasts ? both(nothing, lasts) : both(lasts, nothing);
  }
}

TEST_F(Both, RunOneAfterTheOtherWithinALoop) {
  std::vector<int> seen(4, 0);
  parallel_for(4, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) both([&, i] { seen[i] += 1; }, [&, i] { seen[i] *= 10; });
  });
  EXPECT_EQ(seen, std::vector<int>(4, 10));
}

TEST_F(Both, ThrowWhatEitherThrows) {
  bool over = false;
  EXPECT_THROW(both([&] { over = true; }, [] { throw std::invalid_argument("second"); }), std::invalid_argument);
  EXPECT_TRUE(over);
  EXPECT_THROW(both([] { throw std::runtime_error("first"); }, [] { throw std::invalid_argument("second"); }),
               std::runtime_error);
}

TEST_F(Both, WhatIsInVainIsGivenUp) {
  Meeting meeting;
  const auto first = [&] {
    meeting.wait();
    throw std::runtime_error("first");
  };
  const auto second = [&] {
    meeting.wait();
    for (;;) cancel_point();
  };
  EXPECT_THROW(both(first, second), std::runtime_error);
}

TEST_F(Both, AreGivenUpAtOnce) {
  std::atomic<bool> wanted = true;
  const CancelScope scope([&] { return wanted.load(); });
  Meeting meeting;
  const auto until_given_up = [&] {
    meeting.wait();
    wanted = false;
    for (;;) cancel_point();
  };
  std::atomic<int> given_up = 0;
  const auto counted = [&] {
    try {
      until_given_up();
    } catch (const GivenUp&) {
      ++given_up;
      throw;
    }
  };
  EXPECT_THROW(both(counted, counted), GivenUp);
  EXPECT_EQ(given_up, 2);
}

// As many audits as processors: each keeps to its own.
TEST_F(Both, LeaveProcessorsToOtherAudits) {
  const Computing one, two;
  std::thread::id second;
  both([] {}, [&] { second = std::this_thread::get_id(); });
  EXPECT_EQ(second, std::this_thread::get_id());
  for (int round = 0; round < 100; ++round)
    parallel_for(64, 1, [&](std::int64_t, std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), second); });
}

}  // namespace
}  // namespace plumbline::cpu
