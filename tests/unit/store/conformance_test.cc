// What is appended is there, once, whole, and told.
#include "tests/unit/store/conformance.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <thread>

#include "google/protobuf/util/message_differencer.h"

namespace plumbline {
namespace {

using google::protobuf::util::MessageDifferencer;

TEST_P(StoreConformance, ReturnsTheWholeVerdictAfterReopening) {
  Verdict sample = sample_verdict("a", 7, Outcome::kTypeII, std::numeric_limits<double>::infinity());
  sample.suspect = Place{"aten::div.Tensor", "train.py:41", "loss", "fp32"};
  sample.hazards.push_back({"overflow", {}, 0.5, "scale by 1024", "Half of it overflows."});
  sample.surprise = std::numeric_limits<double>::infinity();
  sample.taps[0].surprise = 2.5;
  const v1::Verdict sent = to_proto(sample);
  ASSERT_TRUE(append(*store_, sent).ok());
  reopen();
  const auto got = store_->get("default/a/run-1/0/7");
  ASSERT_TRUE(got.ok()) << got.status();
  // NaN fields make operator== useless: compare as MessageDifferencer with NaN equal to NaN.
  MessageDifferencer differencer;
  google::protobuf::util::DefaultFieldComparator comparator;
  comparator.set_treat_nan_as_equal(true);
  differencer.set_field_comparator(&comparator);
  std::string difference;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(sent, *got)) << difference;
  EXPECT_EQ(got->taps_size(), 2);
  EXPECT_EQ(got->surprise(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(got->taps(0).surprise(), 2.5);
  EXPECT_FALSE(got->taps(1).has_surprise()) << "not asked";
}

TEST_P(StoreConformance, ListsWithoutTapsUnlessWhole) {
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 1))).ok());
  const auto summary = store_->list({}, 0, 10, false);
  ASSERT_TRUE(summary.ok());
  ASSERT_EQ(summary->size(), 1u);
  EXPECT_EQ(summary->front().verdict.taps_size(), 0);
  EXPECT_EQ(summary->front().verdict.contributors_size(), 0);
  EXPECT_FALSE(summary->front().verdict.has_alignment());
  EXPECT_EQ(summary->front().verdict.sentence(), "Rounding explains the deviation of the loss.");
  const auto whole = store_->list({}, 0, 10, true);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->front().verdict.taps_size(), 2);
  EXPECT_EQ(whole->front().verdict.contributors_size(), 1);
  ASSERT_EQ(whole->front().verdict.alignment().operations_size(), 1);
  EXPECT_TRUE(whole->front().verdict.alignment().has_parts());
}

TEST_P(StoreConformance, FiltersAndPages) {
  for (std::int64_t step = 0; step < 20; ++step) {
    const Outcome outcome = step % 5 == 4 ? Outcome::kTypeII : Outcome::kTypeI;
    ASSERT_TRUE(append(*store_, to_proto(sample_verdict(step % 2 ? "odd" : "even", step, outcome))).ok());
  }
  v1::Filter filter;
  EXPECT_EQ(steps(filter).size(), 20u);
  filter.set_job("odd");
  EXPECT_EQ(steps(filter), (std::vector<std::int64_t>{1, 3, 5, 7, 9, 11, 13, 15, 17, 19}));
  filter.set_verdict(v1::OUTCOME_TYPE_II);
  EXPECT_EQ(steps(filter), (std::vector<std::int64_t>{9, 19}));
  filter.set_step_max(18);
  EXPECT_EQ(steps(filter), (std::vector<std::int64_t>{9}));
  filter.set_step_min(10);
  EXPECT_TRUE(steps(filter).empty());
  filter.Clear();
  filter.set_run("run-2");
  EXPECT_TRUE(steps(filter).empty());

  std::vector<std::int64_t> paged;
  std::int64_t after = 0;
  for (;;) {
    const auto page = store_->list({}, after, 3, false);
    ASSERT_TRUE(page.ok());
    if (page->empty()) break;
    ASSERT_LE(page->size(), 3u);
    for (const StoredVerdict& stored : *page) {
      EXPECT_GT(stored.sequence, after);
      after = stored.sequence;
      paged.push_back(stored.verdict.step());
    }
  }
  EXPECT_EQ(paged, steps({}));
  EXPECT_EQ(after, *store_->last_sequence());
}

