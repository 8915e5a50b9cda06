// The one suite that every engine of VerdictStore passes: conformance_*.cc have its cases, and an engine's own test
// file says INSTANTIATE_TEST_SUITE_P(Name, StoreConformance, testing::Values(make)). A new promise of store.h is a case
// here; what is an engine's own (files, locks, migrations) is tested beside it. StoreRemoval has the cases of removal,
// for engines in which what is removed is in no other history.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/store/sample.h"

namespace plumbline {

// A place for a history, empty at first and removed at the end.
class StoreEngine {
 public:
  virtual ~StoreEngine() = default;
  virtual absl::StatusOr<std::unique_ptr<VerdictStore>> open() = 0;  // The same history every time.
};

using MakeEngine = std::unique_ptr<StoreEngine> (*)();

inline std::vector<std::int64_t> listed_steps(const VerdictStore& store, const v1::Filter& filter) {
  std::vector<std::int64_t> found;
  const auto listed = store.list(filter, 0, 1000, false);
  EXPECT_TRUE(listed.ok()) << listed.status();
  if (!listed.ok()) return found;
  for (const StoredVerdict& stored : *listed) found.push_back(stored.verdict.step());
  return found;
}

class StoreConformance : public testing::TestWithParam<MakeEngine> {
 protected:
  // It is the time of sample_verdict()'s first step; there is a step a second.
  static constexpr std::int64_t kStart = 1'700'000'000'000'000;

  void SetUp() override {
    engine_ = GetParam()();
    reopen();
  }

  void reopen() {
    store_.reset();
    auto opened = engine_->open();
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = std::move(*opened);
  }

  std::vector<std::int64_t> steps(const v1::Filter& filter) { return listed_steps(*store_, filter); }

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

  std::unique_ptr<StoreEngine> engine_;
  std::unique_ptr<VerdictStore> store_;
};

class StoreRemoval : public StoreConformance {};

}  // namespace plumbline
