// What the shared history keeps, whoever shipped it, and that one daemon at a time sees to it.
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/unit/store/node.h"

namespace plumbline {
namespace {

class SharedRetentionTest : public testing::Test {
 protected:
  void open(Node& node, const Retention& retention) {
    node.retention = retention;
    node.statement_timeout = absl::Seconds(30);
    node.open();
    ASSERT_TRUE(node.answers()) << node.why();
  }

  static void add(Node& node, const std::string& job, int count, std::int64_t first_us) {
    for (int step = 0; step < count; ++step) {
      Verdict verdict = sample_verdict(job, step);
      verdict.time_unix_us = first_us + step;
      ASSERT_TRUE(append(*node.store, to_proto(verdict)).ok());
    }
  }

  std::int64_t ask(const std::string& sql) { return connection_->integer(sql).value_or(-1); }

  // Waits until the server answers that.
  bool becomes(const std::string& sql, std::int64_t value) {
    const auto until = std::chrono::steady_clock::now() + Node::kPatience;
    while (ask(sql) != value) {
      if (std::chrono::steady_clock::now() > until) return false;
    }
    return true;
  }

  const std::string schema_ = PostgresServer::shared().fresh_schema();
  const std::unique_ptr<PostgresConnection> connection_ = PostgresServer::shared().connect(schema_);
  static constexpr std::int64_t kLongAgo = 1'700'000'000'000'000;
  static constexpr char kDays[] = "SELECT count(*) FROM pg_inherits WHERE inhparent='verdicts'::regclass";
};

TEST_F(SharedRetentionTest, TheOldestGoWhoeverShippedThem) {
  Node keeps(schema_), other(schema_);
  Retention retention;
  retention.verdicts.count = 5;
  open(keeps, retention);
  open(other, {});
  const std::int64_t now = absl::ToUnixMicros(absl::Now());
  add(other, "old", 6, now - 1'000'000);
  ASSERT_TRUE(other.shipped());
  add(keeps, "new", 4, now);
  ASSERT_TRUE(keeps.shipped());
  ASSERT_TRUE(becomes("SELECT count(*) FROM verdicts", 5));
  EXPECT_EQ(ask("SELECT count(*) FROM verdicts WHERE job='new'"), 4) << "the newest stay";
  EXPECT_EQ(ask("SELECT count(*) FROM steps"), 5);
  EXPECT_EQ(other.store->job("default", "old")->steps(), 6u) << "a daemon's own history has limits of its own";
}

TEST_F(SharedRetentionTest, DaysGoWhole) {
  Node node(schema_);
  Retention retention;
  retention.verdicts.age = absl::Hours(24);
  {
    Node before(schema_);
    open(before, {});
    for (int day = 0; day < 4; ++day) add(before, absl::StrCat("job", day), 3, kLongAgo + day * 86'400'000'000);
    add(before, "today", 3, absl::ToUnixMicros(absl::Now()));
    ASSERT_TRUE(before.shipped());
  }
  ASSERT_GE(ask(kDays), 5);
  open(node, retention);
  ASSERT_TRUE(becomes(kDays, 1));
  EXPECT_EQ(ask("SELECT count(*) FROM verdicts"), 3);
  EXPECT_EQ(ask("SELECT CAST(sum(type_i) AS BIGINT) FROM jobs"), 3);
}

TEST_F(SharedRetentionTest, StepsOfSeveralNodesThatNobodyJudgedGoWithTheirParts) {
  Node node(schema_);
  {
    Node before(schema_);
    open(before, {});
    ASSERT_TRUE(connection_
                    ->run("INSERT INTO node_steps(project, job, run, step, ranks_of_run, first_us) VALUES "
                          "('p', 'j', 'r', 1, 2, 7), ('p', 'j', 'r', 2, 2, extract(epoch FROM now())*1000000);"
                          "INSERT INTO node_parts VALUES('p', 'j', 'r', 1, 0, '{0}', 'n', '', 'd', 'x')")
                    .ok());
  }
  Retention retention;
  retention.verdicts.age = absl::Hours(24);
  open(node, retention);
  ASSERT_TRUE(becomes("SELECT count(*) FROM node_steps", 1));
  EXPECT_EQ(ask("SELECT count(*) FROM node_parts"), 0);
}

TEST_F(SharedRetentionTest, OneDaemonAtATimeAndThenAnother) {
  auto first = std::make_unique<Node>(schema_);
  Node second(schema_);
  Retention few, none;
  few.verdicts.count = 2;
  none.verdicts.count = 1'000'000;
  open(*first, none);
  const std::string turn =
      "SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND granted AND objsubid=1 AND classid::bigint=((" +
      std::string("hashtextextended('plumbline retention ") + schema_ + "', 0)>>32)&4294967295)";
  ASSERT_TRUE(becomes(turn, 1));
  open(second, few);
  add(second, "a", 6, absl::ToUnixMicros(absl::Now()));
  ASSERT_TRUE(second.shipped());
  EXPECT_EQ(ask(turn), 1);
  EXPECT_EQ(ask("SELECT count(*) FROM verdicts"), 6) << "the first one's limits hold";
  first.reset();
  EXPECT_TRUE(becomes("SELECT count(*) FROM verdicts", 2));
  EXPECT_EQ(ask(turn), 1);
}

}  // namespace
}  // namespace plumbline
