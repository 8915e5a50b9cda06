// PostgreSQL passes the suite; and what is its own: a server that goes away, days, versions, secrets.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/store/postgres/schema.h"
#include "tests/unit/store/postgres_server.h"

namespace plumbline {
namespace {

constexpr std::int64_t kDaySteps = 24 * 3600;  // Of sample_verdict(): there is a step a second.

std::unique_ptr<StoreEngine> make_postgres() { return std::make_unique<PostgresEngine>(); }

INSTANTIATE_TEST_SUITE_P(Postgres, StoreConformance, testing::Values(&make_postgres));
INSTANTIATE_TEST_SUITE_P(Postgres, StoreRemoval, testing::Values(&make_postgres));

class Postgres : public testing::Test {
 protected:
  void open() {
    store_.reset();
    auto opened = engine_.open();
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
    beside_ = PostgresServer::shared().connect(engine_.options.schema);
  }

  // Names of the days' tables.
  std::string days() {
    return *beside_->text(
        "SELECT coalesce(string_agg(CAST(c.relname AS TEXT), ' ' ORDER BY c.relname), '') FROM pg_inherits AS i "
        "JOIN pg_class AS c ON c.oid=i.inhrelid WHERE i.inhparent=to_regclass('verdicts')");
  }

  absl::Status expire(absl::Duration age, std::int64_t now_step) {
    Retention retention;
    retention.verdicts.age = age;
    std::promise<absl::Status> expired;
    store_->expire(retention, 1'700'000'000'000'000 + now_step * 1'000'000, {},
                   [&](const absl::Status& status) { expired.set_value(own(status)); });
    return expired.get_future().get();
  }

  PostgresEngine engine_;
  std::unique_ptr<VerdictStore> store_;
  std::unique_ptr<PostgresConnection> beside_;  // Another session on the same tables.
};

TEST_F(Postgres, APasswordInTheUrlIsRefusedAndNotRepeated) {
  for (const char* url : {"postgresql://user:hunter2@host/database", "postgres://host/database?password=hunter2",
                          "postgresql://host/?sslpassword=hunter2&sslmode=require"}) {
    engine_.options.url = url;
    const absl::Status refused = engine_.open().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_TRUE(absl::StrContains(refused.message(), "password")) << refused;
    EXPECT_TRUE(absl::StrContains(refused.message(), "$PGPASSWORD")) << refused;
    EXPECT_FALSE(absl::StrContains(refused.message(), "hunter2")) << refused;
  }
  for (const char* url : {"", "host=local dbname=x", "mysql://host/x", "postgresql://user:hunter2%zz@host/"}) {
    engine_.options.url = url;
    const absl::Status refused = engine_.open().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_FALSE(absl::StrContains(refused.message(), "hunter2")) << refused;
  }
}

TEST_F(Postgres, ASchemaHasAPlainName) {
  for (const char* schema : {"", "Plumbline", "a b", "x\"; DROP TABLE y"}) {
    engine_.options.schema = schema;
    EXPECT_EQ(engine_.open().status().code(), absl::StatusCode::kInvalidArgument) << schema;
  }
}

TEST_F(Postgres, WhereNobodyListensIsSaid) {
  engine_.options.url = "postgresql://plumbline@/history?host=/nowhere/at/all";
  const absl::Status refused = engine_.open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "PostgreSQL at /nowhere/at/all/history")) << refused;
}

TEST_F(Postgres, WhoMayNotWriteIsTold) {
  open();
  ASSERT_TRUE(beside_->run("CREATE ROLE stranger LOGIN").ok());
  engine_.options.url = absl::StrCat(PostgresServer::shared().url(), "&user=stranger");
  EXPECT_EQ(engine_.open().status().code(), absl::StatusCode::kPermissionDenied) << engine_.open().status();
}

TEST_F(Postgres, ARoleWithASchemaOfItsOwnNeedsNothingElse) {
  const auto owner = PostgresServer::shared().connect("public");
  ASSERT_TRUE(owner
                  ->run(absl::StrCat("CREATE ROLE keeper LOGIN; REVOKE CREATE ON DATABASE postgres FROM PUBLIC;",
                                     "CREATE SCHEMA ", engine_.options.schema, " AUTHORIZATION keeper"))
                  .ok());
  engine_.options.url = absl::StrCat(PostgresServer::shared().url(), "&user=keeper");
  open();
  EXPECT_TRUE(append(*store_, to_proto(sample_verdict("a", 1))).ok());
  EXPECT_TRUE(store_->get("default/a/run-1/0/1").ok());
}

