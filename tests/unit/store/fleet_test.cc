// What daemons that share a history answer: everything, each verdict once, whatever is shipped while one asks; and what
// they have themselves where the history is away, saying so.
#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/store/fleet_feed.h"
#include "server/store/fleet_reader.h"
#include "tests/unit/store/node.h"

namespace plumbline {
namespace {

class Fleet : public testing::Test {
 protected:
  void SetUp() override {
    for (Node* const node : {&here_, &there_}) {
      node->statement_timeout = absl::Seconds(30);
      node->open();
      ASSERT_TRUE(node->answers()) << node->why();
    }
  }

  static FleetReader reader(Node& node) { return {node.store.get(), node.history->reader()}; }

  static void add(Node& node, const std::string& job, std::int64_t from, std::int64_t to, double surprise = 0.25) {
    for (std::int64_t step = from; step < to; ++step) {
      const auto outcome = step % 3 == 1 ? Outcome::kTypeII : Outcome::kTypeI;
      const double margin = 0.01 * static_cast<double>(step);
      ASSERT_TRUE(append(*node.store, to_proto(sample_verdict(job, step, outcome, margin, surprise))).ok());
    }
  }

  static std::string name(const v1::Verdict& verdict) { return absl::StrCat(verdict.job(), "/", verdict.step()); }

  // All pages of a list; `between` runs after the first.
  static std::vector<std::string> pages(
      Node& node, const Order& order, int limit, const std::function<void()>& between = [] {}) {
    std::vector<std::string> found;
    std::optional<ListPlace> after;
    for (;;) {
      const FleetReader reader = Fleet::reader(node);
      const auto page = reader.list({}, order, after ? &*after : nullptr, limit, false, {}, {});
      EXPECT_TRUE(page.ok()) << page.status();
      EXPECT_EQ(reader.history().scope(), v1::History::SCOPE_FLEET) << reader.history().reason();
      if (!page.ok() || page->empty()) return found;
      for (const StoredVerdict& stored : *page) found.push_back(name(stored.verdict));
      if (!after) between();
      after = page->back();
    }
  }

  // While it is held nothing is shipped, and the history is there.
  std::unique_ptr<PostgresConnection> hold_shipments() {
    auto connection = PostgresServer::shared().connect(schema_);
    EXPECT_TRUE(connection->begin_write().ok());
    return connection;
  }

