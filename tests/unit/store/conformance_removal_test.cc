// Retention, and the removal of a job.
#include "tests/unit/store/conformance.h"

namespace plumbline {
namespace {

TEST_P(StoreRemoval, VerdictsGoByAge) {
  fill("a", 10);
  Retention retention;
  retention.verdicts.age = absl::Seconds(4);
  ASSERT_TRUE(expire(retention, 9).ok());
  EXPECT_EQ(steps({}), (std::vector<std::int64_t>{5, 6, 7, 8, 9}));
  const auto job = store_->job("default", "a");
  EXPECT_EQ(job->steps(), 5u);
  EXPECT_EQ(job->missed(), 5u) << "a gap goes with the step that told of it";
  ASSERT_TRUE(expire(retention, 1000).ok());
  EXPECT_TRUE(steps({}).empty());
  EXPECT_EQ(*store_->last_durable_step({"default", "a", "run-1", 0, 0}), 9) << "what was judged stays judged";
  EXPECT_EQ(*store_->last_sequence(), 10);
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 10))).ok());
  EXPECT_EQ(*store_->last_sequence(), 11);
}

TEST_P(StoreRemoval, VerdictsGoByNumberTheOldestFirst) {
  fill("a", 7);
  fill("b", 7);
  Retention retention;
  retention.verdicts.count = 9;
  ASSERT_TRUE(expire(retention, 0).ok());
  EXPECT_EQ(store_->job("default", "a")->steps(), 2u);
  EXPECT_EQ(store_->job("default", "b")->steps(), 7u);
}

TEST_P(StoreRemoval, VerdictsGoByBytesTheOldestFirst) {
  fill("a", 300, 20000);
  Retention retention;
  retention.verdicts.bytes = 2000000;
  ASSERT_TRUE(expire(retention, 0).ok());
  const auto kept = steps({});
  EXPECT_GT(kept.size(), 30u);
  EXPECT_LT(kept.size(), 101u);
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(kept.back(), 299);
  ASSERT_TRUE(expire(retention, 0).ok());
  EXPECT_EQ(steps({}), kept) << "what is below the limit stays";
}

TEST_P(StoreRemoval, ErrorsGoByNumber) {
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(append_error(*store_, {"default", "a", "run-1", 0, step}, absl::InternalError("e"), {1, {}}).ok());
  }
  Retention retention;
  retention.errors.count = 2;
  ASSERT_TRUE(expire(retention, 0).ok());
  EXPECT_EQ(store_->job("default", "a")->errors(), 2u);
  EXPECT_EQ(store_->job("default", "a")->missed(), 2u);
  const auto left = store_->errors("default", "a", {}, 10, {}, {});
  ASSERT_TRUE(left.ok());
  ASSERT_EQ(left->size(), 2u);
  EXPECT_EQ(left->at(0).step(), 3);
  EXPECT_EQ(left->at(0).status().message(), "e");
}

TEST_P(StoreRemoval, RunsGoWithAllThatIsTheirs) {
  for (const char* run : {"old", "new"}) {
    Verdict verdict = sample_verdict("a", run[0] == 'o' ? 1 : 100);
    verdict.identity.run = run;
    ASSERT_TRUE(append(*store_, to_proto(verdict), {2, {}}).ok());
  }
  Retention retention;
  retention.runs.age = absl::Seconds(50);
  ASSERT_TRUE(expire(retention, 101).ok());
  const auto job = store_->job("default", "a");
  ASSERT_TRUE(job.ok());
  ASSERT_EQ(job->runs_size(), 1);
  EXPECT_EQ(job->runs(0), "new");
  EXPECT_EQ(job->steps(), 1u);
  EXPECT_EQ(job->missed(), 2u);
  ASSERT_TRUE(expire(retention, 1000).ok());
  EXPECT_TRUE(absl::IsNotFound(store_->job("default", "a").status())) << "the last run takes its job with it";
}

TEST_P(StoreRemoval, AJobGoesWhole) {
  fill("a", 1200);
  fill("b", 3);
  ASSERT_TRUE(append_error(*store_, {"default", "a", "run-1", 0, 5000}, absl::InternalError("e")).ok());
  ASSERT_TRUE(remove_job("a").ok());
  EXPECT_TRUE(absl::IsNotFound(store_->job("default", "a").status()));
  EXPECT_TRUE(absl::IsNotFound(store_->get("default/a/run-1/0/3").status()));
  EXPECT_EQ(store_->stats({})->verdicts(), 3u);
  EXPECT_TRUE(absl::IsNotFound(remove_job("a")));
}

}  // namespace
}  // namespace plumbline
