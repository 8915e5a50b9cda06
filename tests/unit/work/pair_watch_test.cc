// Pairs with runs at other daemons, of which a stand-in of the shared history has what they recorded.
#include "server/work/pair_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "tests/unit/work/pipeline_fixture.h"

namespace plumbline {
namespace {

struct Elsewhere final : SharedGolden {
  explicit Elsewhere(GoldenStore* recorded) : store(recorded) {}

  absl::Status is_there() const { return away ? absl::UnavailableError("it was cut off") : absl::OkStatus(); }
  absl::StatusOr<Reach> reach(const std::string& project, const std::string& name, std::int32_t rank,
                              std::int64_t step) override {
    ++asked;
    if (auto there = is_there(); !there.ok()) return there;
    if (store->load(project, name, rank, step).ok()) return Reach::kThere;
    return passed ? Reach::kPassed : Reach::kNotYet;
  }
  absl::StatusOr<Origin> origin(const std::string& project, const std::string& name) override {
    if (auto there = is_there(); !there.ok()) return there;
    auto owner = store->owner_of(project, name);
    if (!owner.ok()) return owner.status();
    return Origin{*owner, "there", *store->run_of(project, name)};
  }
  absl::StatusOr<std::shared_ptr<const GoldenStep>> load(const std::string& project, const std::string& name,
                                                         const std::string&, std::int32_t rank,
                                                         std::int64_t step) override {
    if (auto there = is_there(); !there.ok()) return there;
    return store->load(project, name, rank, step);
  }
  bool sees(const Visibility& here, const std::string& project, const Origin& origin) const override {
    return here.whole(project) || (same_users && here.owner == origin.owner);
  }

  GoldenStore* const store;
  std::atomic<bool> away = false, passed = false, same_users = true;
  std::atomic<int> asked = 0;
};

class PairsElsewhere : public PipelineFixture {
 protected:
  void SetUp() override {
    pairs_ = &recorded_;
    start(absl::InfiniteDuration());
    EXPECT_TRUE(submit(open("reference", "", true), sum(0)).get().error.ok());
    stop();
    std::filesystem::remove_all(directory_.path);  // Another daemon's.
    std::filesystem::create_directory(directory_.path);
    pairs_ = nullptr;
    shared_pairs_ = &elsewhere_;
    start(absl::Seconds(60));
  }

  v1::Verdict judged(const std::string& name, std::int64_t step = 0) {
    return submit(open(name, "reference"), sum(step)).get().verdict;
  }

  TemporaryDirectory there_;
  GoldenStore recorded_{there_.path};
  Elsewhere elsewhere_{&recorded_};
};

TEST_F(PairsElsewhere, AStepIsComparedWithWhatWasRecorded) {
  const v1::Verdict verdict = judged("target");
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_I) << verdict.sentence();
  EXPECT_EQ(verdict.reference(), "run reference step 0");
  ASSERT_EQ(verdict.notes_size(), 1);
  EXPECT_NE(verdict.notes(0).find("not at this daemon"), std::string::npos) << verdict.notes(0);
}

TEST_F(PairsElsewhere, AStepThatTheRunPassedIsNotWaitedFor) {
  elsewhere_.passed = true;
  const v1::Verdict verdict = judged("target", 1);
  EXPECT_EQ(verdict.cause(), v1::CAUSE_REFERENCE_MISSING);
  EXPECT_NE(verdict.sentence().find("did not come to the shared history"), std::string::npos) << verdict.sentence();
}

TEST_F(PairsElsewhere, WhileTheHistoryIsAwayItIsWaitedFor) {
  elsewhere_.away = true;
  auto answer = submit(open("target", "reference"), sum(0));
  while (elsewhere_.asked < 2) std::this_thread::yield();
  elsewhere_.away = false;
  EXPECT_EQ(answer.get().verdict.verdict(), v1::OUTCOME_TYPE_I);
}

TEST_F(PairsElsewhere, AHistoryThatStaysAwayIsTheReason) {
  elsewhere_.away = true;
  start(absl::Milliseconds(10));
  const v1::Verdict verdict = judged("target");
  EXPECT_EQ(verdict.cause(), v1::CAUSE_REFERENCE_MISSING);
  EXPECT_NE(verdict.sentence().find("the shared history is away: it was cut off"), std::string::npos)
      << verdict.sentence();
}

TEST_F(PairsElsewhere, AnotherUsersRunIsNoReference) {
  elsewhere_.same_users = false;
  const v1::Verdict refused = judged("target");
  EXPECT_EQ(refused.cause(), v1::CAUSE_REFERENCE_MISSING);
  EXPECT_NE(refused.sentence().find("another user's"), std::string::npos) << refused.sentence();
  RunRegistry::Request request = request_of("reader");
  request.reference_run = "reference";
  request.pairs_with_any = true;
  std::shared_ptr<plumbline::Run> run;
  ASSERT_TRUE(!runs_->open(request, &run));
  EXPECT_EQ(submit(run, sum(0)).get().verdict.verdict(), v1::OUTCOME_TYPE_I);
}

TEST_F(PairsElsewhere, TheEndOfTheWaitEndsTheQuestions) {
  start(absl::InfiniteDuration());
  auto answer = submit(open("target", "reference"), sum(1));
  while (elsewhere_.asked < 1) std::this_thread::yield();
  pipeline_->stop_waiting();
  const int asked = elsewhere_.asked;
  EXPECT_EQ(answer.get().verdict.cause(), v1::CAUSE_REFERENCE_MISSING);
  EXPECT_EQ(elsewhere_.asked, asked);
}

TEST(PairName, IsOfTheRunAlone) {
  const StepIdentity one{"p", "a", "b", 0, 1};
  EXPECT_EQ(pair_name(one), pair_name({"q", "a", "b", 3, 4}));
  EXPECT_NE(pair_name(one), pair_name({"p", "a", "c", 0, 1}));
  EXPECT_NE(pair_name({"p", "a", "b:c", 0, 0}), pair_name({"p", "a:b", "c", 0, 0}));
}

}  // namespace
}  // namespace plumbline