  PostgresServer& server_ = PostgresServer::shared();
  const std::string schema_ = server_.fresh_schema();
  Node here_{schema_}, there_{schema_};
};

TEST_F(Fleet, EachVerdictIsListedOnceInEveryOrderWhileItIsShipped) {
  add(there_, "there", 0, 7);
  add(here_, "here", 0, 7);
  ASSERT_TRUE(here_.shipped() && there_.shipped());
  std::int64_t step = 7;
  for (const auto key : {Order::Key::kSequence, Order::Key::kTime, Order::Key::kStep, Order::Key::kSurprise}) {
    for (const bool descending : {false, true}) {
      for (const int limit : {1, 3, 5, 100}) {
        auto held = hold_shipments();
        add(here_, "here", step, step + 3);  // With the times and the surprise of others.
        step += 3;
        const Order order{key, descending};
        auto found = pages(here_, order, limit, [&] {
          EXPECT_TRUE(held->roll_back().ok());
          EXPECT_TRUE(here_.shipped());
        });
        const auto after = pages(here_, order, 100);
        EXPECT_EQ(found.size(), static_cast<std::size_t>(7 + step));
        EXPECT_EQ(std::set<std::string>(found.begin(), found.end()).size(), found.size());
        if (key == Order::Key::kTime || key == Order::Key::kStep) {
          const auto step_of = [](const std::string& name) { return std::stoll(name.substr(name.find('/') + 1)); };
          const auto before = [&](const std::string& a, const std::string& b) {
            return descending ? step_of(a) > step_of(b) : step_of(a) < step_of(b);
          };
          EXPECT_TRUE(std::is_sorted(found.begin(), found.end(), before));
        }
        std::sort(found.begin(), found.end());
        auto sorted = after;
        std::sort(sorted.begin(), sorted.end());
        EXPECT_EQ(found, sorted);
      }
    }
  }
}

TEST_F(Fleet, WhatIsNotShippedYetCounts) {
  add(there_, "both", 0, 5, 0.5);
  ASSERT_TRUE(there_.shipped());
  add(here_, "both", 10, 15, 0.1);
  ASSERT_TRUE(here_.shipped());
  const auto held = hold_shipments();
  add(here_, "both", 20, 24, 2.5);
  add(here_, "alone", 0, 2, 7);
  const auto ask = [&] {
    std::vector<std::string> answers;
    const FleetReader fleet = reader(here_);
    for (const char* job : {"", "both", "alone"}) {
      v1::Filter filter;
      filter.set_project("default");
      filter.set_job(job);
      auto stats = fleet.stats(filter);
      EXPECT_TRUE(stats.ok()) << stats.status();
      stats->clear_coverage();
      answers.push_back(stats->DebugString());
    }
    const auto jobs = fleet.jobs("", "", "", 10);
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    for (v1::JobSummary job : *jobs) {
      EXPECT_EQ(fleet.job("default", job.job())->steps(), job.steps());
      job.clear_coverage();
      answers.push_back(job.DebugString());
    }
    EXPECT_EQ(fleet.history().scope(), v1::History::SCOPE_FLEET);
    return answers;
  };
  const auto before = ask();
  EXPECT_EQ(reader(here_).job("default", "both")->steps(), 14u);
  EXPECT_EQ(reader(there_).job("default", "both")->steps(), 10u) << "what nobody has shipped nobody else can tell";
  ASSERT_TRUE(held->roll_back().ok());
  ASSERT_TRUE(here_.shipped());
  EXPECT_EQ(before, ask());
  EXPECT_EQ(reader(there_).job("default", "both")->steps(), 14u);
}

TEST_F(Fleet, WhoJudgedIsNamed) {
  add(there_, "there", 0, 1);
  ASSERT_TRUE(append_error(*there_.store, {"default", "there", "run-1", 0, 9}, absl::InternalError("no")).ok());
  add(here_, "here", 0, 1);
  ASSERT_TRUE(here_.shipped() && there_.shipped());
  const FleetReader fleet = reader(here_);
  const std::string there = there_.history->reader()->name();
  EXPECT_NE(there, here_.history->reader()->name());
  EXPECT_EQ(fleet.find("default/there/run-1/0/0", {}, {})->node(), there);
  EXPECT_EQ(fleet.find("default/here/run-1/0/0", {}, {})->node(), here_.history->reader()->name());
  EXPECT_EQ(fleet.errors("default", "there", {}, 10, {}, {})->at(0).node(), there);
  EXPECT_EQ(fleet.runs("default", "there", "", -1, 10, {}, {})->at(0).node(), there);
  EXPECT_EQ(fleet.history().node(), here_.history->reader()->name());
  EXPECT_TRUE(absl::IsNotFound(fleet.find("default/there/run-1/0/1", {}, {}).status()));
}

TEST_F(Fleet, AnOwnersNameIsAnotherPersonsOnAnotherNode) {
  const auto open = [](Node& node, const std::string& job, const std::string& owner) {
    std::promise<absl::Status> answer;
    node.store->open_run({"default", job, "run-1", 0, 0}, owner, "1.0",
                         [&](const absl::Status& status) { answer.set_value(own(status)); });
    ASSERT_TRUE(answer.get_future().get().ok());
  };
  for (const char* owner : {"uid:7", "uid:8"}) {
    open(there_, absl::StrCat("there-", owner), owner);
    add(there_, absl::StrCat("there-", owner), 0, 2);
    open(here_, absl::StrCat("here-", owner), owner);
    add(here_, absl::StrCat("here-", owner), 0, 2);
  }
  ASSERT_TRUE(here_.shipped() && there_.shipped());
  Visibility seven;
  seven.all = false;
  seven.owner = "uid:7";
  const auto seen = [&] {
    std::set<std::string> jobs;
    const FleetReader fleet = reader(here_);
    const auto listed_jobs = fleet.jobs("", "", "", 10, seven, {});
    EXPECT_TRUE(listed_jobs.ok()) << listed_jobs.status();
    for (const v1::JobSummary& job : *listed_jobs) {
      jobs.insert(job.job());
      EXPECT_EQ(job.steps(), 2u);
    }
    const auto listed = fleet.list({}, {}, nullptr, 100, false, seven, {});
    EXPECT_EQ(listed->size(), 2 * jobs.size());
    EXPECT_EQ(fleet.stats({}, seven, {})->verdicts(), 2 * jobs.size());
    for (const char* job : {"there-uid:7", "there-uid:8", "here-uid:7", "here-uid:8"}) {
      const std::string id = absl::StrCat("default/", job, "/run-1/0/1");
      EXPECT_EQ(fleet.find(id, seven, {}).ok(), jobs.count(job) > 0) << job;
      EXPECT_EQ(fleet.job("default", job, seven, {}).ok(), jobs.count(job) > 0) << job;
    }
    return jobs;
  };
  EXPECT_EQ(seen(), (std::set<std::string>{"here-uid:7"}));
  here_.history.reset();
  here_.same_users = true;
  here_.share();
  ASSERT_TRUE(here_.answers());
  EXPECT_EQ(seen(), (std::set<std::string>{"here-uid:7", "there-uid:7"}));
  seven.projects = {"default"};
  here_.history.reset();
  here_.same_users = false;
  here_.share();
  ASSERT_TRUE(here_.answers());
  EXPECT_EQ(seen().size(), 4u) << "a project's name is the same everywhere";
}

TEST_F(Fleet, WithTheHistoryAwayTheOwnOneAnswersAndSaysSo) {
  add(there_, "there", 0, 4);
  add(here_, "here", 0, 4);
  ASSERT_TRUE(here_.shipped() && there_.shipped());
  const FleetReader first = reader(here_);
  const auto page = first.list({}, {}, nullptr, 2, false, {}, {});
  ASSERT_EQ(page->size(), 2u);

  server_.freeze();
  {
    const auto begun = FleetReader::Clock::now();
    const FleetReader fleet(here_.store.get(), here_.history->reader(), begun + std::chrono::milliseconds(200));
    EXPECT_EQ(fleet.jobs("", "", "", 10)->size(), 1u);
    EXPECT_LT(FleetReader::Clock::now() - begun, std::chrono::seconds(5));
    EXPECT_EQ(fleet.history().scope(), v1::History::SCOPE_OWN);
    EXPECT_TRUE(absl::StrContains(fleet.history().reason(), "does not answer")) << fleet.history().reason();
  }
  {
    // Nobody waits for it a second time.
    const FleetReader fleet = reader(here_);
    EXPECT_EQ(fleet.list({}, {}, nullptr, 10, false, {}, {})->size(), 4u);
    EXPECT_EQ(fleet.history().scope(), v1::History::SCOPE_OWN);
    EXPECT_EQ(fleet.stats({})->verdicts(), 4u);
    const absl::Status gone = fleet.find("default/there/run-1/0/0", {}, {}).status();
    EXPECT_TRUE(absl::IsNotFound(gone) && absl::StrContains(gone.message(), "is away")) << gone;
    const ListPlace last = page->back();
    EXPECT_TRUE(absl::IsUnavailable(fleet.list({}, {}, &last, 2, false, {}, {}).status()))
        << "a list does not change histories halfway";
  }
  server_.thaw();
  add(here_, "here", 4, 5);
  ASSERT_TRUE(here_.shipped() && here_.answers());
  EXPECT_EQ(pages(here_, {}, 3).size(), 9u);
  const ListPlace last = page->back();
  EXPECT_EQ(reader(here_).list({}, {}, &last, 10, false, {}, {})->size(), 7u);
}

TEST_F(Fleet, AListOfAHistoryThatWasMadeAnewBeginsAgain) {
  add(here_, "here", 0, 4);
  ASSERT_TRUE(here_.shipped());
  const auto page = reader(here_).list({}, {}, nullptr, 2, false, {}, {});
  ListPlace last = page->back();
  last.cut.replace(0, 8, "00000000");
  EXPECT_TRUE(absl::IsAborted(reader(here_).list({}, {}, &last, 2, false, {}, {}).status()));
  last.cut = "nothing";
  EXPECT_TRUE(absl::IsInvalidArgument(reader(here_).list({}, {}, &last, 2, false, {}, {}).status()));
}

// As a WatchVerdicts call does it; a restless one begins another call before each page, as if its connection were cut.
class FeedWatcher {
 public:
  FeedWatcher(Node& node, bool past, bool restless = false)
      : node_(node), restless_(restless), feed_(node.store.get(), node.history->reader()) {
    handles_ = feed_.subscribe([this] {
      const std::lock_guard lock(mutex_);
      stale_ = true;
      wake_.notify_all();
    });
    EXPECT_TRUE(feed_.begin(past).ok());
    thread_ = std::thread([this] { run(); });
  }
  ~FeedWatcher() {
    {
      const std::lock_guard lock(mutex_);
      end_ = true;
      wake_.notify_all();
    }
    thread_.join();
    feed_.unsubscribe(handles_);
  }

