#include <gtest/gtest.h>

#include "tests/unit/work/pipeline_fixture.h"

namespace plumbline {
namespace {

class Ranks : public PipelineFixture {
 protected:
  std::shared_ptr<plumbline::Run> rank(int rank, int ranks = 2) {
    RunRegistry::Request request = request_of("a");
    request.identity.rank = rank;
    request.ranks = ranks;
    std::shared_ptr<plumbline::Run> run;
    const Violation wrong = runs_->open(request, &run);
    EXPECT_TRUE(!wrong) << wrong.message();
    return run;
  }
};

TEST_F(Ranks, AStepIsJudgedOnceWhenAllRanksAreHere) {
  auto second = submit(rank(1), sum(0));
  disk_->flush();
  EXPECT_EQ(second.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  const StepAnswer first = submit(rank(0), sum(0)).get();
  ASSERT_TRUE(first.error.ok()) << first.error;
  EXPECT_EQ(first.verdict.verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_EQ(first.verdict.id(), "p/j/a/0/0");
  EXPECT_EQ(first.verdict.ranks(), 2);
  EXPECT_EQ(second.get().verdict.SerializeAsString(), first.verdict.SerializeAsString());
  EXPECT_EQ(pipeline_->in_flight(), 0u);
}

TEST_F(Ranks, AResentStepIsAnsweredAgainAndAnotherOneRefused) {
  submit(rank(0), sum(0));
  EXPECT_TRUE(submit(rank(1), sum(0)).get().error.ok());
  start(absl::InfiniteDuration());
  const StepAnswer again = submit(rank(1), sum(0)).get();
  ASSERT_TRUE(again.error.ok()) << again.error;
  EXPECT_EQ(again.verdict.id(), "p/j/a/0/0");
  auto other = sum(0);
  other[4].mutable_tap()->set_name("z");
  EXPECT_TRUE(absl::IsAlreadyExists(submit(rank(1), other).get().error));
}

TEST_F(Ranks, AMissingRankIsNamed) {
  start(absl::ZeroDuration());
  const v1::Verdict verdict = submit(rank(0), sum(0)).get().verdict;
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_INCONCLUSIVE);
  EXPECT_NE(verdict.sentence().find("rank 1 is missing"), std::string::npos) << verdict.sentence();
  const v1::Verdict late = submit(rank(1), sum(0)).get().verdict;
  EXPECT_EQ(late.sentence(), verdict.sentence());
}

TEST_F(Ranks, ARankThatWentOnIsNotWaitedFor) {
  auto waiting = submit(rank(0), sum(0));
  auto later = submit(rank(1), sum(3));
  const v1::Verdict verdict = waiting.get().verdict;
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_INCONCLUSIVE);
  EXPECT_NE(verdict.sentence().find("went on to step 3"), std::string::npos) << verdict.sentence();
  submit(rank(0), sum(3));
  EXPECT_EQ(later.get().verdict.verdict(), v1::OUTCOME_TYPE_I);
}

TEST_F(Ranks, ARankMayRunAhead) {
  const auto first = rank(0), second = rank(1);
  auto ahead = submit(first, sum(0));
  auto further = submit(first, sum(1));
  for (const int step : {0, 1}) {
    const StepAnswer answer = submit(second, sum(step)).get();
    ASSERT_TRUE(answer.error.ok()) << answer.error;
    EXPECT_EQ(answer.verdict.verdict(), v1::OUTCOME_TYPE_I);
  }
  EXPECT_EQ(ahead.get().verdict.id(), "p/j/a/0/0");
  EXPECT_EQ(further.get().verdict.id(), "p/j/a/0/1");
}

TEST_F(Ranks, RanksMustBeOpenedAlike) {
  rank(0);
  std::shared_ptr<plumbline::Run> run;
  RunRegistry::Request request = request_of("a");
  request.identity.rank = 1;
  request.ranks = 3;
  EXPECT_EQ(runs_->open(request, &run).field, "ranks");
  request.ranks = 2;
  request.alpha = 0.5;
  EXPECT_EQ(runs_->open(request, &run).field, "alpha");
  request.identity.rank = 2;
  EXPECT_EQ(runs_->open(request, &run).field, "identity.rank");
  request.ranks = 65;
  EXPECT_EQ(runs_->open(request, &run).field, "ranks");
}

}  // namespace
}  // namespace plumbline
