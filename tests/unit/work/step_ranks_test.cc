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

// A run of four ranks, of which two stream here.
class RanksHere : public Ranks {
 protected:
  RunRegistry::Request of(int rank, std::vector<std::int32_t> here = {2, 3}, int ranks = 4) {
    RunRegistry::Request request = request_of("a");
    request.identity.rank = rank;
    request.ranks = ranks;
    request.ranks_here = std::move(here);
    return request;
  }
  std::string field_at_fault(const RunRegistry::Request& request) {
    std::shared_ptr<plumbline::Run> run;
    return runs_->open(request, &run).field;
  }
  std::shared_ptr<plumbline::Run> member(int rank) {
    std::shared_ptr<plumbline::Run> run;
    const Violation wrong = runs_->open(of(rank), &run);
    EXPECT_TRUE(!wrong) << wrong.message();
    return run;
  }
};

TEST_F(RanksHere, AStepIsJudgedWhenTheirTracesAreHere) {
  auto waiting = submit(member(3), sum(0));
  const v1::Verdict verdict = submit(member(2), sum(0)).get().verdict;
  EXPECT_EQ(waiting.get().verdict.SerializeAsString(), verdict.SerializeAsString());
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_EQ(verdict.id(), "p/j/a/2/0");
  EXPECT_EQ(verdict.ranks(), 2);
  EXPECT_EQ(verdict.ranks_of_run(), 4);
  ASSERT_EQ(verdict.ranks_here_size(), 2);
  EXPECT_EQ(verdict.ranks_here(0), 2);
  EXPECT_EQ(verdict.ranks_here(1), 3);
  EXPECT_NE(verdict.grade(), v1::GRADE_PROVEN);
  EXPECT_NE(verdict.sentence().find("ranks 2, 3 of 4"), std::string::npos) << verdict.sentence();
  start(absl::InfiniteDuration());
  EXPECT_EQ(submit(member(3), sum(0)).get().verdict.id(), "p/j/a/2/0");
  auto other = sum(0);
  other[4].mutable_tap()->set_name("z");
  EXPECT_TRUE(absl::IsAlreadyExists(submit(member(3), other).get().error));
}

TEST_F(RanksHere, AMissingOneIsNamedAndTheOthersAreNotWaitedFor) {
  start(absl::ZeroDuration());
  const v1::Verdict verdict = submit(member(2), sum(0)).get().verdict;
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_INCONCLUSIVE);
  EXPECT_NE(verdict.sentence().find("the trace of rank 3 is missing"), std::string::npos) << verdict.sentence();
  EXPECT_EQ(verdict.ranks_of_run(), 4);
}

TEST_F(RanksHere, OneRankAloneIsJudgedAtOnce) {
  std::shared_ptr<plumbline::Run> run;
  ASSERT_TRUE(!runs_->open(of(1, {1}), &run));
  const v1::Verdict verdict = submit(run, sum(0)).get().verdict;
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_EQ(verdict.id(), "p/j/a/1/0");
  EXPECT_NE(verdict.sentence().find("rank 1 of 4"), std::string::npos) << verdict.sentence();
}

TEST_F(RanksHere, AllRanksAreARunOnOneDaemon) {
  std::shared_ptr<plumbline::Run> run;
  ASSERT_TRUE(!runs_->open(of(0, {0, 1}, 2), &run));
  EXPECT_FALSE(run->elsewhere());
  auto first = submit(run, sum(0));
  EXPECT_EQ(submit(rank(1), sum(0)).get().verdict.ranks_of_run(), 0);
}

TEST_F(RanksHere, MustBeRanksOfTheRun) {
  EXPECT_EQ(field_at_fault(of(2, {2, 4})), "ranks_here");
  EXPECT_EQ(field_at_fault(of(2, {-1, 2})), "ranks_here");
  EXPECT_EQ(field_at_fault(of(2, {3, 2})), "ranks_here");
  EXPECT_EQ(field_at_fault(of(2, {2, 2})), "ranks_here");
  EXPECT_EQ(field_at_fault(of(1, {2, 3})), "ranks_here");
  EXPECT_EQ(field_at_fault(of(0, {0, 1}, 1)), "ranks_here");
  EXPECT_EQ(field_at_fault(of(4, {4}, 4)), "identity.rank");
  std::vector<std::int32_t> many(65);
  for (int i = 0; i < 65; ++i) many[static_cast<std::size_t>(i)] = i;
  EXPECT_EQ(field_at_fault(of(0, many, 128)), "ranks_here");
  EXPECT_EQ(field_at_fault(of(0, {0, 1}, 65537)), "ranks");
  EXPECT_EQ(field_at_fault(of(1000, {1000}, 65536)), "");
}

TEST_F(RanksHere, AreInOneGroupEach) {
  member(2);
  EXPECT_EQ(field_at_fault(of(2, {1, 2})), "ranks_here");
  EXPECT_EQ(field_at_fault(of(3, {3})), "ranks_here");
  EXPECT_EQ(field_at_fault(of(0, {0, 1}, 5)), "ranks");
  EXPECT_EQ(field_at_fault(of(0, {0, 1})), "");
}

TEST_F(RanksHere, AreNotPaired) {
  RunRegistry::Request request = of(2);
  request.reference_run = "b";
  EXPECT_EQ(field_at_fault(request), "reference_run");
  request = of(2);
  request.golden = "v1";
  EXPECT_EQ(field_at_fault(request), "golden");
  request = of(2);
  request.record_golden = "v1";
  EXPECT_EQ(field_at_fault(request), "record_golden");
  request = of(2);
  request.keep_traces = true;
  EXPECT_EQ(field_at_fault(request), "reference");
  // Nor is another run with them, whoever names them.
  std::shared_ptr<plumbline::Run> run;
  ASSERT_TRUE(!runs_->open(of(0, {0}), &run));
  request = request_of("c");
  request.reference_run = "a";
  std::shared_ptr<plumbline::Run> other;
  ASSERT_TRUE(!runs_->open(request, &other));
  EXPECT_EQ(submit(run, sum(0)).get().verdict.verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_EQ(submit(other, sum(0)).get().verdict.cause(), v1::CAUSE_REFERENCE_MISSING);
}

}  // namespace
}  // namespace plumbline