  bool sees(std::size_t count) {
    std::unique_lock lock(mutex_);
    return grown_.wait_for(lock, Node::kPatience, [&] { return seen_.size() >= count; });
  }
  // Names of verdicts in the order in which they came.
  std::vector<std::string> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  void run() {
    std::string token = feed_.token({});
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stale_ || end_; });
      if (end_) return;
      stale_ = false;
      lock.unlock();
      std::optional<FleetFeed> another;
      if (restless_) {
        another.emplace(node_.store.get(), node_.history->reader());
        EXPECT_TRUE(another->resume({}, token).ok());
      }
      FleetFeed& feed = another ? *another : feed_;
      const auto page = feed.next({}, {}, 16);
      EXPECT_TRUE(page.ok()) << page.status();
      lock.lock();
      if (!page.ok()) return;
      stale_ = stale_ || page->more;
      token = page->verdicts.empty() ? feed.token({}) : page->verdicts.back().resume_token();
      for (const v1::Verdict& verdict : page->verdicts) {
        seen_.push_back(absl::StrCat(verdict.job(), "/", verdict.step()));
      }
      grown_.notify_all();
    }
  }

  Node& node_;
  const bool restless_;
  FleetFeed feed_;
  std::pair<std::uint64_t, std::uint64_t> handles_;
  std::mutex mutex_;
  std::condition_variable wake_, grown_;
  bool stale_ = true, end_ = false;
  std::vector<std::string> seen_;
  std::thread thread_;
};