TEST_P(StoreConformance, PagesFitAnAnswer) {
  Verdict sample = sample_verdict("a", 0);
  sample.notes.assign(1, std::string(1 << 20, 'x'));
  for (std::int64_t step = 0; step < 5; ++step) {
    sample.identity.step = step;
    ASSERT_TRUE(append(*store_, to_proto(sample)).ok());
  }
  const auto page = store_->list({}, 0, 1000, false);
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->size(), 2u);
}

TEST_P(StoreConformance, SameDigestTwiceIsOneVerdict) {
  Verdict sample = sample_verdict("a", 3);
  ASSERT_TRUE(append(*store_, to_proto(sample)).ok());
  sample.sentence = "Another sentence.";
  EXPECT_TRUE(append(*store_, to_proto(sample)).ok());
  EXPECT_EQ(steps({}), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(store_->get("default/a/run-1/0/3")->sentence(), "Rounding explains the deviation of the loss.");
  EXPECT_EQ(store_->job("default", "a")->errors(), 0u);
}

TEST_P(StoreConformance, AnotherDigestIsRefusedAndCounted) {
  Verdict sample = sample_verdict("a", 3);
  ASSERT_TRUE(append(*store_, to_proto(sample)).ok());
  sample.digest = std::string(32, 'b');
  for (int attempt = 0; attempt < 2; ++attempt) {
    const absl::Status status = append(*store_, to_proto(sample));
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_NE(status.message().find(std::string(32, 'a')), std::string::npos) << status;
  }
  EXPECT_EQ(*store_->digest_of(sample.identity), std::string(32, 'a'));
  const auto job = store_->job("default", "a");
  EXPECT_EQ(job->errors(), 1u);
  EXPECT_EQ(job->steps(), 1u);
}

TEST_P(StoreConformance, VerdictTakesThePlaceOfAnError) {
  const StepIdentity step = sample_verdict("a", 3).identity;
  ASSERT_TRUE(
      append_error(*store_, step, absl::ResourceExhaustedError("memory"), {2, {"queue_full", "queue_full"}}).ok());
  EXPECT_TRUE(*store_->was_refused(step));
  EXPECT_EQ(*store_->digest_of(step), std::nullopt);
  EXPECT_EQ(store_->job("default", "a")->errors(), 1u);
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 3)), {2, {"queue_full", "queue_full"}}).ok());
  EXPECT_FALSE(*store_->was_refused(step));
  const auto job = store_->job("default", "a");
  EXPECT_EQ(job->errors(), 0u);
  EXPECT_EQ(job->steps(), 1u);
  EXPECT_EQ(job->missed(), 2u) << "a resent step counts its gap once";
  ASSERT_TRUE(append_error(*store_, step, absl::InternalError("late")).ok());
  EXPECT_EQ(*store_->digest_of(step), std::string(32, 'a')) << "a verdict stays";
  EXPECT_EQ(store_->job("default", "a")->errors(), 1u);
}

TEST_P(StoreConformance, KnowsTheLastDurableStepOfEachRank) {
  Verdict sample = sample_verdict("a", 5);
  ASSERT_TRUE(append(*store_, to_proto(sample)).ok());
  StepIdentity run = sample.identity;
  EXPECT_EQ(*store_->last_durable_step(run), 5);
  run.rank = 1;
  EXPECT_EQ(*store_->last_durable_step(run), -1);
  run.step = INT64_MAX;
  ASSERT_TRUE(append_error(*store_, run, absl::InvalidArgumentError("bad")).ok());
  EXPECT_EQ(*store_->last_durable_step(run), -1) << "a refused step may have any number";
  reopen();
  EXPECT_EQ(*store_->last_durable_step(run), -1);
  run.rank = 0;
  EXPECT_EQ(*store_->last_durable_step(run), 5);
}

