#include "server/work/run_registry.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/ingest/limits.h"

namespace plumbline {
namespace {

RunRegistry::Request request(const std::string& run, const std::string& reference = "") {
  static const Profile profile;
  RunRegistry::Request request;
  request.identity.project = "p";
  request.identity.job = "j";
  request.identity.run = run;
  request.profile = &profile;
  request.profile_name = "ieee";
  request.reference_run = reference;
  return request;
}

TEST(RunRegistry, OpensTheSameRunOnce) {
  RunRegistry runs;
  std::shared_ptr<plumbline::Run> one, two;
  ASSERT_TRUE(runs.open(request("a"), &one).ok());
  ASSERT_TRUE(runs.open(request("a"), &two).ok());
  EXPECT_EQ(one, two);
  EXPECT_EQ(runs.find(one->handle), one);
  EXPECT_EQ(runs.find("guess"), nullptr);
}

TEST(RunRegistry, AlphaIsAProbability) {
  RunRegistry runs;
  std::shared_ptr<plumbline::Run> run;
  for (const double alpha : {0.0, 1.0, -0.1, 2.0, std::nan("")}) {
    RunRegistry::Request wrong = request("a");
    wrong.alpha = alpha;
    const Violation violation = runs.open(wrong, &run);
    EXPECT_EQ(violation.field, "alpha") << alpha;
  }
  RunRegistry::Request right = request("a");
  right.alpha = 1e-6;
  EXPECT_TRUE(runs.open(right, &run).ok());
  EXPECT_EQ(run->alpha, 1e-6);
}

TEST(RunRegistry, ARunHasOneStream) {
  RunRegistry runs;
  std::shared_ptr<plumbline::Run> run;
  ASSERT_TRUE(runs.open(request("a"), &run).ok());
  EXPECT_TRUE(runs.acquire(*run));
  EXPECT_FALSE(runs.acquire(*run));
  runs.release(*run);
  EXPECT_TRUE(runs.acquire(*run));
}

TEST(RunRegistry, RemembersWhatTheStepsOfAJobLacked) {
  RunRegistry runs;
  const StepIdentity one = request("a").identity, two = request("b").identity;
  StepIdentity other = one;
  other.job = "k";
  runs.want(one, {{"aten::roll.default", false}});
  runs.want(one, {{"aten::max.dim", true}, {"aten::roll.default", false}});
  runs.want(other, {});
  EXPECT_EQ(runs.wanted(two), (std::vector<WantedResult>{{"aten::max.dim", true}, {"aten::roll.default", false}}));
  EXPECT_TRUE(runs.wanted(other).empty());
  for (std::size_t i = 0; i < 2 * RunRegistry::kWantedMax; ++i) runs.want(one, {{"op" + std::to_string(i), false}});
  EXPECT_EQ(runs.wanted(one).size(), RunRegistry::kWantedMax);
  for (std::size_t i = 0; i <= RunRegistry::kWantedJobsMax; ++i) {
    other.job = "l" + std::to_string(i);
    runs.want(other, {{"aten::max.dim", false}});
  }
  EXPECT_TRUE(runs.wanted(one).empty());  // Jobs are forgotten where there are too many.
  EXPECT_EQ(runs.wanted(other).size(), 1u);
}

TEST(RunRegistry, NamesItsReference) {
  RunRegistry runs;
  std::shared_ptr<plumbline::Run> run;
  ASSERT_TRUE(runs.open(request("a", "b"), &run).ok());
  EXPECT_EQ(run->reference->run_id(), "p/j/b/0");
  EXPECT_TRUE(runs.keeps_traces(*run->reference));
  EXPECT_FALSE(runs.keeps_traces(run->identity));
  EXPECT_FALSE(runs.known(*run->reference));
  ASSERT_TRUE(runs.open(request("c", "k/b"), &run).ok());
  EXPECT_EQ(run->reference->run_id(), "p/k/b/0");
}

TEST(RunRegistry, RefusesWhatCannotBe) {
  RunRegistry runs;
  std::shared_ptr<plumbline::Run> run;
  EXPECT_EQ(runs.open(request("a", "a"), &run).field, "reference_run");
  EXPECT_EQ(runs.open(request("a", "j/a"), &run).field, "reference_run");
  EXPECT_EQ(runs.open(request("a", "x/y/z"), &run).field, "reference_run");
  EXPECT_EQ(runs.open(request("a", "x/"), &run).field, "reference_run");
  EXPECT_EQ(runs.open(request("a b"), &run).field, "identity.run");
  auto rank = request("a");
  rank.identity.rank = limits::kRanksMax;
  EXPECT_EQ(runs.open(rank, &run).field, "identity.rank");
  ASSERT_TRUE(runs.open(request("a"), &run).ok());
  auto other = request("a");
  other.profile_name = "cuda-sm90";
  EXPECT_EQ(runs.open(other, &run).field, "profile");
  EXPECT_EQ(runs.open(request("a", "b"), &run).field, "reference_run");
}

TEST(RunRegistry, ForgetsTheOldestThatNobodyHolds) {
  RunRegistry runs;
  std::shared_ptr<plumbline::Run> first, held, last;
  ASSERT_TRUE(runs.open(request("first"), &first).ok());
  ASSERT_TRUE(runs.acquire(*first));
  ASSERT_TRUE(runs.open(request("held"), &held).ok());  // As a step does that is under way.
  ASSERT_TRUE(runs.open(request("second", "reference"), &last).ok());
  const std::string second = last->handle;
  const StepIdentity reference = *last->reference;
  for (int i = 0; i < limits::kRunsMax - 2; ++i) {
    ASSERT_TRUE(runs.open(request("run-" + std::to_string(i)), &last).ok());
  }
  EXPECT_NE(runs.find(first->handle), nullptr);
  EXPECT_EQ(runs.find(held->handle), held);
  EXPECT_EQ(runs.find(second), nullptr);
  EXPECT_FALSE(runs.keeps_traces(reference));
  EXPECT_NE(runs.find(last->handle), nullptr);
}

}  // namespace
}  // namespace plumbline
