// Steps whose ranks stream to several daemons: each daemon's part arrives, and one verdict is made of them, whatever
// becomes of who was to make it.
#include <atomic>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/unit/store/node.h"

namespace plumbline {
namespace {

// A daemon that makes verdicts which say what they were made of.
class Judge : public Node {
 public:
  explicit Judge(const std::string& schema) : Node(schema) {
    statement_timeout = absl::Seconds(30);
    judge = [this](const NodeStep& step) -> absl::Status {
      ++asked;
      if (fails) return absl::ResourceExhaustedError("the disk is full");
      Verdict verdict = sample_verdict(step.step.job, step.step.step);
      verdict.identity = step.step;
      verdict.identity.rank = -1;
      verdict.digest = absl::StrCat(absl::StrJoin(step.parts, "+"), step.fault.empty() ? "" : "!");
      verdict.sentence = step.fault;
      if (auto opened = open_as(verdict.identity, step.owner); !opened.ok()) return opened;
      return append(*store, to_proto(verdict));
    };
  }
  ~Judge() { close(); }

  void tell(std::vector<std::int32_t> ranks, const std::string& part, std::int64_t step = 7,
            std::int32_t ranks_of_run = 4, const std::string& job = "a") {
    const StepIdentity identity{"default", job, "run-1", ranks[0], step};
    ASSERT_TRUE(open_as(identity, "uid:7").ok());
    outbox->put({identity, std::move(ranks), ranks_of_run, part, part});
    // The writer takes changes in their order.
    ASSERT_TRUE(append_error(*store, identity, absl::InternalError("after it")).ok());
  }

  bool turns_away() const {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (history->state().turned_away == 0)
      if (std::chrono::steady_clock::now() > until) return false;
    return true;
  }

  std::atomic<int> asked = 0;
  std::atomic<bool> fails = false;

 private:
  absl::Status open_as(const StepIdentity& run, const std::string& owner) {
    std::promise<absl::Status> answer;
    store->open_run(run, owner, "1.0", [&](const absl::Status& status) { answer.set_value(own(status)); });
    return answer.get_future().get();
  }
};

class NodeStepsTest : public testing::Test {
 protected:
  std::int64_t ask(const std::string& sql) { return connection_->integer(sql).value_or(-1); }
  bool becomes(const std::string& sql, std::int64_t value) {
    const auto until = std::chrono::steady_clock::now() + Node::kPatience;
    while (ask(sql) != value) {
      if (std::chrono::steady_clock::now() > until) return false;
    }
    return true;
  }
  std::string digest() { return connection_->text("SELECT digest FROM verdicts WHERE rank=-1").value_or("?"); }