TEST_F(Postgres, AnotherApplicationsTablesAreRefusedAndUntouched) {
  const char* const others[] = {"CREATE TABLE verdicts(guilty BOOLEAN)",
                                "CREATE TABLE history(product TEXT, version INTEGER, last_sequence BIGINT);"
                                "INSERT INTO history VALUES('another', 1, 7)"};
  for (const char* const other : others) {
    engine_.options.schema = PostgresServer::shared().fresh_schema();
    const auto owner = PostgresServer::shared().connect(engine_.options.schema);
    ASSERT_TRUE(owner->run(absl::StrCat("CREATE SCHEMA ", engine_.options.schema)).ok());
    ASSERT_TRUE(owner->run(other).ok());
    const absl::Status refused = engine_.open().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    EXPECT_TRUE(absl::StrContains(refused.message(), engine_.options.schema)) << refused;
    EXPECT_EQ(*owner->integer(absl::StrCat("SELECT count(*) FROM pg_class WHERE relnamespace=to_regnamespace('",
                                           engine_.options.schema, "')")),
              1);
  }
}

TEST_F(Postgres, ANewerVersionIsRefusedAndUntouched) {
  open();
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 1))).ok());
  ASSERT_TRUE(beside_->run("UPDATE history SET version=1000").ok());
  EXPECT_EQ(append(*store_, to_proto(sample_verdict("a", 2))).code(), absl::StatusCode::kFailedPrecondition)
      << "a daemon that runs while a newer one upgrades writes no more";
  EXPECT_EQ(*beside_->integer("SELECT count(*) FROM verdicts"), 1);
  store_.reset();
  const absl::Status refused = engine_.open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "format version 1000, written by a newer plumblined")) << refused;
  EXPECT_EQ(*beside_->integer("SELECT CAST(version AS BIGINT) FROM history"), 1000);
}

// What an older daemon finds where a newer one only added something: it neither changes that nor misses it.
TEST_F(Postgres, TablesThatOnlyHaveMoreAreWrittenAsBefore) {
  open();
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 1))).ok());
  ASSERT_TRUE(beside_->run("UPDATE history SET reached=1000; CREATE TABLE what_comes_next(value TEXT)").ok());
  EXPECT_TRUE(append(*store_, to_proto(sample_verdict("a", 2))).ok()) << "while it runs";
  store_.reset();
  open();
  EXPECT_TRUE(append(*store_, to_proto(sample_verdict("a", 3))).ok()) << "and from its start on";
  EXPECT_EQ(listed_steps(*store_, {}), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(*beside_->integer("SELECT CAST(reached AS BIGINT) FROM history"), 1000);
}

// Daemons of version 4 look for that number alone, and write beside newer ones.
TEST_F(Postgres, VersionFiveLeavesTheNumberThatDaemonsOfVersionFourLookFor) {
  open();
  EXPECT_EQ(*beside_->integer("SELECT CAST(version AS BIGINT) FROM history"), 4);
  EXPECT_EQ(*beside_->integer("SELECT CAST(reached AS BIGINT) FROM history"), kPostgresVersion);
}

