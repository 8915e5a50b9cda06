// Databases of every version that was released are brought to ours; newer ones are left alone.
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/unit/store/sqlite_fixture.h"

namespace plumbline {
namespace {

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A database of that version in place of the fixture's own.
class Upgrade : public SqliteTest, public testing::WithParamInterface<int> {
 protected:
  void restore(int version) {
    store_.reset();
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) std::filesystem::remove(entry.path());
    const std::string sql = content(std::string(DATABASES) + "/version_" + std::to_string(version) + ".sql");
    ASSERT_FALSE(sql.empty());
    execute(sql);
  }
};

TEST_P(Upgrade, KeepsWhatWasThere) {
  restore(GetParam());
  reopen();
  const auto train = store_->job("default", "train");
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ(train->steps(), 5u);
  EXPECT_EQ(train->type_i(), 3u);
  EXPECT_EQ(train->type_ii(), 1u);
  EXPECT_EQ(train->inconclusive(), 1u);
  EXPECT_EQ(train->missed(), 2u);
  EXPECT_EQ(train->errors(), 2u);
  EXPECT_EQ(train->worst_verdict_id(), "default/train/first/0/2");
  EXPECT_EQ(train->runs_size(), 2);
  const auto jobs = store_->jobs("", "", "", 10);
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 3u);
  EXPECT_EQ(jobs->at(0).job(), "idle");
  EXPECT_EQ(*store_->last_durable_step({"default", "train", "first", 0, 0}), 4);
  EXPECT_EQ(*store_->last_durable_step({"default", "idle", "silent", 0, 0}), -1);
  EXPECT_TRUE(*store_->was_refused({"default", "train", "first", 0, 3}));
  const auto verdict = store_->get("default/train/first/0/2");
  ASSERT_TRUE(verdict.ok());
  EXPECT_EQ(verdict->taps_size(), 1);
  EXPECT_EQ(verdict->has_surprise(), GetParam() > 1);
  const auto stats = store_->stats({});
  EXPECT_EQ(stats->verdicts(), 6u);
  EXPECT_EQ(std::isnan(stats->surprise_max()), GetParam() == 1);
}

TEST_P(Upgrade, GoesOnFromThere) {
  restore(GetParam());
  reopen();
  Verdict next = sample_verdict("train", 5);
  next.identity.run = "first";
  ASSERT_TRUE(append(*store_, to_proto(next), {1, {"queue_full"}}).ok());
  EXPECT_EQ(*store_->last_sequence(), GetParam() < 3 ? 7 : 8) << "numbers are never used again";
  reopen();
  EXPECT_EQ(store_->job("default", "train")->steps(), 6u);
  EXPECT_EQ(store_->job("default", "train")->missed(), 3u);
  EXPECT_EQ(*store_->last_durable_step(next.identity), 5);
}

// Version 3 had a step's trace id within its message alone.
TEST_P(Upgrade, FindsStepsByTheTraceIdsTheyHad) {
  restore(GetParam());
  reopen();
  v1::Filter filter;
  filter.set_trace_id("4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(listed_steps(*store_, filter), GetParam() < 3 ? std::vector<std::int64_t>() : std::vector<std::int64_t>{7});
  const auto errors = store_->errors("default", "train", {}, 10, {}, {});
  ASSERT_TRUE(errors.ok()) << errors.status();
  ASSERT_EQ(errors->size(), 2u);
  EXPECT_EQ(errors->at(0).trace_id(), "");
}

INSTANTIATE_TEST_SUITE_P(FromVersion, Upgrade, testing::Values(1, 2, 3, 4, 5));

TEST_F(SqliteTest, ANewerDatabaseIsRefusedAndUntouched) {
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 1))).ok());
  store_.reset();
  execute("PRAGMA user_version=1000");
  const auto files = [&] {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
      found[entry.path().filename().string()] = content(entry.path().string());
    }
    return found;
  };
  const auto before = files();
  const auto opened = open_sqlite_store(dir_);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(opened.status().message().find("format version 1000"), std::string::npos) << opened.status();
  EXPECT_NE(opened.status().message().find("newer plumblined"), std::string::npos) << opened.status();
  const auto after = files();
  for (const auto& [name, bytes] : before) EXPECT_TRUE(after.count(name) && after.at(name) == bytes) << name;
}

}  // namespace
}  // namespace plumbline
