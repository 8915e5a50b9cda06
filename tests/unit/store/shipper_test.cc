// A daemon's own history comes first and waits for nobody; whatever becomes of the server, the shared one has all of it
// in the end, once, and each job in its order.
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/store/postgres/schema.h"
#include "tests/unit/store/node.h"

namespace plumbline {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr std::int64_t kStartUs = 1'700'000'000'000'000;  // The time of sample_verdict()'s first step.

absl::Status open_as(VerdictStore& store, const StepIdentity& run, const std::string& owner) {
  std::promise<absl::Status> answer;
  store.open_run(run, owner, "1.0", [&](const absl::Status& status) { answer.set_value(own(status)); });
  return answer.get_future().get();
}

absl::Status remove(VerdictStore& store, const std::string& job) {
  std::promise<absl::Status> answer;
  store.remove_job("default", job, {}, [&](const absl::Status& status) { answer.set_value(own(status)); });
  return answer.get_future().get();
}

absl::Status expire_verdicts(VerdictStore& store, std::int64_t keep) {
  Retention retention;
  retention.verdicts.count = keep;
  retention.errors.count = keep;
  retention.runs.count = keep;
  std::promise<absl::Status> answer;
  store.expire(retention, kStartUs, {}, [&](const absl::Status& status) { answer.set_value(own(status)); });
  return answer.get_future().get();
}

class Shipping : public testing::Test {
 protected:
  // The history as whoever asks it sees it.
  VerdictStore& shared() {
    if (shared_ == nullptr) {
      auto opened = engine_.open();
      EXPECT_TRUE(opened.ok()) << opened.status();
      shared_ = *std::move(opened);
    }
    return *shared_;
  }

  // Of the shared history, each job's steps in the order of commits.
  std::map<std::string, std::vector<std::int64_t>> steps() {
    std::map<std::string, std::vector<std::int64_t>> found;
    for (std::int64_t after = 0;;) {
      const auto page = shared().list({}, after, 1000, false);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok() || page->empty()) return found;
      for (const StoredVerdict& stored : *page) found[stored.verdict.job()].push_back(stored.verdict.step());
      after = page->back().sequence;
    }
  }

  static std::vector<std::int64_t> upto(std::int64_t count) {
    std::vector<std::int64_t> all;
    for (std::int64_t step = 0; step < count; ++step) all.push_back(step);
    return all;
  }

  static void fill(Node& node, const std::string& job, std::int64_t from, std::int64_t to) {
    for (std::int64_t step = from; step < to; ++step) {
      ASSERT_TRUE(append(*node.store, to_proto(sample_verdict(job, step))).ok());
    }
  }

  PostgresServer& server_ = PostgresServer::shared();
  PostgresEngine engine_;
  std::unique_ptr<VerdictStore> shared_;
};

TEST_F(Shipping, TheSharedHistorySaysWhatOurOwnSays) {
  Node node(engine_.options.schema);
  node.open_store();
  // Before anything was shared, and after.
  ASSERT_TRUE(open_as(*node.store, {"default", "a", "run-1", 0, 0}, "uid:7").ok());
  ASSERT_TRUE(append(*node.store, to_proto(sample_verdict("a", 1)), {2, {"queue_full"}}).ok());
  ASSERT_TRUE(append_error(*node.store, {"default", "a", "run-1", 0, 2}, absl::ResourceExhaustedError("memory")).ok());
  node.open_outbox();
  node.share();
  ASSERT_TRUE(open_as(*node.store, {"default", "b", "run-2", 3, 0}, "uid:8").ok());
  ASSERT_TRUE(append(*node.store, to_proto(sample_verdict("a", 3, Outcome::kTypeII)), {5, {"not_stored"}}).ok());
  ASSERT_TRUE(append_error(*node.store, {"default", "a", "run-1", 0, 4}, absl::InvalidArgumentError("shape")).ok());
  ASSERT_TRUE(append_error(*node.store, {"default", "a", "run-1", 0, 3}, absl::InvalidArgumentError("again")).ok());
  ASSERT_TRUE(node.shipped());

  for (const char* job : {"a", "b"}) {
    const auto own = node.store->job("default", job), common = shared().job("default", job);
    ASSERT_TRUE(own.ok() && common.ok()) << own.status() << common.status();
    EXPECT_EQ(own->SerializeAsString(), common->SerializeAsString()) << common->DebugString() << own->DebugString();
  }
  for (const char* id : {"default/a/run-1/0/1", "default/a/run-1/0/3"}) {
    EXPECT_EQ(node.store->get(id)->SerializeAsString(), shared().get(id)->SerializeAsString());
  }
  const auto own = node.store->errors("default", "a", {}, 10, {}, {});
  auto common = shared().errors("default", "a", {}, 10, {}, {});
  ASSERT_EQ(own->size(), 3u);
  ASSERT_EQ(common->size(), 3u);
  for (std::size_t i = 0; i < own->size(); ++i) {
    EXPECT_EQ(common->at(i).node(), node.history->reader()->name());
    common->at(i).clear_node();
    EXPECT_EQ(own->at(i).SerializeAsString(), common->at(i).SerializeAsString());
  }
  EXPECT_EQ(*shared().owner_of({"default", "a", "run-1", 0, 0}), "uid:7");
  EXPECT_EQ(*shared().owner_of({"default", "b", "run-2", 3, 0}), "uid:8");
  const ShipState state = node.history->state();
  EXPECT_TRUE(state.up);
  EXPECT_EQ(state.turned_away, 0u);
}