// Version 1 had a step's trace id within its message alone.
TEST_F(Postgres, AnOlderVersionIsBroughtToOurs) {
  open();
  const std::string traces[] = {std::string(32, 'a'), ""};
  for (std::int64_t step = 0; step < 2; ++step) {
    v1::Verdict verdict = to_proto(sample_verdict("a", step * kDaySteps));
    verdict.set_trace_id(traces[step]);
    ASSERT_TRUE(append(*store_, verdict).ok());
  }
  ASSERT_TRUE(append_error(*store_, {"default", "a", "run-1", 0, 5}, absl::InternalError("e")).ok());
  store_.reset();
  ASSERT_TRUE(beside_->run(kBackToVersion4).ok());
  ASSERT_TRUE(beside_
                  ->run("ALTER TABLE verdicts DROP COLUMN trace_id; ALTER TABLE errors DROP COLUMN trace_id;"
                        "ALTER TABLE verdicts DROP COLUMN node; ALTER TABLE errors DROP COLUMN node;"
                        "ALTER TABLE runs DROP COLUMN node;"
                        "ALTER TABLE history DROP COLUMN id; DROP TABLE nodes;"
                        "UPDATE history SET version=1")
                  .ok());
  open();
  EXPECT_EQ(*beside_->integer("SELECT CAST(reached AS BIGINT) FROM history"), kPostgresVersion);
  v1::Filter filter;
  filter.set_trace_id(traces[0]);
  EXPECT_EQ(listed_steps(*store_, filter), std::vector<std::int64_t>{0});
  EXPECT_EQ(*beside_->integer("SELECT count(*) FROM verdicts WHERE trace_id IS NULL"), 1);
  const auto errors = store_->errors("default", "a", {}, 10, {}, {});
  ASSERT_TRUE(errors.ok()) << errors.status();
  EXPECT_EQ(errors->size(), 1u);
  v1::Verdict next = to_proto(sample_verdict("a", 2 * kDaySteps));
  next.set_trace_id(traces[0]);
  ASSERT_TRUE(append(*store_, next).ok()) << "a day whose table is made after the upgrade";
  EXPECT_EQ(listed_steps(*store_, filter), (std::vector<std::int64_t>{0, 2 * kDaySteps}));
}

TEST_F(Postgres, AQueryThatRunsIsGivenUp) {
  const auto connection = PostgresServer::shared().connect("public");
  int asked = 0;
  const Stop stop = [&] { return ++asked > 3; };
  {
    const SqlStop stopped(*connection, stop);
    EXPECT_TRUE(absl::IsCancelled(connection->run("SELECT pg_sleep(600)")));
  }
  EXPECT_EQ(*connection->integer("SELECT 7"), 7) << "the connection comes back";
}

TEST_F(Postgres, AStatementThatTakesTooLongEnds) {
  const PostgresConnection connection(
      {.url = PostgresServer::shared().url(), .schema = "public", .statement_timeout = absl::Milliseconds(50)});
  EXPECT_TRUE(absl::IsUnavailable(connection.run("SELECT pg_sleep(600)")));
  EXPECT_EQ(*connection.integer("SELECT 7"), 7);
}

TEST_F(Postgres, AServerThatNeverAnswersIsUnavailableUntilItDoes) {
  engine_.options.connect_timeout = engine_.options.statement_timeout = absl::Seconds(2);
  open();
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 1))).ok());
  ASSERT_TRUE(store_->get("default/a/run-1/0/1").ok());
  PostgresServer::shared().freeze();
  EXPECT_TRUE(absl::IsUnavailable(append(*store_, to_proto(sample_verdict("a", 2)))));
  EXPECT_FALSE(store_->takes_records());
  EXPECT_TRUE(absl::IsUnavailable(store_->get("default/a/run-1/0/1").status()));
  EXPECT_TRUE(absl::IsUnavailable(store_->stats({}).status()));
  PostgresEngine another;
  another.options.connect_timeout = absl::Seconds(2);
  EXPECT_TRUE(absl::IsUnavailable(another.open().status())) << "it accepts, and never answers";
  PostgresServer::shared().thaw();
  EXPECT_TRUE(append(*store_, to_proto(sample_verdict("a", 2))).ok());
  EXPECT_TRUE(store_->takes_records());
  EXPECT_TRUE(store_->get("default/a/run-1/0/1").ok());
  EXPECT_EQ(store_->stats({})->verdicts(), 2u);
}

TEST_F(Postgres, WhatWasAcknowledgedSurvivesACrashAndTheStoreGoesOn) {
  std::mutex mutex;
  std::set<std::string> acknowledged;
  std::vector<std::string> lines;
  engine_.options.trouble = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  open();
  beside_.reset();
  constexpr std::size_t kBefore = 300;
  std::atomic<bool> crashed = false, refused = false;
  std::thread writer([&] {
    for (std::int64_t step = 0; !crashed || !refused; ++step) {
      const v1::Verdict verdict = to_proto(sample_verdict("a", step));
      const absl::Status status = append(*store_, verdict);
      const std::lock_guard lock(mutex);
      if (status.ok()) {
        acknowledged.insert(verdict.id());
      } else {
        EXPECT_TRUE(absl::IsUnavailable(status)) << status;
        refused = true;
      }
    }
  });
  const auto done = [&] {
    const std::lock_guard lock(mutex);
    return acknowledged.size() >= kBefore;
  };
  while (!done()) std::this_thread::yield();
  PostgresServer::shared().crash();
  crashed = true;
  writer.join();
  PostgresServer::shared().start();
  EXPECT_TRUE(append(*store_, to_proto(sample_verdict("afterwards", 1))).ok());
  for (const std::string& id : acknowledged) EXPECT_TRUE(store_->get(id).ok()) << id;
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(absl::StrContains(lines[0], "are told to send their steps again")) << lines[0];
  EXPECT_TRUE(absl::StrContains(lines[1], "takes records again")) << lines[1];
}