  const std::string schema_ = PostgresServer::shared().fresh_schema();
  const std::unique_ptr<PostgresConnection> connection_ = PostgresServer::shared().connect(schema_);
  static constexpr char kVerdicts[] = "SELECT count(*) FROM verdicts WHERE rank=-1";
  static constexpr char kParts[] = "SELECT count(*) FROM node_parts";
  static constexpr char kSteps[] = "SELECT count(*) FROM node_steps";
};

TEST_F(NodeStepsTest, OneOfThemMakesOneVerdictOnceAllPartsAreThere) {
  Judge first(schema_), second(schema_);
  first.open();
  second.open();
  second.tell({2, 3}, "cd");
  ASSERT_TRUE(second.shipped());
  EXPECT_EQ(ask(kParts), 1);
  EXPECT_EQ(ask(kVerdicts), 0);
  first.tell({0, 1}, "ab");
  ASSERT_TRUE(becomes(kVerdicts, 1));
  EXPECT_EQ(digest(), "ab+cd");
  EXPECT_TRUE(becomes(kSteps, 0)) << "parts go once the verdict is there";
  EXPECT_EQ(ask(kParts), 0);
  EXPECT_EQ(first.asked, 1);
  EXPECT_EQ(second.asked, 0) << "the daemon of the lowest rank is the one";
  EXPECT_EQ(*connection_->text("SELECT owner FROM runs WHERE rank=-1"), "uid:7");
}

TEST_F(NodeStepsTest, ThePartAgainChangesNothing) {
  Judge first(schema_), second(schema_);
  first.open();
  second.open();
  for (int time = 0; time < 2; ++time) first.tell({0, 1}, "ab");
  ASSERT_TRUE(first.shipped());
  EXPECT_EQ(ask(kParts), 1);
  second.tell({2, 3}, "cd");
  ASSERT_TRUE(becomes(kVerdicts, 1));
  ASSERT_TRUE(becomes(kSteps, 0));
  second.tell({2, 3}, "cd");
  first.tell({0, 1}, "ab");
  ASSERT_TRUE(first.shipped() && second.shipped());
  EXPECT_EQ(ask(kSteps), 0);
  EXPECT_EQ(ask(kVerdicts), 1);
  EXPECT_EQ(ask("SELECT count(*) FROM errors WHERE rank=-1"), 0);
}

TEST_F(NodeStepsTest, RanksThatNeverComeAreWaitedForUntilTheDeadline) {
  Judge first(schema_);
  first.nodes_timeout = absl::Milliseconds(300);
  first.open();
  first.tell({0, 1}, "ab");
  ASSERT_TRUE(becomes(kVerdicts, 1));
  EXPECT_EQ(digest(), "ab");
  Judge late(schema_);
  late.open();
  late.tell({2, 3}, "cd");
  ASSERT_TRUE(late.shipped());
  EXPECT_TRUE(becomes(kSteps, 0)) << "too late: the step has its verdict";
  EXPECT_EQ(ask(kVerdicts), 1);
}

TEST_F(NodeStepsTest, AnotherTakesOverFromADaemonThatEnded) {
  auto first = std::make_unique<Judge>(schema_);
  Judge second(schema_);
  second.others_judge_after = absl::Milliseconds(200);
  first->open();
  second.open();
  first->tell({0, 1}, "ab");
  ASSERT_TRUE(first->shipped());
  first.reset();
  second.tell({2, 3}, "cd");
  ASSERT_TRUE(becomes(kVerdicts, 1));
  EXPECT_EQ(digest(), "ab+cd");
  EXPECT_EQ(second.asked, 1);
}

TEST_F(NodeStepsTest, AnotherTakesOverWhereTheFirstOneMakesNone) {
  Judge first(schema_), second(schema_);
  first.fails = true;
  first.judge_lease = absl::Milliseconds(200);
  second.others_judge_after = absl::Milliseconds(100);
  first.open();
  first.tell({0, 1}, "ab");
  ASSERT_TRUE(first.shipped());
  second.open();
  second.tell({2, 3}, "cd");
  ASSERT_TRUE(becomes(kVerdicts, 1));
  EXPECT_EQ(digest(), "ab+cd");
  EXPECT_EQ(second.asked, 1);
  EXPECT_EQ(first.asked, 1) << "it leaves the next try to the others";
}

// What was taken to be judged stays as it was then: however many judge it, their verdicts are one.
TEST_F(NodeStepsTest, TwoThatJudgeMakeTheSameVerdict) {
  Judge first(schema_), second(schema_);
  first.judge_lease = second.judge_lease = absl::ZeroDuration();
  first.others_judge_after = second.others_judge_after = absl::ZeroDuration();
  first.fails = second.fails = true;  // They have the right, and make nothing of it.
  first.nodes_timeout = second.nodes_timeout = absl::Seconds(2);
  second.open();
  second.tell({2}, "c");
  first.open();
  first.tell({0, 1}, "ab");
  ASSERT_TRUE(first.shipped() && second.shipped());
  ASSERT_TRUE(becomes("SELECT count(*) FROM node_steps WHERE closed", 1));
  Judge late(schema_);
  late.open();
  late.tell({3}, "d");  // Not in what is judged.
  ASSERT_TRUE(late.shipped());
  second.fails = false;
  ASSERT_TRUE(becomes(kVerdicts, 1));
  EXPECT_EQ(digest(), "ab+c");
  first.fails = false;
  for (int step = 0; step < 20; ++step) {
    first.tell({0, 1}, absl::StrCat("ab", step), 10 + step);
    second.tell({2, 3}, absl::StrCat("cd", step), 10 + step);
  }
  ASSERT_TRUE(becomes(kVerdicts, 21));
  ASSERT_TRUE(becomes(kSteps, 0));
  ASSERT_TRUE(first.shipped() && second.shipped());
  EXPECT_EQ(ask(kVerdicts), 21);
  EXPECT_EQ(ask("SELECT count(*) FROM errors WHERE rank=-1"), 0) << "no second one with another digest";
}

// Whoever sees what a daemon makes is an owner there.
TEST_F(NodeStepsTest, ADaemonWithoutAPartJudgesNothing) {
  Judge other(schema_), first(schema_);
  other.others_judge_after = other.nodes_timeout = absl::ZeroDuration();
  other.open();
  first.nodes_timeout = absl::Milliseconds(500);
  first.open();
  first.tell({0, 1}, "ab");
  ASSERT_TRUE(becomes(kVerdicts, 1));
  EXPECT_EQ(other.asked, 0);
  EXPECT_EQ(first.asked, 1);
}

TEST_F(NodeStepsTest, TheSameRankFromTwoDaemonsIsTold) {
  Judge first(schema_), second(schema_), third(schema_);
  first.nodes_timeout = absl::Milliseconds(500);
  first.open();
  second.open();
  first.tell({0, 1}, "ab");
  ASSERT_TRUE(first.shipped());
  second.tell({1, 2}, "bc");
  ASSERT_TRUE(second.shipped());
  EXPECT_TRUE(second.turns_away());
  ASSERT_TRUE(becomes(kVerdicts, 1));
  EXPECT_EQ(digest(), "ab!");
  const auto said = first.store->get("default/a/run-1/-1/7");
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_NE(said->sentence().find("ranks 1, 2 came from one daemon, and ranks 0,1 from another"), std::string::npos)
      << said->sentence();
}

TEST_F(NodeStepsTest, AClientThatChangedOverGivesItsPartTwice) {
  Judge first(schema_), second(schema_), third(schema_);
  first.open();
  second.open();
  third.open();
  first.tell({0, 1}, "ab");
  ASSERT_TRUE(first.shipped());
  second.tell({0, 1}, "ab");
  ASSERT_TRUE(second.shipped());
  EXPECT_EQ(ask("SELECT count(*) FROM node_steps WHERE fault<>''"), 0);
  third.tell({2, 3}, "cd");
  ASSERT_TRUE(becomes(kVerdicts, 1));
  EXPECT_EQ(digest(), "ab+cd");
}

TEST_F(NodeStepsTest, AnotherWorldSizeIsTold) {
  Judge first(schema_), second(schema_);
  first.nodes_timeout = absl::Milliseconds(500);
  first.open();
  second.open();
  first.tell({0, 1}, "ab");
  ASSERT_TRUE(first.shipped());
  second.tell({2, 3}, "cd", 7, 8);
  ASSERT_TRUE(second.shipped());
  EXPECT_TRUE(second.turns_away());
  ASSERT_TRUE(becomes(kVerdicts, 1));
  EXPECT_EQ(digest(), "ab!");
}

TEST_F(NodeStepsTest, PartsOutliveTheLossOfTheServer) {
  Judge first(schema_), second(schema_);
  first.open();
  second.open();
  ASSERT_TRUE(first.answers() && second.answers());
  PostgresServer::shared().crash();
  first.tell({0, 1}, "ab");
  second.tell({2, 3}, "cd");
  EXPECT_GE(first.outbox->backlog()->records, 1);
  PostgresServer::shared().start();
  ASSERT_TRUE(becomes(kVerdicts, 1));
  EXPECT_EQ(digest(), "ab+cd");
}

TEST_F(NodeStepsTest, AJobThatIsRemovedTakesItsPartsWithIt) {
  Judge first(schema_);
  first.open();
  first.tell({0, 1}, "ab");
  first.tell({0, 1}, "ab", 7, 4, "other");
  ASSERT_TRUE(becomes(kParts, 2));
  std::promise<absl::Status> removed;
  first.store->remove_job("default", "a", {}, [&](const absl::Status& status) { removed.set_value(own(status)); });
  ASSERT_TRUE(removed.get_future().get().ok());
  EXPECT_TRUE(becomes(kParts, 1));
  EXPECT_EQ(*connection_->text("SELECT job FROM node_steps"), "other");
}

TEST_F(NodeStepsTest, ADaemonThatSharesNothingAnyMoreTellsNothing) {
  Judge first(schema_);
  first.open_store();
  first.open_outbox();
  first.tell({0, 1}, "ab");
  EXPECT_GE(first.outbox->backlog()->records, 1);
  first.outbox.reset();
  ASSERT_TRUE(Outbox::close(first.store.get()).ok());
  first.open_outbox();
  first.share();
  ASSERT_TRUE(first.answers() && first.shipped());
  EXPECT_EQ(ask(kParts), 0);
}

}  // namespace
}  // namespace plumbline