TEST_F(Shipping, ARefusedStepThatPassesLaterIsNoErrorOfTheSharedHistory) {
  Node node(engine_.options.schema);
  node.open();
  ASSERT_TRUE(append_error(*node.store, {"default", "a", "run-1", 0, 1}, absl::InternalError("once")).ok());
  ASSERT_TRUE(node.shipped());
  EXPECT_EQ(shared().job("default", "a")->errors(), 1u);
  ASSERT_TRUE(append(*node.store, to_proto(sample_verdict("a", 1))).ok());
  ASSERT_TRUE(node.shipped());
  EXPECT_EQ(shared().job("default", "a")->errors(), 0u);
}

TEST_F(Shipping, AServerThatIsNotThereAtTheStartGetsAllWhenItComes) {
  server_.crash();
  Node node(engine_.options.schema);
  node.open();
  ASSERT_TRUE(node.lost(ShipTrouble::kUnreachable));
  EXPECT_TRUE(absl::StrContains(node.why(), "cannot be reached")) << node.why();
  fill(node, "a", 0, 50);
  EXPECT_TRUE(node.store->get("default/a/run-1/0/49").ok());
  EXPECT_FALSE(node.history->state().up);
  const auto backlog = node.outbox->backlog();
  EXPECT_EQ(backlog->records, 51) << "the verdicts and their run";
  EXPECT_EQ(backlog->oldest_us, kStartUs);
  server_.start();
  ASSERT_TRUE(node.shipped());
  EXPECT_EQ(steps()["a"], upto(50));
  EXPECT_EQ(node.outbox->backlog()->oldest_us, 0);
  EXPECT_GT(node.history->state().errors[static_cast<std::size_t>(ShipTrouble::kUnreachable)], 0u);
}

TEST_F(Shipping, AServerThatIsKilledAgainAndAgainHasEverythingOnceAndInOrder) {
  constexpr std::int64_t kSteps = 400;
  constexpr int kNodes = 2, kKills = 4;
  std::vector<std::unique_ptr<Node>> nodes;
  for (int i = 0; i < kNodes; ++i) {
    nodes.push_back(std::make_unique<Node>(engine_.options.schema));
    nodes.back()->open();
  }
  std::vector<std::thread> writers;
  std::atomic<int> working = 2 * kNodes;
  for (int i = 0; i < 2 * kNodes; ++i) {
    writers.emplace_back([&, i] {
      fill(*nodes[static_cast<std::size_t>(i % kNodes)], absl::StrCat("job", i), 0, kSteps);
      --working;
    });
  }
  int kills = 0;
  for (; kills < kKills || working > 0; ++kills) {
    server_.crash();
    server_.start();
    if (kills >= 100) break;
  }
  for (std::thread& writer : writers) writer.join();
  for (const auto& node : nodes) ASSERT_TRUE(node->shipped());
  const auto found = steps();
  ASSERT_EQ(found.size(), static_cast<std::size_t>(2 * kNodes));
  for (const auto& [job, seen] : found) EXPECT_EQ(seen, upto(kSteps)) << job;
  for (const auto& [job, seen] : found)
    EXPECT_EQ(shared().job("default", job)->steps(), static_cast<std::uint64_t>(kSteps));
}

TEST_F(Shipping, AServerThatDoesNotAnswerDelaysNoVerdict) {
  Node node(engine_.options.schema);
  node.open();
  fill(node, "a", 0, 5);
  ASSERT_TRUE(node.shipped());
  server_.freeze();
  const auto begun = std::chrono::steady_clock::now();
  fill(node, "a", 5, 25);
  const auto took = std::chrono::steady_clock::now() - begun;
  EXPECT_LT(took, std::chrono::seconds(20)) << "20 verdicts, each of which would wait for the server's limit";
  EXPECT_TRUE(node.lost(ShipTrouble::kUnreachable));
  EXPECT_TRUE(absl::StrContains(node.why(), "does not answer") || absl::StrContains(node.why(), "timeout expired"))
      << node.why();
  server_.thaw();
  ASSERT_TRUE(node.shipped());
  EXPECT_EQ(steps()["a"], upto(25));
}

