// A store in a temporary directory.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/store/sample.h"

namespace plumbline {

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    std::string pattern = testing::TempDir() + "plumbline-store-XXXXXX";
    dir_ = mkdtemp(pattern.data());
    reopen();
  }
  ~StoreTest() override {
    store_.reset();
    std::filesystem::remove_all(dir_);
  }

  void reopen() {
    store_.reset();
    auto opened = open_sqlite_store(dir_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = std::move(*opened);
  }

  std::vector<std::int64_t> steps(const v1::Filter& filter) {
    std::vector<std::int64_t> found;
    const auto listed = store_->list(filter, 0, 1000, false);
    EXPECT_TRUE(listed.ok()) << listed.status();
    for (const StoredVerdict& stored : *listed) found.push_back(stored.verdict.step());
    return found;
  }

  void execute(const std::string& sql) {
    sqlite3* connection = nullptr;
    ASSERT_EQ(sqlite3_open((dir_ + "/verdicts.db").c_str(), &connection), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(connection, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(connection);
    sqlite3_close(connection);
  }

  std::string dir_;
  std::unique_ptr<VerdictStore> store_;
};

}  // namespace plumbline
