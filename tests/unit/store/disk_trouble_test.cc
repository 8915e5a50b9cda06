// A disk that does not take what is written: nothing of it is half there, the log hears of it once, and what is
// appended again afterwards is stored.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <mutex>
#include <vector>

#include "absl/strings/match.h"
#include "tests/unit/store/power_loss_vfs.h"
#include "tests/unit/store/sample.h"

namespace plumbline {
namespace {

class DiskTrouble : public testing::TestWithParam<std::pair<int, absl::StatusCode>> {
 protected:
  DiskTrouble() {
    std::string pattern = testing::TempDir() + "plumbline-disk-XXXXXX";
    dir_ = mkdtemp(pattern.data());
    reset_power_loss_vfs(true);
    auto opened = open_sqlite_store(dir_, {"power_loss", [this](const std::string& line) {
                                             const std::lock_guard lock(mutex_);
                                             lines_.push_back(line);
                                           }});
    EXPECT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  ~DiskTrouble() override {
    reset_power_loss_vfs(true);
    store_.reset();
    std::filesystem::remove_all(dir_);
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

  std::string dir_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::unique_ptr<VerdictStore> store_;
};

TEST_P(DiskTrouble, IsToldAndLeavesNothingHalf) {
  const auto [code, expected] = GetParam();
  ASSERT_TRUE(append(*store_, to_proto(sample_verdict("a", 0))).ok());
  fail_writes(code);
  const StepIdentity refused{"default", "a", "run-1", 0, 2};
  for (int attempt = 0; attempt < 3; ++attempt) {
    const absl::Status failed = append(*store_, to_proto(sample_verdict("a", 1)), {3, {"queue_full"}});
    EXPECT_EQ(failed.code(), expected) << failed;
    EXPECT_EQ(append_error(*store_, refused, absl::InvalidArgumentError("wrong")).code(), expected);
  }
  EXPECT_TRUE(absl::IsNotFound(store_->get("default/a/run-1/0/1").status()));
  EXPECT_EQ(store_->job("default", "a")->missed(), 0u);
  EXPECT_EQ(store_->job("default", "a")->errors(), 0u);
  ASSERT_EQ(lines().size(), 1u) << "six failures within a minute are one line";
  EXPECT_TRUE(absl::StrContains(lines()[0], "are told to send their steps again")) << lines()[0];

  fail_writes(SQLITE_OK);
  EXPECT_TRUE(append(*store_, to_proto(sample_verdict("a", 1)), {3, {"queue_full"}}).ok());
  EXPECT_TRUE(append_error(*store_, refused, absl::InvalidArgumentError("wrong")).ok());
  EXPECT_TRUE(store_->get("default/a/run-1/0/1").ok());
  EXPECT_EQ(store_->job("default", "a")->missed(), 3u);
  EXPECT_EQ(store_->job("default", "a")->errors(), 1u);
  ASSERT_EQ(lines().size(), 2u);
  EXPECT_TRUE(absl::StrContains(lines()[1], "6 were refused meanwhile")) << lines()[1];
}

INSTANTIATE_TEST_SUITE_P(Of, DiskTrouble,
                         testing::Values(std::pair{SQLITE_FULL, absl::StatusCode::kResourceExhausted},
                                         std::pair{SQLITE_IOERR_WRITE, absl::StatusCode::kInternal},
                                         std::pair{SQLITE_READONLY, absl::StatusCode::kPermissionDenied}));

}  // namespace
}  // namespace plumbline
