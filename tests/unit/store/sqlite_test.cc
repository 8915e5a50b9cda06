// SQLite passes the suite; and what is its own: the directory, the lock and the file.
#include <filesystem>
#include <fstream>

#include "tests/unit/store/sqlite_fixture.h"

namespace plumbline {
namespace {

std::unique_ptr<StoreEngine> make_sqlite() { return std::make_unique<SqliteEngine>(); }

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreConformance, testing::Values(&make_sqlite));
INSTANTIATE_TEST_SUITE_P(Sqlite, StoreRemoval, testing::Values(&make_sqlite));

TEST_F(SqliteTest, TheFileShrinksToItsSize) {
  for (int step = 0; step < 300; ++step) {
    Verdict verdict = sample_verdict("a", step);
    verdict.notes.emplace_back(20000, 'x');
    ASSERT_TRUE(append(*store_, to_proto(verdict)).ok());
  }
  reopen();  // A checkpoint.
  const std::string path = dir_ + "/verdicts.db";
  EXPECT_GT(std::filesystem::file_size(path), 6000000u);
  Retention retention;
  retention.verdicts.bytes = 2000000;
  std::promise<absl::Status> expired;
  store_->expire(retention, 0, {}, [&](const absl::Status& status) { expired.set_value(own(status)); });
  ASSERT_TRUE(expired.get_future().get().ok());
  reopen();
  EXPECT_LT(std::filesystem::file_size(path), 2500000u);
}

TEST_F(SqliteTest, OneDaemonADirectory) {
  const auto second = open_sqlite_store(dir_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(dir_), std::string::npos);
}

TEST_F(SqliteTest, RefusesADirectoryThatCannotBeWritten) {
  std::ofstream(dir_ + "/file") << "text";
  const auto under_file = open_sqlite_store(dir_ + "/file/data");
  EXPECT_EQ(under_file.status().code(), absl::StatusCode::kPermissionDenied) << under_file.status();
  EXPECT_NE(under_file.status().message().find("--data-dir"), std::string::npos);
  const auto kernel = open_sqlite_store("/proc/plumbline");
  EXPECT_EQ(kernel.status().code(), absl::StatusCode::kPermissionDenied) << kernel.status();
}

TEST_F(SqliteTest, RefusesAnotherApplicationsDatabase) {
  store_.reset();
  execute("PRAGMA application_id=7");
  EXPECT_EQ(open_sqlite_store(dir_).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SqliteTest, RefusesWhatIsNoDatabase) {
  store_.reset();
  for (const char* name : {"/verdicts.db", "/verdicts.db-wal", "/verdicts.db-shm"}) {
    std::filesystem::remove(dir_ + name);
  }
  std::ofstream(dir_ + "/verdicts.db") << std::string(8192, 'x');
  const auto opened = open_sqlite_store(dir_);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kDataLoss) << opened.status();
  EXPECT_NE(opened.status().message().find("verdicts.db"), std::string::npos);
}

TEST_F(SqliteTest, RefusesADamagedDatabase) {
  for (std::int64_t step = 0; step < 200; ++step)
    ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", step))).ok());
  store_.reset();
  const std::string path = dir_ + "/verdicts.db";
  const auto size = std::filesystem::file_size(path);
  ASSERT_GT(size, 40000u);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (std::uintmax_t at = 4096 * 3; at + 4096 <= size; at += 8192) {
    file.seekp(static_cast<std::streamoff>(at));
    file << std::string(4096, '\xaa');
  }
  file.close();
  const auto opened = open_sqlite_store(dir_);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kDataLoss) << opened.status();
}

}  // namespace
}  // namespace plumbline
