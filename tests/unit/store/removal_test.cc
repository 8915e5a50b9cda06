// Retention, and the removal of a job.
#include "tests/unit/store/store_fixture.h"

namespace plumbline {
namespace {

class Removal : public StoreTest {
 protected:
  // It is the time of sample_verdict()'s first step; there is a step a second.
  static constexpr std::int64_t kStart = 1'700'000'000'000'000;

  absl::Status expire(const Retention& retention, std::int64_t seconds) {
    std::promise<absl::Status> expired;
    store_->expire(retention, kStart + seconds * 1'000'000, {},
                   [&](const absl::Status& status) { expired.set_value(own(status)); });
    return expired.get_future().get();
  }
  absl::Status remove_job(const std::string& job) {
    std::promise<absl::Status> removed;
    store_->remove_job("default", job, {}, [&](const absl::Status& status) { removed.set_value(own(status)); });
    return removed.get_future().get();
  }
  void fill(const std::string& job, int steps, std::size_t note_bytes = 0) {
    for (int step = 0; step < steps; ++step) {
      Verdict verdict = sample_verdict(job, step);
      verdict.notes.emplace_back(note_bytes, 'x');
      ASSERT_TRUE(append(*store_, to_proto(verdict), {1, {"queue_full"}}).ok());
    }
  }
};

TEST_F(Removal, VerdictsGoByAge) {
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

TEST_F(Removal, VerdictsGoByNumberTheOldestFirst) {
  fill("a", 7);
  fill("b", 7);
  Retention retention;
  retention.verdicts.count = 9;
  ASSERT_TRUE(expire(retention, 0).ok());
  EXPECT_EQ(store_->job("default", "a")->steps(), 2u);
  EXPECT_EQ(store_->job("default", "b")->steps(), 7u);
}

TEST_F(Removal, TheFileShrinksToItsSize) {
  fill("a", 300, 20000);
  reopen();  // A checkpoint.
  const std::string path = dir_ + "/verdicts.db";
  EXPECT_GT(std::filesystem::file_size(path), 6000000u);
  Retention retention;
  retention.verdicts.bytes = 2000000;
  ASSERT_TRUE(expire(retention, 0).ok());
  reopen();
  EXPECT_LT(std::filesystem::file_size(path), 2500000u);
  const auto kept = steps({});
  EXPECT_GT(kept.size(), 30u);
  EXPECT_EQ(kept.back(), 299);
}

TEST_F(Removal, ErrorsGoByNumber) {
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

TEST_F(Removal, RunsGoWithAllThatIsTheirs) {
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

TEST_F(Removal, AJobGoesWhole) {
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