TEST_F(Shipping, ADaemonThatEndsWhileTheServerIsFrozenDoesNotHang) {
  Node node(engine_.options.schema);
  node.open();
  ASSERT_TRUE(node.shipped());
  server_.freeze();
  fill(node, "a", 0, 5);
  node.history->finish(absl::ZeroDuration());
  node.close();
  server_.thaw();
  node.open();
  ASSERT_TRUE(node.shipped());
  EXPECT_EQ(steps()["a"], upto(5)) << "what was not shipped before the end is shipped after the next start";
}

TEST_F(Shipping, WhatIsThereIsShippedBeforeTheEnd) {
  Node node(engine_.options.schema);
  node.open_store();
  fill(node, "a", 0, 600);  // Several shipments.
  node.open_outbox();
  node.share();
  while (!node.history->state().up && node.outbox->backlog()->records > 0) std::this_thread::yield();
  node.history->finish(absl::Seconds(60));
  EXPECT_EQ(steps()["a"], upto(600));
}

TEST_F(Shipping, ACopyOfADataDirectoryIsNoDaemonOfItsOwn) {
  auto first = std::make_unique<Node>(engine_.options.schema);
  first->open();
  fill(*first, "a", 0, 3);
  ASSERT_TRUE(first->shipped());
  const std::string node = first->outbox->node();
  first->close();
  Node copy(engine_.options.schema, *first);
  first->open();
  fill(*first, "a", 3, 4);
  ASSERT_TRUE(first->shipped());

  copy.open();
  fill(copy, "b", 0, 3);
  ASSERT_TRUE(copy.lost(ShipTrouble::kIdentity));
  EXPECT_TRUE(absl::StrContains(copy.why(), node)) << copy.why();
  EXPECT_TRUE(absl::StrContains(copy.why(), "on here")) << copy.why();
  EXPECT_EQ(steps().count("b"), 0u);
  fill(*first, "a", 4, 6);
  ASSERT_TRUE(first->shipped()) << "who was there first goes on";
  EXPECT_EQ(steps()["a"], upto(6));
  first->close();  // It was only a move, say: now there is one of the name.
  ASSERT_TRUE(copy.shipped());
  EXPECT_EQ(steps()["b"], upto(3));
}

TEST_F(Shipping, AHistoryOfANewerVersionIsRefusedAndTheDaemonGoesOn) {
  shared();
  const auto beside = server_.connect(engine_.options.schema);
  ASSERT_TRUE(beside->run("UPDATE history SET version=1000").ok());
  Node node(engine_.options.schema);
  node.open();
  ASSERT_TRUE(node.lost(ShipTrouble::kRefused));
  EXPECT_TRUE(absl::StrContains(node.why(), "newer plumblined")) << node.why();
  fill(node, "a", 0, 5);
  EXPECT_EQ(*beside->integer("SELECT count(*) FROM verdicts"), 0);
  ASSERT_TRUE(beside->run("UPDATE history SET version=4").ok());
  ASSERT_TRUE(node.shipped());
  EXPECT_EQ(steps()["a"], upto(5));
}

TEST_F(Shipping, ASchemaThatWasPutBackIsBroughtToOursAgain) {
  shared();
  Node node(engine_.options.schema);
  node.open();
  fill(node, "a", 0, 2);
  ASSERT_TRUE(node.shipped());
  const auto beside = server_.connect(engine_.options.schema);
  ASSERT_TRUE(beside->run(kBackToVersion4).ok());
  fill(node, "a", 2, 4);
  ASSERT_TRUE(node.shipped());
  EXPECT_EQ(steps()["a"], upto(4));
  EXPECT_EQ(*beside->integer("SELECT CAST(reached AS BIGINT) FROM history"), kPostgresVersion);
}

TEST_F(Shipping, AnotherProductsTablesAreRefusedAndTheDaemonGoesOn) {
  const auto owner = server_.connect("public");
  ASSERT_TRUE(owner
                  ->run(absl::StrCat("CREATE SCHEMA ", engine_.options.schema, "; CREATE TABLE ",
                                     engine_.options.schema, ".verdicts(guilty BOOLEAN)"))
                  .ok());
  Node node(engine_.options.schema);
  node.open();
  ASSERT_TRUE(node.lost(ShipTrouble::kRefused));
  EXPECT_TRUE(absl::StrContains(node.why(), "another application")) << node.why();
  fill(node, "a", 0, 2);
  EXPECT_TRUE(node.store->get("default/a/run-1/0/1").ok());
}

