#include "server/ingest/golden_outbox.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/ingest/temporary_directory.h"

namespace plumbline {
namespace {

constexpr char kHistory[] = "b7b5a1c0-0000-4000-8000-000000000001";

v1::GoldenHeader header(const std::string& run, std::int32_t began_us = 1) {
  v1::GoldenHeader header;
  header.set_project("p");
  header.set_name("v1");
  header.set_run(run);
  header.mutable_time()->set_nanos(1000 * began_us);
  return header;
}

GoldenStep step_of_run(std::int64_t step) {
  GoldenStep golden;
  golden.step = step;
  return golden;
}

class GoldenOutboxTest : public ::testing::Test {
 protected:
  void record(std::int64_t step) { ASSERT_TRUE(store_.append("p", "v1", step_of_run(step)).ok()); }

  // What is to ship, in words, and that it was shipped.
  std::string shipped(const std::string& history = kHistory) {
    std::string all;
    for (;;) {
      const auto next = outbox_.next(history);
      EXPECT_TRUE(next.ok()) << next.status();
      if (!next.ok() || !*next) return all;
      if ((*next)->removed) all += "removed " + (*next)->header.run() + " of " + (*next)->owner + ";";
      for (const v1::GoldenStep& step : (*next)->steps) all += std::to_string(step.step()) + ";";
      EXPECT_TRUE(outbox_.acknowledge(history, **next).ok());
    }
  }

  TemporaryDirectory directory_;
  GoldenStore store_{directory_.path};
  GoldenOutbox outbox_{&store_};
};

TEST_F(GoldenOutboxTest, EachStepIsShippedOnceAndInOrder) {
  EXPECT_EQ(shipped(), "");
  ASSERT_TRUE(store_.begin(header("job/run"), "uid:1").ok());
  record(3);
  record(5);
  EXPECT_EQ(shipped(), "3;5;");
  EXPECT_EQ(shipped(), "");
  record(7);
  GoldenOutbox after_restart(&store_);
  const auto next = after_restart.next(kHistory);
  ASSERT_TRUE(next.ok() && *next);
  EXPECT_EQ((*next)->steps.size(), 1u);
  EXPECT_EQ((*next)->owner, "uid:1");
  EXPECT_EQ((*next)->header.run(), "job/run");
  EXPECT_EQ(shipped(), "7;");
}

TEST_F(GoldenOutboxTest, WhatWasNotAcknowledgedIsShippedAgain) {
  ASSERT_TRUE(store_.begin(header("job/run"), "uid:1").ok());
  record(1);
  ASSERT_TRUE(outbox_.next(kHistory).ok());
  EXPECT_EQ(shipped(), "1;");
}

TEST_F(GoldenOutboxTest, AnotherHistoryGetsAll) {
  ASSERT_TRUE(store_.begin(header("job/run"), "uid:1").ok());
  record(1);
  EXPECT_EQ(shipped(), "1;");
  EXPECT_EQ(shipped("another"), "1;");
}

TEST_F(GoldenOutboxTest, AGoldenRunThatSomebodyRemovedIsRemovedThereToo) {
  ASSERT_TRUE(store_.begin(header("job/run"), "uid:1 of us").ok());
  record(1);
  EXPECT_EQ(shipped(), "1;");
  ASSERT_TRUE(store_.remove("p", "v1").ok());
  EXPECT_EQ(shipped(), "removed job/run of uid:1 of us;");
  EXPECT_EQ(shipped(), "");
}

TEST_F(GoldenOutboxTest, OneThatTookItsPlaceIsShippedAfterTheRemoval) {
  ASSERT_TRUE(store_.begin(header("job/run", 1), "uid:1").ok());
  record(1);
  EXPECT_EQ(shipped(), "1;");
  ASSERT_TRUE(store_.remove("p", "v1").ok());
  ASSERT_TRUE(store_.begin(header("job/run", 2), "uid:1").ok());
  record(9);
  EXPECT_EQ(shipped(), "removed job/run of uid:1;9;");
}

TEST_F(GoldenOutboxTest, WhatRetentionTakesStaysInTheHistory) {
  ASSERT_TRUE(store_.begin(header("job/run"), "uid:1").ok());
  record(1);
  EXPECT_EQ(shipped(), "1;");
  EXPECT_EQ(store_.expire(std::chrono::system_clock::now() + std::chrono::hours(1), 0, 0), 1u);
  EXPECT_EQ(shipped(), "");
}

TEST_F(GoldenOutboxTest, WhatAJobsRunsRecordedGoesWithTheJob) {
  ASSERT_TRUE(store_.begin(header("job/run"), "uid:1").ok());
  v1::GoldenHeader other = header("job2/run");
  other.set_name("v2");
  ASSERT_TRUE(store_.begin(other, "uid:1").ok());
  record(1);
  EXPECT_EQ(shipped(), "1;");
  store_.remove_job("q", "job");
  EXPECT_EQ(shipped(), "");
  store_.remove_job("p", "job");
  EXPECT_EQ(shipped(), "removed job/run of uid:1;");
  EXPECT_TRUE(store_.owner_of("p", "v2").ok());
}

TEST_F(GoldenOutboxTest, ADamagedOneHoldsUpNoOther) {
  ASSERT_TRUE(store_.begin(header("job/run"), "uid:1").ok());
  record(1);
  v1::GoldenHeader other = header("job/other");
  other.set_name("a-damaged-one");
  ASSERT_TRUE(store_.begin(other, "uid:1").ok());
  std::filesystem::resize_file(directory_.path + "/p_p/g_a-damaged-one.golden", 4);
  GoldenStore fresh(directory_.path);
  GoldenOutbox outbox(&fresh);
  const auto next = outbox.next(kHistory);
  ASSERT_TRUE(next.ok() && *next) << next.status();
  EXPECT_EQ((*next)->header.name(), "v1");
}

}  // namespace
}  // namespace plumbline
