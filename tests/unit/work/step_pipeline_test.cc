#include "server/work/step_pipeline.h"

#include <gtest/gtest.h>

#include "tests/unit/work/pipeline_fixture.h"

namespace plumbline {
namespace {

using Pipeline = PipelineFixture;

TEST_F(Pipeline, AnswersWhenTheVerdictIsDurable) {
  const auto run = open("a");
  const StepAnswer answer = submit(run, sum(0)).get();
  ASSERT_TRUE(answer.error.ok()) << answer.error;
  EXPECT_TRUE(answer.durable);
  EXPECT_EQ(answer.verdict.verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_EQ(answer.verdict.id(), "p/j/a/0/0");
  EXPECT_EQ(answer.verdict.profile(), "ieee");
  const auto stored = store_->get("p/j/a/0/0");
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->digest(), answer.verdict.digest());
  EXPECT_EQ(pipeline_->in_flight(), 0u);
}

TEST_F(Pipeline, AVerdictNamesItsDevice) {
  device_bytes_ = 1 << 20;
  start(absl::InfiniteDuration());
  const StepAnswer answer = submit(open("a"), sum(0)).get();
  ASSERT_TRUE(answer.error.ok()) << answer.error;
  EXPECT_EQ(answer.verdict.verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_EQ(answer.verdict.backend(), "cuda:0");
  EXPECT_EQ(answer.verdict.notes_size(), 0);
  EXPECT_GT(board_.most(), 0) << "its arrays were made there";
}

TEST_F(Pipeline, AStepThatADeviceFailsIsAuditedOnTheHost) {
  device_bytes_ = 1 << 20;
  start(absl::InfiniteDuration());
  const auto run = open("a");
  const v1::Verdict good = submit(run, sum(0)).get().verdict;
  const struct {
    std::function<void()> fault;
    std::string note;
  } faults[] = {
      {[&] { board_.refuse_allocation(1); }, "audited again on cpu: cuda:0: out of memory"},
      {[&] { board_.fail_at_allocation(2, "an illegal address was met"); }, "cuda:0: an illegal address was met"}};
  int step = 0;
  for (const auto& [fault, note] : faults) {
    start(absl::InfiniteDuration());  // With a pool that keeps nothing.
    fault();
    const StepAnswer answer = submit(open("a"), sum(++step)).get();
    board_.mend();
    ASSERT_TRUE(answer.error.ok()) << answer.error;
    EXPECT_EQ(answer.verdict.backend(), "cpu");
    ASSERT_EQ(answer.verdict.notes_size(), 1);
    EXPECT_NE(answer.verdict.notes(0).find(note), std::string::npos) << answer.verdict.notes(0);
    EXPECT_EQ(answer.verdict.verdict(), good.verdict());
    EXPECT_EQ(answer.verdict.margin(), good.margin());
  }
}

TEST_F(Pipeline, WithoutAWorkerThatCanAStepIsAnError) {
  device_bytes_ = 1 << 20;
  host_workers_ = 0;
  start(absl::InfiniteDuration());
  const auto run = open("a");
  board_.lose();
  for (const int step : {0, 1}) {
    const StepAnswer answer = submit(run, sum(step)).get();
    EXPECT_TRUE(absl::IsFailedPrecondition(answer.error)) << answer.error;
    EXPECT_EQ(answer.field, "step");
    EXPECT_TRUE(answer.durable);
  }
}

TEST_F(Pipeline, IsIdempotentOverARestart) {
  const StepAnswer first = submit(open("a"), sum(0)).get();
  start(absl::InfiniteDuration());
  const auto run = open("a");
  const StepAnswer again = submit(run, sum(0)).get();
  ASSERT_TRUE(again.error.ok()) << again.error;
  EXPECT_EQ(again.verdict.time().nanos(), first.verdict.time().nanos()) << "the stored verdict, not a new one";
  auto other = sum(0);
  other[4].mutable_tap()->set_name("z");
  const StepAnswer conflict = submit(run, other).get();
  EXPECT_TRUE(absl::IsAlreadyExists(conflict.error)) << conflict.error;
  EXPECT_TRUE(conflict.durable);
}

TEST_F(Pipeline, RefusesAStepThatGoesBack) {
  const auto run = open("a");
  EXPECT_TRUE(submit(run, sum(5)).get().error.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(submit(run, sum(4)).get().error));
  EXPECT_TRUE(submit(run, sum(6)).get().error.ok());
}

TEST_F(Pipeline, WaitsForTheReferencesStep) {
  const auto target = open("target", "reference");
  const auto reference = open("reference", "", true);
  auto waiting = submit(target, sum(0));
  auto behind = submit(target, sum(1));
  disk_->flush();
  EXPECT_EQ(pipeline_->waiting(), 2u);
  EXPECT_EQ(pipeline_->in_flight(), 2u);
  EXPECT_TRUE(submit(reference, sum(0)).get().error.ok());
  const StepAnswer paired = waiting.get();
  EXPECT_EQ(paired.verdict.verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_EQ(paired.verdict.reference(), "run reference step 0");
  EXPECT_EQ(behind.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_TRUE(submit(reference, sum(1)).get().error.ok());
  EXPECT_EQ(behind.get().verdict.verdict(), v1::OUTCOME_TYPE_I);
}

TEST_F(Pipeline, AReferenceThatComesFirstIsThere) {
  const auto reference = open("reference", "", true);
  EXPECT_TRUE(submit(reference, sum(0)).get().error.ok());
  const auto answer = submit(open("target", "j/reference"), sum(0)).get();
  EXPECT_EQ(answer.verdict.reference(), "run reference step 0");
  EXPECT_EQ(answer.verdict.verdict(), v1::OUTCOME_TYPE_I);
}

TEST_F(Pipeline, AnotherUsersRunIsNoReference) {
  const auto open_as = [this](const std::string& name, const std::string& owner, const std::string& reference) {
    RunRegistry::Request request = request_of(name);
    request.owner = owner;
    request.reference_run = reference;
    request.keep_traces = true;
    std::shared_ptr<plumbline::Run> run;
    EXPECT_TRUE(runs_->open(request, &run).ok());
    std::promise<absl::Status> answer;
    store_->open_run(run->identity, owner, "", [&](const absl::Status& status) { answer.set_value(status); });
    EXPECT_TRUE(answer.get_future().get().ok());
    return run;
  };
  const auto target = open_as("target", "uid:7", "reference");  // Before anybody has opened that.
  const auto reference = open_as("reference", "uid:8", "");
  EXPECT_TRUE(submit(reference, sum(0)).get().error.ok());
  const auto refused = submit(target, sum(0)).get();
  EXPECT_EQ(refused.verdict.cause(), v1::CAUSE_REFERENCE_MISSING);
  EXPECT_NE(refused.verdict.sentence().find("the run is another user's"), std::string::npos);
  const auto own = submit(open_as("own", "uid:8", "reference"), sum(0)).get();
  EXPECT_EQ(own.verdict.verdict(), v1::OUTCOME_TYPE_I) << own.verdict.sentence();
}

TEST_F(Pipeline, GivesUpOnAReferenceAfterTheTimeout) {
  start(absl::ZeroDuration());
  const auto answer = submit(open("target", "nobody"), sum(0)).get();
  EXPECT_EQ(answer.verdict.verdict(), v1::OUTCOME_INCONCLUSIVE);
  EXPECT_EQ(answer.verdict.cause(), v1::CAUSE_REFERENCE_MISSING);
  EXPECT_NE(answer.verdict.sentence().find("never existed"), std::string::npos) << answer.verdict.sentence();
}

TEST_F(Pipeline, DoesNotWaitForWhatCannotCome) {
  const auto reference = open("reference");
  for (const int step : {0, 5}) EXPECT_TRUE(submit(reference, sum(step)).get().error.ok());
  const auto target = open("target", "reference");
  const auto unkept = submit(target, sum(0)).get().verdict;
  EXPECT_EQ(unkept.cause(), v1::CAUSE_REFERENCE_MISSING);
  EXPECT_NE(unkept.sentence().find("not opened as a reference"), std::string::npos) << unkept.sentence();
  const auto skipped = submit(target, sum(3)).get().verdict;
  EXPECT_EQ(skipped.cause(), v1::CAUSE_REFERENCE_MISSING);
  EXPECT_NE(skipped.sentence().find("not sampled"), std::string::npos) << skipped.sentence();
}

TEST_F(Pipeline, StopsWaitingWhenTold) {
  auto waiting = submit(open("target", "nobody"), sum(0));
  disk_->flush();
  pipeline_->stop_waiting();
  EXPECT_EQ(waiting.get().verdict.cause(), v1::CAUSE_REFERENCE_MISSING);
  EXPECT_EQ(submit(open("target", "nobody"), sum(1)).get().verdict.cause(), v1::CAUSE_REFERENCE_MISSING);
}

TEST_F(Pipeline, ADamagedReferenceIsAMissingOne) {
  const auto reference = open("reference", "", true);
  EXPECT_TRUE(submit(reference, sum(0)).get().error.ok());
  std::filesystem::resize_file(directory_.path + "/traces/p_p/j_j/r_reference/0/0.trace", 100);
  const auto answer = submit(open("target", "reference"), sum(0)).get();
  EXPECT_EQ(answer.verdict.cause(), v1::CAUSE_REFERENCE_MISSING);
  EXPECT_NE(answer.verdict.sentence().find("cannot be read"), std::string::npos) << answer.verdict.sentence();
}

TEST_F(Pipeline, RecordsARefusal) {
  std::promise<StepAnswer> promise;
  StepIdentity step = open("a")->identity;
  step.step = 3;
  pipeline_->refuse(step, invalid("op.name", "a text", "an empty one"), {},
                    [&promise](const StepAnswer& answer) { promise.set_value(answer); });
  const StepAnswer answer = promise.get_future().get();
  EXPECT_TRUE(answer.durable);
  EXPECT_EQ(answer.field, "op.name");
  EXPECT_TRUE(*store_->was_refused(step));
}

TEST_F(Pipeline, AnAuditBeyondItsTimeIsInconclusive) {
  pipeline_options_.audit_timeout = absl::Nanoseconds(1);
  start(absl::InfiniteDuration());
  const auto run = open("a");
  for (std::int64_t step = 0; step < 2; ++step) {
    const StepAnswer answer = submit(run, sum(step)).get();
    ASSERT_TRUE(answer.error.ok()) << answer.error;
    EXPECT_EQ(answer.verdict.verdict(), v1::OUTCOME_INCONCLUSIVE);
    EXPECT_NE(answer.verdict.sentence().find("--audit-timeout"), std::string::npos) << answer.verdict.sentence();
    EXPECT_TRUE(answer.durable);
  }
}

TEST_F(Pipeline, MoreWorkThanThereIsTimeForIsNotBegun) {
  pipeline_options_.audit_timeout = absl::Hours(1);
  pipeline_options_.work_per_second = 1e-6;
  start(absl::InfiniteDuration());
  const StepAnswer answer = submit(open("a"), sum(0)).get();
  EXPECT_EQ(answer.verdict.verdict(), v1::OUTCOME_INCONCLUSIVE);
  EXPECT_NE(answer.verdict.sentence().find("multiplications"), std::string::npos) << answer.verdict.sentence();
}

TEST_F(Pipeline, AnAuditEndsWithoutAnAnswerOnceItsClientHasLeft) {
  pipeline_options_.orphan_timeout = -absl::Seconds(1);  // At once.
  start(absl::InfiniteDuration());
  const auto run = open("a");
  auto gone = std::make_shared<StepClient>();
  gone->leave();
  auto abandoned = submit(run, sum(0), gone);
  EXPECT_EQ(submit(run, sum(1), std::make_shared<StepClient>()).get().verdict.verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_THROW(abandoned.get(), std::future_error) << "nobody is there to be answered";
  EXPECT_FALSE(store_->get("p/j/a/0/0").ok()) << "it was not judged, and may be sent again";
}

}  // namespace
}  // namespace plumbline
