// A store with a few verdicts, in a folder of its own.
#pragma once

#include <sqlite3.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>

#include "server/store/store.h"
#include "tests/fuzz/target.h"
#include "tests/unit/store/sample.h"

namespace plumbline::fuzz {

class Database {
 public:
  static constexpr int kVerdicts = 4;

  Database() : folder_((std::filesystem::temp_directory_path() / "store.XXXXXX").string()) {
    require(mkdtemp(folder_.data()) != nullptr, "a folder can be made");
    auto opened = open_sqlite_store(folder_);
    require(opened.ok(), "a store can be opened");
    store_ = *std::move(opened);
    require(open_run(*store_, {"default", "job", "run-1", 0, 0}).ok(), "a run can be opened");
    for (int step = 0; step < kVerdicts; ++step) {
      require(append(*store_, to_proto(sample_verdict("job", step))).ok(), "a verdict can be stored");
    }
  }
  ~Database() {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  VerdictStore& store() const { return *store_; }
  std::string file() const { return folder_ + "/verdicts.db"; }

 private:
  std::string folder_;
  std::unique_ptr<VerdictStore> store_;
};

}  // namespace plumbline::fuzz