TEST_F(Fleet, WatchersMissNothingAndSeeNothingTwiceThroughCrashes) {
  constexpr std::int64_t kSteps = 120;
  add(here_, "before", 0, 5);
  add(there_, "before", 5, 10);
  ASSERT_TRUE(here_.shipped() && there_.shipped());
  {
    FeedWatcher here(here_, false), there(there_, false), past(here_, true);
    FeedWatcher restless(here_, false, true), restless_past(there_, true, true);
    const std::vector<FeedWatcher*> all = {&here, &there, &past, &restless, &restless_past};
    std::vector<std::thread> writers;
    for (int writer = 0; writer < 4; ++writer) {
      writers.emplace_back(
          [&, writer] { add(writer % 2 == 0 ? here_ : there_, absl::StrCat("job", writer), 0, kSteps); });
    }
    for (int crash = 0; crash < 3; ++crash) {
      ASSERT_TRUE(here.sees(static_cast<std::size_t>(20 * (crash + 1))));
      server_.crash();
      ASSERT_TRUE(here_.lost(ShipTrouble::kUnreachable));
      server_.start();
    }
    for (std::thread& writer : writers) writer.join();
    for (FeedWatcher* const watcher : all) {
      const std::size_t count = 4 * kSteps + (watcher == &past || watcher == &restless_past ? 10 : 0);
      ASSERT_TRUE(watcher->sees(count)) << watcher->seen().size();
      const auto seen = watcher->seen();
      EXPECT_EQ(seen.size(), count);
      std::map<std::string, std::int64_t> next;
      for (const std::string& name : seen) {
        const std::string job = name.substr(0, name.find('/'));
        if (job == "before") continue;
        EXPECT_EQ(name, absl::StrCat(job, "/", next[job]++)) << "each job in its order, and each step once";
      }
    }
  }
  ASSERT_TRUE(here_.shipped() && there_.shipped());
  EXPECT_EQ(pages(there_, {}, 50).size(), static_cast<std::size_t>(4 * kSteps + 10));
}

TEST_F(Fleet, AStepThatTwoDaemonsJudgedIsToldOnce) {
  FeedWatcher watcher(here_, false);
  add(here_, "a", 0, 3);
  ASSERT_TRUE(here_.shipped());
  add(there_, "a", 0, 3);  // With the same digests.
  add(there_, "b", 0, 1);
  ASSERT_TRUE(watcher.sees(4));
  EXPECT_EQ(watcher.seen(), (std::vector<std::string>{"a/0", "a/1", "a/2", "b/0"}));
  ASSERT_TRUE(there_.shipped());
  EXPECT_EQ(pages(here_, {}, 10).size(), 4u);
  EXPECT_EQ(pages(there_, {}, 10).size(), 4u);
}

}  // namespace
}  // namespace plumbline