TEST_F(Postgres, AQueryOfADayReadsThatDayAlone) {
  open();
  for (std::int64_t day = 0; day < 3; ++day) {
    ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", day * kDaySteps))).ok());
  }
  EXPECT_EQ(days(), "verdicts_20231114 verdicts_20231115 verdicts_20231116");
  const std::string of_a_day = "time_us>=1700006400000000 AND time_us<1700092800000000";
  auto plan = beside_->prepare(absl::StrCat("EXPLAIN SELECT * FROM verdicts WHERE ", of_a_day));
  std::string text;
  while (*plan->step()) text += plan->text(0) + "\n";
  EXPECT_TRUE(absl::StrContains(text, "verdicts_20231115")) << text;
  EXPECT_FALSE(absl::StrContains(text, "verdicts_20231114") || absl::StrContains(text, "verdicts_20231116")) << text;
  plan->reset();
  EXPECT_EQ(*beside_->integer("SELECT count(*) FROM pg_indexes WHERE tablename='verdicts_20231115' AND "
                              "schemaname=current_schema() AND indexdef LIKE '%USING brin (time_us)%'"),
            1);
}

// Making a day's table waits for no reader, and keeps none waiting.
TEST_F(Postgres, TheFirstVerdictOfADayWaitsForNobody) {
  engine_.options.statement_timeout = absl::Seconds(5);
  open();
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 0))).ok());
  ASSERT_TRUE(beside_->begin_read().ok());
  ASSERT_EQ(*beside_->integer("SELECT count(*) FROM verdicts"), 1);
  EXPECT_TRUE(append(*store_, to_proto(sample_verdict("a", kDaySteps))).ok()) << "a reader's transaction is open";
  EXPECT_EQ(*beside_->integer("SELECT count(*) FROM verdicts"), 1) << "it sees what it saw";
  ASSERT_TRUE(beside_->commit().ok());
  ASSERT_TRUE(beside_->begin_write().ok());
  ASSERT_TRUE(beside_->make_room(1'700'000'000'000'000 + 2 * kDaySteps * 1'000'000).ok());
  EXPECT_EQ(store_->list({}, 0, 10, false)->size(), 2u) << "a writer has made a day, and not committed";
  EXPECT_EQ(store_->stats({})->verdicts(), 2u);
  ASSERT_TRUE(beside_->commit().ok());
}

TEST_F(Postgres, EmptyDaysGoAndDaysThatAreReadStay) {
  open();
  for (std::int64_t day = 0; day < 3; ++day) {
    ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", day * kDaySteps))).ok());
  }
  ASSERT_TRUE(beside_->begin_read().ok());
  ASSERT_EQ(*beside_->integer("SELECT count(*) FROM verdicts"), 3);
  ASSERT_TRUE(expire(absl::Hours(30), 2 * kDaySteps).ok());
  EXPECT_EQ(store_->job("default", "a")->steps(), 2u);
  EXPECT_EQ(*beside_->integer("SELECT count(*) FROM verdicts"), 3) << "who reads sees what was there";
  ASSERT_TRUE(beside_->commit().ok());
  EXPECT_EQ(days(), "verdicts_20231114 verdicts_20231115 verdicts_20231116");
  ASSERT_TRUE(expire(absl::Hours(30), 2 * kDaySteps).ok());
  EXPECT_EQ(days(), "verdicts_20231115 verdicts_20231116");
  EXPECT_TRUE(append(*store_, to_proto(sample_verdict("b", 0))).ok()) << "a late verdict makes its day again";
  EXPECT_EQ(days(), "verdicts_20231114 verdicts_20231115 verdicts_20231116");
}

}  // namespace
}  // namespace plumbline
