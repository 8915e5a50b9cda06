// A SQLite store in a temporary directory, and the way around it to its file.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/store/conformance.h"

namespace plumbline {

class SqliteEngine final : public StoreEngine {
 public:
  SqliteEngine() {
    std::string pattern = testing::TempDir() + "plumbline-store-XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~SqliteEngine() override { std::filesystem::remove_all(dir_); }

  absl::StatusOr<std::unique_ptr<VerdictStore>> open() override { return open_sqlite_store(dir_); }
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

class SqliteTest : public testing::Test {
 protected:
  SqliteTest() { reopen(); }

  void reopen() {
    store_.reset();
    auto opened = engine_.open();
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = std::move(*opened);
  }

  void execute(const std::string& sql) {
    sqlite3* connection = nullptr;
    ASSERT_EQ(sqlite3_open((dir_ + "/verdicts.db").c_str(), &connection), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(connection, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(connection);
    sqlite3_close(connection);
  }

  SqliteEngine engine_;
  const std::string dir_ = engine_.dir();
  std::unique_ptr<VerdictStore> store_;
};

}  // namespace plumbline
