#include "server/ingest/trace_store.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/unit/ingest/frames_of_a_step.h"
#include "tests/unit/ingest/temporary_directory.h"

namespace {
std::vector<std::string> synced;  // Paths, in order.
}  // namespace

// In place of the C library's: it syncs, and remembers what.
extern "C" int fsync(int descriptor) {
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  if (readlink(link.c_str(), path, sizeof(path) - 1) > 0) synced.push_back(path);
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace plumbline {
namespace {

using State = TraceStore::State;

StepIdentity step_of_run(std::int64_t step) {
  StepIdentity identity = options_of_a_run().run;
  identity.step = step;
  return identity;
}

TraceRecord record_of(std::int64_t step) {
  TraceRecord record;
  record.trace = trace_of(frames_of_a_step(step));
  return record;
}

// The same of another project or job.
TraceRecord record_of(std::int64_t step, std::string StepIdentity::*part, const std::string& name) {
  TraceRecord record = record_of(step);
  auto trace = std::make_shared<Trace>(*record.trace);
  trace->identity.*part = name;
  record.trace = trace;
  return record;
}

std::unique_ptr<TraceStore> opened(const std::string& directory, std::uint64_t quota) {
  auto store = TraceStore::open(directory, quota, TraceContent::kPaired);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

TEST(TraceStore, KeepsLoadsAndForgetsTheOldest) {
  const TemporaryDirectory directory;
  auto store = opened(directory.path, 1 << 20);
  ASSERT_TRUE(store->put(record_of(0)).ok());
  const std::uint64_t each = store->used_bytes();
  store = opened(directory.path, 2 * each + each / 2);  // Steps 1 and 2 fit, 0 goes.
  for (const int step : {1, 2}) ASSERT_TRUE(store->put(record_of(step)).ok());
  EXPECT_EQ(store->state(step_of_run(0)), State::kEvicted);
  EXPECT_EQ(store->state(step_of_run(1)), State::kPresent);
  EXPECT_EQ(store->state(step_of_run(2)), State::kPresent);
  EXPECT_EQ(store->state(step_of_run(3)), State::kAbsent);
  EXPECT_LE(store->used_bytes(), 2 * each + each / 2);
  const auto loaded = store->load(step_of_run(2));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->trace->identity.step, 2);
  EXPECT_TRUE(absl::IsNotFound(store->load(step_of_run(0)).status()));
}

TEST(TraceStore, AProjectBeyondItsQuotaLosesItsOwnOldest) {
  const TemporaryDirectory directory;
  auto store = opened(directory.path, 1 << 20);
  const auto of_project = [](const std::string& project, std::int64_t step) {
    return record_of(step, &StepIdentity::project, project);
  };
  ASSERT_TRUE(store->put(of_project("large", 0)).ok());
  const std::uint64_t each = store->used_bytes();
  std::uint64_t quota = 2 * each + each / 2;
  store->limit_projects(
      [&](const std::string& project) { return TraceStore::Shares{project == "small" ? quota : UINT64_MAX}; });
  for (const int step : {0, 1, 2}) ASSERT_TRUE(store->put(of_project("small", step)).ok());
  const auto state = [&](const std::string& project, std::int64_t step) {
    StepIdentity identity = step_of_run(step);
    identity.project = project;
    return store->state(identity);
  };
  EXPECT_EQ(state("small", 0), State::kEvicted);
  EXPECT_EQ(state("small", 1), State::kPresent);
  EXPECT_EQ(state("small", 2), State::kPresent);
  EXPECT_EQ(state("large", 0), State::kPresent) << "it is older, and not of the project";
  quota = each / 2;
  const absl::Status beyond = store->put(of_project("small", 3));
  EXPECT_TRUE(absl::IsResourceExhausted(beyond));
  EXPECT_NE(beyond.message().find("kept_trace_bytes"), std::string::npos) << beyond;
  EXPECT_EQ(state("large", 0), State::kPresent);
}

TEST(TraceStore, AJobBeyondItsShareLosesItsOwnOldest) {
  const TemporaryDirectory directory;
  auto store = opened(directory.path, 1 << 20);
  const auto of_job = [](const std::string& job, std::int64_t step) {
    return record_of(step, &StepIdentity::job, job);
  };
  ASSERT_TRUE(store->put(of_job("a", 0)).ok());
  const std::uint64_t each = store->used_bytes();
  std::uint64_t share = 2 * each + each / 2;
  store->limit_projects([&](const std::string&) { return TraceStore::Shares{UINT64_MAX, share}; });
  for (const int step : {0, 1, 2}) ASSERT_TRUE(store->put(of_job("b", step)).ok());
  const auto state = [&](const std::string& job, std::int64_t step) {
    StepIdentity identity = step_of_run(step);
    identity.job = job;
    return store->state(identity);
  };
  EXPECT_EQ(state("b", 0), State::kEvicted);
  EXPECT_EQ(state("b", 1), State::kPresent);
  EXPECT_EQ(state("a", 0), State::kPresent) << "it is older, and another job's";
  const std::map<std::string, std::uint64_t> used = store->used_by_job(step_of_run(0).project);
  EXPECT_EQ(used, (std::map<std::string, std::uint64_t>{{"a", each}, {"b", store->used_bytes() - each}}));
  EXPECT_LE(used.at("b"), share);
  share = each / 2;
  const absl::Status beyond = store->put(of_job("b", 3));
  EXPECT_TRUE(absl::IsResourceExhausted(beyond));
  EXPECT_NE(beyond.message().find("job_kept_trace_bytes"), std::string::npos) << beyond;
}

TEST(TraceStore, RemembersOverARestart) {
  const TemporaryDirectory directory;
  {
    auto store = opened(directory.path, 1 << 20);
    for (const int step : {0, 1}) ASSERT_TRUE(store->put(record_of(step)).ok());
    store = opened(directory.path, store->used_bytes() - 1);
  }
  std::ofstream(directory.path + "/p_p/j_j/r_r/0/9.trace.part") << "half";
  const auto store = opened(directory.path, 1 << 20);
  EXPECT_EQ(store->state(step_of_run(0)), State::kEvicted);
  EXPECT_EQ(store->state(step_of_run(1)), State::kPresent);
  EXPECT_FALSE(std::filesystem::exists(directory.path + "/p_p/j_j/r_r/0/9.trace.part"));
  EXPECT_TRUE(store->has_run(step_of_run(5)));
  StepIdentity other = step_of_run(0);
  other.run = "nobody";
  EXPECT_FALSE(store->has_run(other));
}

TEST(TraceStore, AFileTellsTheTraceIdOfItsStep) {
  const TemporaryDirectory directory;
  const auto store = opened(directory.path, 1 << 20);
  const std::string id(32, 'b');
  ASSERT_TRUE(store->put(record_of(0), id).ok());
  ASSERT_TRUE(store->put(record_of(1)).ok());
  EXPECT_EQ(trace_id_of_file(store->path(step_of_run(0))), id);
  EXPECT_EQ(trace_id_of_file(store->path(step_of_run(1))), "");
  EXPECT_EQ(trace_id_of_file(store->path(step_of_run(2))), "") << "which is not there";
  EXPECT_TRUE(store->load(step_of_run(0)).ok());
}

TEST(TraceStore, ATraceBeyondTheQuotaCountsAsEvicted) {
  const TemporaryDirectory directory;
  const auto store = opened(directory.path, 10);
  EXPECT_TRUE(absl::IsResourceExhausted(store->put(record_of(0))));
  EXPECT_EQ(store->state(step_of_run(0)), State::kEvicted);
  EXPECT_EQ(store->used_bytes(), 0u);
}

TEST(TraceStore, ComesBackAfterEviction) {
  const TemporaryDirectory directory;
  auto store = opened(directory.path, 10);
  EXPECT_FALSE(store->put(record_of(0)).ok());
  store = opened(directory.path, 1 << 20);
  EXPECT_EQ(store->state(step_of_run(0)), State::kEvicted);
  EXPECT_TRUE(store->put(record_of(0)).ok());
  EXPECT_EQ(store->state(step_of_run(0)), State::kPresent);
}

TEST(TraceStore, CannotBeWherAFileIs) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path + "/file") << "x";
  const auto store = TraceStore::open(directory.path + "/file/traces", 10, TraceContent::kPaired);
  EXPECT_TRUE(absl::IsPermissionDenied(store.status())) << store.status();
}

TEST(TraceStore, WhatItKeepsIsOnDiskBeforeItSaysSo) {
  const TemporaryDirectory directory;
  auto store = TraceStore::open(directory.path + "/kept", 1 << 20, TraceContent::kWhole);
  ASSERT_TRUE(store.ok());
  synced.clear();
  ASSERT_TRUE((*store)->put(record_of(3)).ok());
  const std::string kept = directory.path + "/kept", run = kept + "/p_p/j_j/r_r/0";
  // The file under the name that it had before it was renamed, then the names, up to the store's own directory.
  EXPECT_EQ(synced, (std::vector<std::string>{run + "/3.trace.part", run, kept + "/p_p/j_j/r_r", kept + "/p_p/j_j",
                                              kept + "/p_p", kept}));
}

TEST(TraceStore, LeavesTheDisksReserve) {
  const TemporaryDirectory directory;
  auto store = TraceStore::open(directory.path, 1 << 20, TraceContent::kWhole, std::uint64_t{1} << 62);
  ASSERT_TRUE(store.ok());
  const absl::Status refused = (*store)->put(record_of(0));
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_NE(refused.message().find("--disk-reserve"), std::string::npos) << refused;
  EXPECT_EQ((*store)->state(step_of_run(0)), State::kAbsent);
  EXPECT_EQ((*store)->used_bytes(), 0u);
}

}  // namespace
}  // namespace plumbline