TEST_P(StoreConformance, SummarizesJobs) {
  ASSERT_TRUE(open_run(*store_, {"default", "idle", "run-9", 0, 0}).ok());
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 1, Outcome::kTypeI, 0.9, 0.5)), {3, {}}).ok());
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 2, Outcome::kTypeI, 0.1, 0.75))).ok());
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 3, Outcome::kInconclusive, kNotAsked))).ok());
  auto job = store_->job("default", "a");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->steps(), 3u);
  EXPECT_EQ(job->type_i(), 2u);
  EXPECT_EQ(job->inconclusive(), 1u);
  EXPECT_EQ(job->missed(), 3u);
  EXPECT_EQ(job->worst_verdict_id(), "default/a/run-1/0/2");
  EXPECT_EQ(job->first_seen().seconds(), 1'700'000'001);
  EXPECT_EQ(job->last_seen().seconds(), 1'700'000'003);
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 4, Outcome::kTypeII, 7))).ok());
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 5, Outcome::kTypeII, 9))).ok());
  EXPECT_EQ(store_->job("default", "a")->worst_verdict_id(), "default/a/run-1/0/4") << "the first TYPE_II";

  const auto jobs = store_->jobs("", "", "", 10);
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ(jobs->at(0).job(), "a");
  EXPECT_EQ(jobs->at(1).job(), "idle");
  EXPECT_EQ(jobs->at(1).runs(0), "run-9");
  EXPECT_EQ(jobs->at(1).worst_verdict_id(), "");
  EXPECT_EQ(store_->jobs("default", "default", "a", 10)->size(), 1u);
  EXPECT_TRUE(store_->jobs("elsewhere", "", "", 10)->empty());
  EXPECT_EQ(store_->job("default", "none").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(StoreConformance, UnitesTheCoverageOfARun) {
  const auto partial = [&](std::int64_t step, const std::string& audited, const std::string& left_out) {
    Verdict verdict = sample_verdict("a", step);
    verdict.coverage.partial = true;
    verdict.coverage.modules = 3;
    verdict.coverage.parameters = 30;
    verdict.coverage.modules_audited = 2;
    verdict.coverage.audited_modules = {{"", 1, 0}, {audited, 5, 10}};
    verdict.coverage.left_out = {left_out};
    return to_proto(verdict);
  };
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 0))).ok());
  EXPECT_EQ(store_->job("default", "a")->coverage_size(), 0) << "it does not state its modules";
  ASSERT_TRUE(append(*store_, partial(1, "up", "down")).ok());
  EXPECT_EQ(store_->list({}, 0, 10, false)->at(1).verdict.coverage().audited_modules_size(), 0);
  EXPECT_EQ(store_->get("default/a/run-1/0/1")->coverage().audited_modules_size(), 2);
  auto found = store_->job("default", "a")->coverage(0);
  EXPECT_EQ(found.modules_audited(), 2u);
  ASSERT_EQ(found.left_out_size(), 1);
  EXPECT_EQ(found.left_out(0), "down");

  ASSERT_TRUE(append(*store_, partial(2, "down", "up")).ok());
  v1::Filter filter;
  filter.set_project("default");
  filter.set_job("a");
  found = store_->stats(filter)->coverage(0);
  EXPECT_EQ(found.run(), "run-1");
  EXPECT_EQ(found.steps(), 2u);
  EXPECT_EQ(found.partial(), 2u);
  EXPECT_EQ(found.modules_audited(), 3u);
  EXPECT_EQ(found.parameters_audited(), 20u);
  EXPECT_EQ(found.operations_audited(), 11u);
  EXPECT_EQ(found.left_out_size(), 0);

  Verdict whole = sample_verdict("a", 3);
  whole.coverage.modules = whole.coverage.modules_audited = 3;
  ASSERT_TRUE(append(*store_, to_proto(whole)).ok());
  found = store_->job("default", "a")->coverage(0);
  EXPECT_EQ(found.steps(), 1u) << "nothing older adds to it";
  EXPECT_EQ(found.modules_audited(), 3u);
}

TEST_P(StoreConformance, SumsUpStatistics) {
  EXPECT_TRUE(std::isnan(store_->stats({})->margin_max()));
  EXPECT_TRUE(std::isnan(store_->stats({})->surprise_max()));
  const double infinity = std::numeric_limits<double>::infinity();
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 1, Outcome::kTypeI, 0.1, 1.5))).ok());
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 2, Outcome::kTypeI, 0.3, 0))).ok());
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 3, Outcome::kTypeII, infinity, infinity))).ok());
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 4, Outcome::kInconclusive, kNotAsked, kNotAsked))).ok());
  const auto stats = store_->stats({});
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->verdicts(), 4u);
  EXPECT_EQ(stats->type_i(), 2u);
  EXPECT_EQ(stats->type_ii(), 1u);
  EXPECT_EQ(stats->inconclusive(), 1u);
  EXPECT_EQ(stats->margin_max(), infinity);
  EXPECT_EQ(stats->margin_median(), 0.3);
  EXPECT_EQ(stats->surprise_max(), infinity);
  EXPECT_EQ(stats->surprise_median(), 1.5);
  EXPECT_EQ(stats->operations(), 40u);
  EXPECT_EQ(stats->opaque(), 4u);
  EXPECT_EQ(stats->audit_seconds(), 1.0);
  v1::Filter filter;
  filter.set_verdict(v1::OUTCOME_TYPE_I);
  EXPECT_EQ(store_->stats(filter)->margin_median(), 0.1) << "of an even number, the lower";
  EXPECT_EQ(store_->stats(filter)->surprise_median(), 0);
}

