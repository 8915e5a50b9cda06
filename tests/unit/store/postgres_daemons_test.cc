// Several daemons with one history: one verdict for a step, and watchers that miss none and see none twice.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/unit/store/postgres_server.h"

namespace plumbline {
namespace {

constexpr std::chrono::seconds kPatience{60};

// As a WatchVerdicts call does it: each commit, whose ever, wakes it, and it reads from the last sequence that it has.
class Watcher {
 public:
  explicit Watcher(VerdictStore* store) : store_(store) {
    handle_ = store->subscribe([this] { pull(); });
    const auto last = store->last_sequence();
    EXPECT_TRUE(last.ok());
    const std::lock_guard lock(mutex_);
    first_ = after_ = *last;
    started_ = true;
  }
  ~Watcher() { store_->unsubscribe(handle_); }

  // Waits until everything up to that sequence was seen.
  bool sees(std::int64_t sequence) {
    pull();
    std::unique_lock lock(mutex_);
    return grown_.wait_for(lock, kPatience, [&] { return after_ >= sequence; });
  }
  std::int64_t first() const { return first_; }
  const std::vector<StoredVerdict>& seen() const { return seen_; }

 private:
  void pull() {
    const std::lock_guard lock(mutex_);
    if (!started_) return;
    for (;;) {
      auto page = store_->list({}, after_, 64, false);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok() || page->empty()) break;
      for (StoredVerdict& stored : *page) {
        EXPECT_GT(stored.sequence, after_);
        after_ = stored.sequence;
        seen_.push_back(std::move(stored));
      }
    }
    grown_.notify_all();
  }

  VerdictStore* const store_;
  std::uint64_t handle_ = 0;
  std::mutex mutex_;
  std::condition_variable grown_;
  std::int64_t first_ = 0, after_ = 0;
  bool started_ = false;
  std::vector<StoredVerdict> seen_;
};

class PostgresDaemons : public testing::Test {
 protected:
  static constexpr int kDaemons = 3;

  void SetUp() override {
    // They start at one time, and one of them makes the tables.
    std::vector<std::thread> starts;
    stores_.resize(kDaemons);
    for (auto& store : stores_) {
      starts.emplace_back([&] {
        auto opened = open_postgres_store(engine_.options);
        EXPECT_TRUE(opened.ok()) << opened.status();
        if (opened.ok()) store = *std::move(opened);
      });
    }
    for (std::thread& start : starts) start.join();
    for (const auto& store : stores_) ASSERT_NE(store, nullptr);
  }

  PostgresEngine engine_;
  std::vector<std::unique_ptr<VerdictStore>> stores_;
};

TEST_F(PostgresDaemons, WatchersMissNoVerdictAndSeeNoneTwice) {
  constexpr int kWriters = 2, kSteps = 150;
  std::vector<std::unique_ptr<Watcher>> watchers;
  for (const auto& store : stores_) watchers.push_back(std::make_unique<Watcher>(store.get()));
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kDaemons * kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      VerdictStore& store = *stores_[static_cast<std::size_t>(writer % kDaemons)];
      const std::string job = absl::StrCat("job", writer);
      for (std::int64_t step = 0; step < kSteps; ++step) {
        EXPECT_TRUE(append(store, to_proto(sample_verdict(job, step))).ok());
      }
    });
  }
  // Some that come while others write: what was there before them is of the past, what comes after is all theirs.
  for (int late = 0; late < 12; ++late) {
    watchers.push_back(std::make_unique<Watcher>(stores_[static_cast<std::size_t>(late % kDaemons)].get()));
  }
  for (std::thread& writer : writers) writer.join();

  const std::int64_t last = *stores_[0]->last_sequence();
  const auto page = stores_[0]->list({}, 0, 2000, false);
  ASSERT_EQ(page->size(), static_cast<std::size_t>(kDaemons * kWriters * kSteps));
  for (const auto& watcher : watchers) {
    ASSERT_TRUE(watcher->sees(last));
    std::set<std::string> expected, seen;
    for (const StoredVerdict& stored : *page) {
      if (stored.sequence > watcher->first()) expected.insert(stored.verdict.id());
    }
    for (const StoredVerdict& stored : watcher->seen()) {
      EXPECT_TRUE(seen.insert(stored.verdict.id()).second) << "twice: " << stored.verdict.id();
    }
    EXPECT_EQ(seen, expected);
  }
}

TEST_F(PostgresDaemons, AWatcherIsWokenByAnotherDaemon) {
  Watcher watcher(stores_[0].get());
  for (std::int64_t step = 0; step < 5; ++step) {
    ASSERT_TRUE(append(*stores_[1], to_proto(sample_verdict("a", step))).ok());
    ASSERT_TRUE(watcher.sees(step + 1));
  }
}

// Who has a sequence number first commits first: who comes next waits, and nobody can see a later one before.
TEST_F(PostgresDaemons, CommitsComeInTheOrderOfSequences) {
  const auto first = PostgresServer::shared().connect(engine_.options.schema);
  ASSERT_TRUE(first->begin_write().ok());
  ASSERT_EQ(*first->integer("SELECT nextval('verdict_sequence')"), 1);
  auto answer = std::async(std::launch::async, [&] { return append(*stores_[0], to_proto(sample_verdict("a", 1))); });
  const auto beside = PostgresServer::shared().connect(engine_.options.schema);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (*beside->integer("SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND NOT granted") == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "the second writer does not wait for the first";
  }
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(*stores_[1]->last_sequence(), 0) << "what is not committed is not told";
  ASSERT_TRUE(first->commit().ok());
  EXPECT_TRUE(answer.get().ok());
  EXPECT_EQ(*stores_[1]->last_sequence(), 2);
  EXPECT_EQ(stores_[1]->list({}, 0, 10, false)->at(0).sequence, 2);
}

TEST_F(PostgresDaemons, AStepHasOneVerdictWhoeverJudgesIt) {
  constexpr std::int64_t kSteps = 40;
  std::atomic<int> taken = 0, refused = 0;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kDaemons; ++writer) {
    writers.emplace_back([&, writer] {
      for (std::int64_t step = 0; step < kSteps; ++step) {
        Verdict verdict = sample_verdict("a", step);
        verdict.digest = std::string(32, static_cast<char>('a' + writer));
        const absl::Status status = append(*stores_[static_cast<std::size_t>(writer)], to_proto(verdict));
        taken += status.ok();
        refused += absl::IsAlreadyExists(status);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(taken, kSteps);
  EXPECT_EQ(refused, (kDaemons - 1) * kSteps);
  const auto job = stores_[0]->job("default", "a");
  EXPECT_EQ(job->steps(), static_cast<std::uint64_t>(kSteps));
  EXPECT_EQ(job->errors(), static_cast<std::uint64_t>((kDaemons - 1) * kSteps)) << "each attempt is counted";
}

}  // namespace
}  // namespace plumbline
