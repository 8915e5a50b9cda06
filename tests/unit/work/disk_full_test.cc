// Steps whose answers the disk does not take: not final, and judged once.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "tests/unit/store/power_loss_vfs.h"
#include "tests/unit/work/pipeline_fixture.h"

namespace plumbline {
namespace {

class DiskFull : public PipelineFixture {
 protected:
  void SetUp() override {
    reset_power_loss_vfs(true);
    vfs_ = "power_loss";
    PipelineFixture::SetUp();
  }
  void TearDown() override {
    fail_writes(SQLITE_OK);
    PipelineFixture::TearDown();
  }
};

TEST_F(DiskFull, StepsMayBeSentAgainInAnyOrderAndAreJudgedOnce) {
  const auto run = open("a");
  EXPECT_TRUE(submit(run, sum(0)).get().error.ok());
  fail_writes(SQLITE_FULL);
  std::vector<StepAnswer> refused;
  for (const int step : {1, 2}) refused.push_back(submit(run, sum(step)).get());
  for (const StepAnswer& answer : refused) {
    EXPECT_TRUE(absl::IsResourceExhausted(answer.error)) << answer.error;
    EXPECT_FALSE(answer.durable);
    EXPECT_TRUE(answer.retry_after().has_value());
  }
  EXPECT_FALSE(submit(run, sum(1)).get().durable) << "still full";
  fail_writes(SQLITE_OK);
  for (const int step : {2, 1}) {
    const StepAnswer answer = submit(run, sum(step)).get();
    ASSERT_TRUE(answer.error.ok()) << answer.error;
    EXPECT_TRUE(answer.durable);
    EXPECT_FALSE(answer.retry_after().has_value());
    EXPECT_EQ(answer.verdict.SerializeAsString(), refused[step - 1].verdict.SerializeAsString()) << "judged again";
  }
  EXPECT_EQ(*store_->last_sequence(), 3);
  EXPECT_TRUE(submit(run, sum(3)).get().error.ok());
}

TEST_F(DiskFull, ARefusalThatIsNotStoredIsNotFinal) {
  const StepIdentity step{"p", "j", "a", 0, 4};
  const auto refuse = [&] {
    std::promise<StepAnswer> answer;
    pipeline_->refuse(step, invalid("leaf.count", "0 or more", -1), {},
                      [&](const StepAnswer& done) { answer.set_value(done); });
    return answer.get_future().get();
  };
  fail_writes(SQLITE_FULL);
  const StepAnswer unstored = refuse();
  EXPECT_TRUE(absl::IsResourceExhausted(unstored.error)) << unstored.error;
  EXPECT_TRUE(unstored.retry_after().has_value());
  fail_writes(SQLITE_OK);
  const StepAnswer stored = refuse();
  EXPECT_TRUE(absl::IsInvalidArgument(stored.error)) << stored.error;
  EXPECT_EQ(stored.field, "leaf.count");
  EXPECT_FALSE(stored.retry_after().has_value());
}

TEST(Unstored, TheOldestMakeRoom) {
  Unstored unstored;
  auto judged = std::make_shared<JudgedStep>();
  judged->wire.set_digest("d");
  for (std::size_t i = 0; i <= Unstored::kStepsMax; ++i) unstored.put(std::to_string(i), judged);
  EXPECT_FALSE(unstored.holds("0"));
  EXPECT_TRUE(unstored.holds("1"));
  EXPECT_EQ(unstored.find("1", "another"), nullptr);
  EXPECT_EQ(unstored.find("1", "d"), judged);
  unstored.remove("1");
  EXPECT_FALSE(unstored.holds("1"));
}

}  // namespace
}  // namespace plumbline
