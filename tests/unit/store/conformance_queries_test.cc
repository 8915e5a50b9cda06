// What operators ask: filters, orders, and queries that are given up.
#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "tests/unit/store/conformance.h"

namespace plumbline {
namespace {

TEST_P(StoreConformance, FilterByTimeRankCauseGradeAndSurprise) {
  for (std::int64_t step = 0; step < 6; ++step) {
    Verdict verdict = sample_verdict("a", step, step == 5 ? Outcome::kTypeII : Outcome::kTypeI, 0.5, 0.5 * step);
    verdict.identity.rank = static_cast<std::int32_t>(step % 2);
    if (step == 2) verdict.grade = Grade::kMatch;
    if (step == 3) verdict.surprise = kNotAsked;
    ASSERT_TRUE(append(*store_, to_proto(verdict)).ok());
  }
  using Steps = std::vector<std::int64_t>;
  v1::Filter filter;
  filter.mutable_time_min()->set_seconds(1'700'000'002);
  filter.mutable_time_max()->set_seconds(1'700'000'004);
  EXPECT_EQ(steps(filter), (Steps{2, 3})) << "the end is exclusive";
  filter.Clear();
  filter.set_rank(0);
  EXPECT_EQ(steps(filter), (Steps{0, 2, 4}));
  filter.Clear();
  filter.set_cause(v1::CAUSE_MATHEMATICS);
  EXPECT_EQ(steps(filter), (Steps{5}));
  filter.Clear();
  filter.set_grade(v1::GRADE_MATCH);
  EXPECT_EQ(steps(filter), (Steps{2}));
  filter.Clear();
  filter.set_surprise_min(1);
  EXPECT_EQ(steps(filter), (Steps{2, 4, 5})) << "without a surprise it does not match";
  EXPECT_EQ(store_->stats(filter)->verdicts(), 3u);
}

TEST_P(StoreConformance, AStepIsFoundByItsTraceId) {
  const std::string traces[] = {std::string(32, 'a'), "", std::string(32, 'b'), std::string(32, 'a')};
  for (std::int64_t step = 0; step < 4; ++step) {
    v1::Verdict verdict = to_proto(sample_verdict("a", step));
    verdict.set_trace_id(traces[step]);
    ASSERT_TRUE(append(*store_, verdict).ok());
  }
  v1::Filter filter;
  filter.set_trace_id(std::string(32, 'a'));
  EXPECT_EQ(steps(filter), (std::vector<std::int64_t>{0, 3})) << "the spans of one trace may be several steps";
  EXPECT_EQ(store_->stats(filter)->verdicts(), 2u);
  filter.set_run("another");
  EXPECT_EQ(steps(filter), std::vector<std::int64_t>());
  filter.Clear();
  filter.set_trace_id(std::string(32, 'c'));
  EXPECT_EQ(steps(filter), std::vector<std::int64_t>());
}

TEST_P(StoreConformance, ErrorsHaveTheTraceIdOfTheirStep) {
  const StepIdentity refused{"default", "a", "run-1", 0, 1}, unnamed{"default", "a", "run-1", 0, 2};
  ASSERT_TRUE(append_error(*store_, refused, absl::InternalError("first"), {}, std::string(32, 'a')).ok());
  ASSERT_TRUE(append_error(*store_, refused, absl::InternalError("again"), {}, std::string(32, 'b')).ok());
  ASSERT_TRUE(append_error(*store_, unnamed, absl::InternalError("e")).ok());
  v1::Verdict verdict = to_proto(sample_verdict("a", 3));
  ASSERT_TRUE(append(*store_, verdict).ok());
  verdict.set_digest(std::string(32, '9'));
  verdict.set_trace_id(std::string(32, 'c'));
  EXPECT_TRUE(absl::IsAlreadyExists(append(*store_, verdict)));
  const auto errors = store_->errors("default", "a", {}, 10, {}, {});
  ASSERT_TRUE(errors.ok()) << errors.status();
  ASSERT_EQ(errors->size(), 3u);
  EXPECT_EQ(errors->at(0).trace_id(), std::string(32, 'b')) << "a later error takes the place of an earlier one";
  EXPECT_EQ(errors->at(1).trace_id(), "");
  EXPECT_EQ(errors->at(2).trace_id(), std::string(32, 'c'));
}

TEST_P(StoreConformance, CountsTheVerdictsOfEachProjectAndJob) {
  ASSERT_TRUE(store_->verdicts_of_projects({})->empty());
  for (std::int64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(append(*store_, to_proto(sample_verdict(step == 0 ? "a" : "b", step))).ok());
  }
  Verdict elsewhere = sample_verdict("a", 7, Outcome::kTypeII, 8);
  elsewhere.identity.project = "llama";
  ASSERT_TRUE(append(*store_, to_proto(elsewhere)).ok());
  ASSERT_TRUE(open_run(*store_, {"idle", "a", "run-1", 0, 0}).ok());
  const auto counted = store_->verdicts_of_projects({});
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_EQ(*counted, (std::map<std::string, std::uint64_t>{{"default", 3}, {"idle", 0}, {"llama", 1}}));
  EXPECT_EQ(*store_->verdicts_of_job("default", "b", {}), 2u);
  EXPECT_EQ(*store_->verdicts_of_job("idle", "a", {}), 0u);
  EXPECT_EQ(*store_->verdicts_of_job("llama", "b", {}), 0u) << "which does not exist";
}

// Pages of every order, both ways, join without a gap or a duplicate, equal keys and missing ones included.
TEST_P(StoreConformance, OrdersPageWhole) {
  const double surprises[] = {0.5, kNotAsked, 0, 2, 0, std::numeric_limits<double>::infinity(), 0.5};
  for (std::int64_t step = 0; step < 7; ++step) {
    Verdict verdict = sample_verdict("a", 6 - step, Outcome::kTypeI, 0.5, surprises[step]);
    verdict.time_unix_us = 1'700'000'000'000'000 + step % 3;
    ASSERT_TRUE(append(*store_, to_proto(verdict)).ok());
  }
  const struct {
    Order::Key key;
    std::vector<std::int64_t> sequences;
  } cases[] = {{Order::Key::kSequence, {1, 2, 3, 4, 5, 6, 7}},
               {Order::Key::kTime, {1, 4, 7, 2, 5, 3, 6}},
               {Order::Key::kStep, {7, 6, 5, 4, 3, 2, 1}},
               {Order::Key::kSurprise, {2, 3, 5, 1, 7, 4, 6}}};
  for (const auto& [key, expected] : cases) {
    for (const bool descending : {false, true}) {
      std::vector<std::int64_t> found;
      std::optional<ListPlace> after;
      for (;;) {
        const auto page = store_->list({}, {key, descending}, after ? &*after : nullptr, 2, false, {}, {});
        ASSERT_TRUE(page.ok()) << page.status();
        if (page->empty()) break;
        for (const StoredVerdict& stored : *page) found.push_back(stored.sequence);
        after = ListPlace{page->back().sequence, page->back().key};
      }
      auto wanted = expected;
      if (descending) std::reverse(wanted.begin(), wanted.end());
      EXPECT_EQ(found, wanted) << static_cast<int>(key) << descending;
    }
  }
}

TEST_P(StoreConformance, AreGivenUp) {
  for (std::int64_t step = 0; step < 400; ++step) {
    ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", step))).ok());
  }
  int asked = 0;
  const Stop stop = [&] { return ++asked > 0; };
  EXPECT_TRUE(absl::IsCancelled(store_->stats({}, {}, stop).status()));
  EXPECT_TRUE(absl::IsCancelled(store_->jobs("", "", "", 10, {}, stop).status()));
  EXPECT_GT(asked, 0);
  EXPECT_TRUE(store_->stats({}).ok()) << "the connection is as good as before";
}

// Queries that hang hold neither the admission of steps nor, while a connection is left, each other.
TEST_P(StoreConformance, DoNotHoldAdmission) {
  for (std::int64_t step = 0; step < 400; ++step) {
    ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", step))).ok());
  }
  std::promise<void> release;
  const auto released = release.get_future().share();
  std::atomic<int> hanging = 0;
  std::vector<std::thread> queries;
  for (int i = 0; i < VerdictStore::kReaders - 1; ++i) {
    queries.emplace_back([&] {
      bool counted = false;
      const Stop stop = [&] {
        if (!std::exchange(counted, true)) ++hanging;
        released.wait();
        return true;
      };
      EXPECT_TRUE(absl::IsCancelled(store_->stats({}, {}, stop).status()));
    });
  }
  while (hanging < VerdictStore::kReaders - 1) std::this_thread::yield();
  const StepIdentity step{"default", "a", "run-1", 0, 7};
  EXPECT_EQ(*store_->last_durable_step(step), 399);
  EXPECT_TRUE(store_->digest_of(step)->has_value());
  EXPECT_TRUE(store_->get(step.id()).ok());
  EXPECT_TRUE(append(*store_, to_proto(sample_verdict("a", 400))).ok());
  EXPECT_EQ(store_->stats({})->verdicts(), 401u);
  release.set_value();
  for (std::thread& query : queries) query.join();
}

TEST_P(StoreConformance, RunsAreListed) {
  for (int run = 0; run < 150; ++run) {
    for (const int rank : {0, 1}) {
      ASSERT_TRUE(open_run(*store_, {"default", "a", "run-" + std::to_string(1000 + run), rank, 0}).ok());
    }
  }
  const auto job = store_->job("default", "a");
  EXPECT_EQ(job->runs_total(), 150u);
  ASSERT_EQ(static_cast<std::size_t>(job->runs_size()), VerdictStore::kRunsListedMax);
  EXPECT_EQ(job->runs(0), "run-1050");
  EXPECT_EQ(job->runs(99), "run-1149");
  const auto runs = store_->runs("default", "a", "run-1000", 0, 2, {}, {});
  ASSERT_TRUE(runs.ok());
  ASSERT_EQ(runs->size(), 2u);
  EXPECT_EQ(runs->at(0).run(), "run-1000");
  EXPECT_EQ(runs->at(0).rank(), 1);
  EXPECT_EQ(runs->at(0).client_version(), "1.0");
  EXPECT_EQ(runs->at(1).run(), "run-1001");
  EXPECT_EQ(runs->at(1).last_step(), -1);
}

TEST_P(StoreConformance, WhatARunRemembersOutlivesTheStore) {
  const auto remember = [&](std::int64_t step, const std::string& memory) {
    std::promise<absl::Status> answer;
    store_->append(to_proto(sample_verdict("a", step)), {}, memory,
                   [&](const absl::Status& status) { answer.set_value(own(status)); });
    return answer.get_future().get();
  };
  const StepIdentity run{"default", "a", "run-1", 0, 0};
  EXPECT_EQ(*store_->memory_of(run), "");
  ASSERT_TRUE(remember(0, std::string("one\0", 4)).ok());
  ASSERT_TRUE(remember(1, "two").ok());
  ASSERT_TRUE(remember(2, "").ok());
  reopen();
  EXPECT_EQ(*store_->memory_of(run), "two");
}

TEST_P(StoreConformance, ShowWhatMayBeSeen) {
  const auto open_for = [&](const std::string& run, const std::string& owner) {
    std::promise<absl::Status> answer;
    store_->open_run({"default", "a", run, 0, 0}, owner, "",
                     [&](const absl::Status& status) { answer.set_value(own(status)); });
    return answer.get_future().get();
  };
  ASSERT_TRUE(open_for("mine", "uid:1").ok());
  ASSERT_TRUE(open_for("theirs", "uid:2").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(open_for("theirs", "uid:1")));
  EXPECT_EQ(*store_->owner_of({"default", "a", "theirs", 0, 0}), "uid:2");
  std::int64_t step = 0;
  for (const char* run : {"mine", "theirs", "theirs"}) {
    Verdict verdict = sample_verdict("a", step++, run[0] == 't' ? Outcome::kTypeII : Outcome::kTypeI);
    verdict.identity.run = run;
    ASSERT_TRUE(append(*store_, to_proto(verdict), {1, {}}).ok());
  }
  const Visibility mine{false, "uid:1", {}}, nobody{false, "uid:3", {}}, project{false, "uid:3", {"default"}};
  const auto job = store_->job("default", "a", mine, {});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->steps(), 1u);
  EXPECT_EQ(job->type_ii(), 0u);
  EXPECT_EQ(job->missed(), 1u);
  EXPECT_EQ(job->runs_size(), 1);
  EXPECT_EQ(job->worst_verdict_id(), "default/a/mine/0/0");
  EXPECT_EQ(store_->jobs("", "", "", 10, mine, {})->size(), 1u);
  EXPECT_TRUE(store_->jobs("", "", "", 10, nobody, {})->empty());
  EXPECT_TRUE(absl::IsNotFound(store_->job("default", "a", nobody, {}).status()));
  EXPECT_EQ(store_->job("default", "a", project, {})->steps(), 3u);
  EXPECT_EQ(store_->stats({}, mine, {})->verdicts(), 1u);
  EXPECT_EQ(store_->list({}, 0, 10, false, mine)->size(), 1u);
  EXPECT_EQ(store_->runs("default", "a", "", -1, 10, mine, {})->size(), 1u);
}

}  // namespace
}  // namespace plumbline