TEST_F(Shipping, RetentionKeepsWhatIsNotShippedYet) {
  server_.crash();
  Node node(engine_.options.schema);
  node.open();
  fill(node, "a", 0, 20);
  ASSERT_TRUE(append_error(*node.store, {"default", "b", "run-1", 0, 1}, absl::InternalError("x")).ok());
  ASSERT_TRUE(append_error(*node.store, {"default", "b", "run-1", 0, 2}, absl::InternalError("x")).ok());
  ASSERT_TRUE(expire_verdicts(*node.store, 1).ok());
  EXPECT_EQ(listed_steps(*node.store, {}).size(), 20u);
  EXPECT_EQ(node.store->job("default", "b")->errors(), 2u);
  server_.start();
  ASSERT_TRUE(node.shipped());
  ASSERT_TRUE(expire_verdicts(*node.store, 1).ok());
  EXPECT_LE(listed_steps(*node.store, {}).size(), 1u);
  EXPECT_EQ(steps()["a"], upto(20)) << "our limits are not those of the shared history";
  EXPECT_EQ(shared().job("default", "b")->errors(), 2u);
}

TEST_F(Shipping, AJobThatIsRemovedIsRemovedThereToo) {
  Node node(engine_.options.schema);
  node.open();
  ASSERT_TRUE(open_as(*node.store, {"default", "a", "run-1", 0, 0}, "uid:7").ok());
  fill(node, "a", 0, 3);
  fill(node, "b", 0, 3);
  ASSERT_TRUE(node.shipped());
  ASSERT_TRUE(remove(*node.store, "a").ok());
  fill(node, "a", 7, 9);  // It begins anew.
  ASSERT_TRUE(node.shipped());
  EXPECT_EQ(steps()["a"], (std::vector<std::int64_t>{7, 8}));
  EXPECT_EQ(steps()["b"], upto(3));
}

TEST_F(Shipping, ARunOfAnotherUserIsNeitherAddedToNorRemoved) {
  Node theirs(engine_.options.schema), ours(engine_.options.schema);
  theirs.open();
  ASSERT_TRUE(open_as(*theirs.store, {"default", "a", "run-1", 0, 0}, "uid:7").ok());
  fill(theirs, "a", 0, 3);
  ASSERT_TRUE(theirs.shipped());
  ours.open();
  ASSERT_TRUE(open_as(*ours.store, {"default", "a", "run-1", 0, 0}, "uid:8").ok());
  fill(ours, "a", 3, 6);
  fill(ours, "b", 0, 2);
  ASSERT_TRUE(ours.shipped());
  EXPECT_EQ(steps()["a"], upto(3)) << "who may see his run would see theirs";
  EXPECT_EQ(steps()["b"], upto(2));
  EXPECT_EQ(ours.history->state().turned_away, 4u) << "the run and three steps";
  EXPECT_EQ(listed_steps(*ours.store, {}).size(), 5u) << "our own history has them";
  ASSERT_TRUE(remove(*ours.store, "a").ok());
  ASSERT_TRUE(ours.shipped());
  EXPECT_EQ(steps()["a"], upto(3));
}

TEST_F(Shipping, WhatTheServerCannotHoldHoldsNothingUp) {
  Node node(engine_.options.schema);
  node.open();
  ASSERT_TRUE(append(*node.store, to_proto(sample_verdict(std::string("z\0o", 3), 0))).ok());
  fill(node, "a", 0, 2);
  ASSERT_TRUE(node.shipped());
  EXPECT_EQ(steps()["a"], upto(2));
  EXPECT_GT(node.history->state().turned_away, 0u);
}

TEST_F(Shipping, AHistoryThatWasMadeAnewGetsAllThatIsLeft) {
  Node node(engine_.options.schema);
  node.open();
  fill(node, "a", 0, 5);
  ASSERT_TRUE(node.shipped());
  node.history.reset();
  ASSERT_TRUE(server_.connect("public")->run(absl::StrCat("DROP SCHEMA ", engine_.options.schema, " CASCADE")).ok());
  node.share();
  fill(node, "a", 5, 6);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (steps()["a"].size() < 6) ASSERT_LT(std::chrono::steady_clock::now(), until);
  EXPECT_EQ(steps()["a"], upto(6));
}

TEST_F(Shipping, WhoSharesNothingForAWhileBeginsWithAll) {
  Node node(engine_.options.schema);
  node.open();
  fill(node, "a", 0, 2);
  ASSERT_TRUE(node.shipped());
  node.close();
  node.open_store();
  ASSERT_TRUE(Outbox::close(node.store.get()).ok());
  fill(node, "a", 2, 5);
  ASSERT_TRUE(append_error(*node.store, {"default", "b", "run-1", 0, 1}, absl::InternalError("x")).ok());
  node.open_outbox();
  EXPECT_GE(node.outbox->backlog()->records, 5);
  node.share();
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!shared().job("default", "b").ok()) ASSERT_LT(std::chrono::steady_clock::now(), until);
  EXPECT_EQ(steps()["a"], upto(5));
}

}  // namespace
}  // namespace plumbline