TEST_P(StoreConformance, RefusesWhatIsNotAVerdict) {
  v1::Verdict verdict = to_proto(sample_verdict("a", 1));
  verdict.set_id("default/a/run-1/0/2");
  EXPECT_EQ(append(*store_, verdict).code(), absl::StatusCode::kInvalidArgument);
  verdict = to_proto(sample_verdict("a", 1));
  verdict.clear_digest();
  EXPECT_EQ(append(*store_, verdict).code(), absl::StatusCode::kInvalidArgument);
  verdict = to_proto(sample_verdict("a", 1));
  verdict.clear_time();
  EXPECT_EQ(append(*store_, verdict).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(append_error(*store_, sample_verdict("a", 1).identity, absl::OkStatus()).code(),
            absl::StatusCode::kInvalidArgument);
  for (const char* id : {"", "a", "default/a/run-1/0", "default/a/run-1/0/x", "default/a/run-1/0/-1", "//run/0/1",
                         "default/a/run-1/0/1/2", "default/a/run-1/99999999999/1"}) {
    EXPECT_EQ(store_->get(id).status().code(), absl::StatusCode::kInvalidArgument) << id;
  }
  EXPECT_EQ(store_->get("default/a/run-1/0/1").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(StoreConformance, ReplacesTextThatIsNotUtf8) {
  Verdict sample = sample_verdict("a", 1);
  sample.sentence = "caf\xc3\xa9 \xff\xc3 \xed\xa0\x80 end";
  ASSERT_TRUE(append(*store_, to_proto(sample)).ok());
  EXPECT_EQ(store_->get("default/a/run-1/0/1")->sentence(), "caf\xc3\xa9 ?? ??? end");
}

TEST_P(StoreConformance, ReplacesWhatARefusalCannotSay) {
  const StepIdentity step{"default", "a", "run-1", 0, 3};
  const std::string message("before\0 \xff after", 15);
  ASSERT_TRUE(append_error(*store_, step, absl::InternalError(message), {1, {"queue\xc3"}}).ok());
  const auto errors = store_->errors("default", "a", {}, 10, {}, {});
  ASSERT_TRUE(errors.ok()) << errors.status();
  ASSERT_EQ(errors->size(), 1u);
  EXPECT_EQ(errors->at(0).status().message(), "before? ? after");
}

TEST_P(StoreConformance, ListenersMissNothing) {
  std::mutex mutex;
  std::vector<std::int64_t> seen;
  std::int64_t after = 0;
  const auto pull = [&] {
    std::lock_guard lock(mutex);
    const auto page = store_->list({}, after, 1000, false);
    ASSERT_TRUE(page.ok());
    for (const StoredVerdict& stored : *page) {
      seen.push_back(stored.verdict.step());
      after = stored.sequence;
    }
  };
  const std::uint64_t handle = store_->subscribe(pull);
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([this, writer] {
      for (std::int64_t step = 0; step < 25; ++step) {
        EXPECT_TRUE(append(*store_, to_proto(sample_verdict("job" + std::to_string(writer), step))).ok());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  store_->unsubscribe(handle);
  EXPECT_EQ(seen.size(), 100u);
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("later", 1))).ok());
  EXPECT_EQ(seen.size(), 100u);
}

TEST_P(StoreConformance, DestructorCommitsWhatIsQueued) {
  std::atomic<int> answered = 0;
  for (std::int64_t step = 0; step < 500; ++step) {
    store_->append(to_proto(sample_verdict("a", step)), {}, "", [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      ++answered;
    });
  }
  reopen();
  EXPECT_EQ(answered, 500);
  EXPECT_EQ(steps({}).size(), 500u);
}

}  // namespace
}  // namespace plumbline
