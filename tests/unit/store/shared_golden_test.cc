// Golden runs of one node, as the history and other nodes have them.
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "server/store/postgres/golden.h"
#include "tests/unit/store/node.h"

namespace plumbline {
namespace {

GoldenStep step_of_run(std::int64_t step) {
  GoldenStep golden;
  golden.rank = 1;
  golden.step = step;
  golden.digest = std::string(32, 'd');
  golden.leaves = {{LeafRole::kParameter, "param:w", Format::kBFloat16, 7, "0:14"}};
  golden.taps = {{"loss", TapKind::kLoss, {}, 0.5, 0.25, {0.5}, {0.75}, "0:8"}};
  golden.probes = {{"loss", {"loss"}, true, 1e-12, 1e-13, 1e-26}};
  return golden;
}

v1::GoldenHeader header(const std::string& run) {
  v1::GoldenHeader header;
  header.set_project("p");
  header.set_name("v1");
  header.set_run(run);
  header.set_profile("ieee");
  return header;
}

class SharedGoldenTest : public testing::Test {
 protected:
  void record(Node& node, std::int64_t step, const std::string& run = "job/run", const std::string& owner = "uid:1") {
    ASSERT_TRUE(node.golden.begin(header(run), owner).ok());
    ASSERT_TRUE(node.golden.append("p", "v1", step_of_run(step)).ok());
  }

  // Waits for the step, or for that it is not there any more.
  absl::Status loaded(Node& node, std::int64_t step, bool there = true) {
    const absl::Time deadline = absl::Now() + absl::FromChrono(Node::kPatience);
    for (;;) {
      const auto found = node.history->golden()->load("p", "v1", "", 1, step);
      if (found.ok() == there || absl::Now() > deadline) return found.status();
    }
  }

  PostgresServer& server_ = PostgresServer::shared();
  const std::string schema_ = server_.fresh_schema();
};

TEST_F(SharedGoldenTest, WhatOneNodeRecordsAnotherHasAsItWas) {
  Node one(schema_), other(schema_);
  record(one, 3);
  one.open();
  other.open();
  ASSERT_TRUE(loaded(other, 3).ok());
  const auto found = other.history->golden()->load("p", "v1", "job/run", 1, 3);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(to_proto(**found).SerializeAsString(), to_proto(step_of_run(3)).SerializeAsString());
  const auto origin = other.history->golden()->origin("p", "v1");
  ASSERT_TRUE(origin.ok()) << origin.status();
  EXPECT_EQ(origin->owner, "uid:1");
  EXPECT_EQ(origin->run, "job/run");
  EXPECT_EQ(origin->node, one.outbox->node());
  record(one, 4);
  ASSERT_TRUE(loaded(other, 4).ok()) << "it goes on";
  EXPECT_TRUE(absl::IsNotFound(other.history->golden()->load("p", "v1", "job/run", 0, 3).status()));
  EXPECT_TRUE(absl::IsNotFound(other.history->golden()->load("p", "v1", "job/another", 1, 3).status()));
  EXPECT_TRUE(absl::IsNotFound(other.history->golden()->origin("p", "v2").status()));
  ASSERT_TRUE(one.golden.remove("p", "v1").ok());
  EXPECT_TRUE(absl::IsNotFound(loaded(other, 3, false))) << "removed at home, it is removed there";
  EXPECT_EQ(*server_.connect(schema_)->integer("SELECT count(*) FROM golden_steps"), 0);
}

TEST_F(SharedGoldenTest, TheServersAbsenceLosesNothingAndIsTold) {
  Node one(schema_), other(schema_);
  one.open();
  other.open();
  record(one, 1);
  ASSERT_TRUE(loaded(other, 1).ok());
  server_.crash();
  EXPECT_TRUE(absl::IsUnavailable(loaded(other, 1, false)));
  record(one, 2);
  one.close();
  one.open();
  server_.start();
  EXPECT_TRUE(loaded(other, 2).ok());
  EXPECT_TRUE(loaded(other, 1).ok());
}

TEST_F(SharedGoldenTest, ARunThatWentToAnotherNodeGoesOnThere) {
  Node one(schema_), other(schema_);
  one.open();
  other.open();
  record(one, 1);
  ASSERT_TRUE(loaded(other, 1).ok());
  record(other, 2);
  ASSERT_TRUE(loaded(one, 2).ok());
  EXPECT_TRUE(loaded(one, 1).ok());
}

TEST_F(SharedGoldenTest, ANameThatIsTakenIsTurnedAwayAndStaysAtHome) {
  Node one(schema_), other(schema_), third(schema_);
  one.open();
  record(one, 1);
  ASSERT_TRUE(loaded(one, 1).ok());
  record(other, 2, "job/another-run");
  record(third, 3, "job/run", "uid:2");
  for (Node* node : {&other, &third}) {
    node->open();
    const absl::Time deadline = absl::Now() + absl::FromChrono(Node::kPatience);
    while (node->history->state().turned_away == 0) ASSERT_LT(absl::Now(), deadline);
    EXPECT_TRUE(node->golden.load("p", "v1", 1, node == &other ? 2 : 3).ok());
  }
  EXPECT_EQ(*server_.connect(schema_)->integer("SELECT count(*) FROM golden_steps"), 1);
  ASSERT_TRUE(other.golden.remove("p", "v1").ok());
  ASSERT_TRUE(third.golden.remove("p", "v1").ok());
  for (Node* node : {&other, &third}) {
    const absl::Time deadline = absl::Now() + absl::FromChrono(Node::kPatience);
    while (std::filesystem::exists(node->golden.shipped_path({"p", "v1"}))) ASSERT_LT(absl::Now(), deadline);
  }
  EXPECT_TRUE(loaded(one, 1).ok()) << "it is another's to remove";
}

TEST_F(SharedGoldenTest, WhoSeesItGoesByTheRulesOfVerdicts) {
  Node one(schema_), other(schema_), same(schema_);
  same.same_users = true;
  one.open();
  other.open();
  same.open();
  record(one, 1);
  ASSERT_TRUE(loaded(other, 1).ok());
  const auto origin = other.history->golden()->origin("p", "v1");
  ASSERT_TRUE(origin.ok());
  Visibility own{false, "uid:1", {}}, another{false, "uid:2", {}}, reader{false, "uid:2", {"p"}}, all;
  EXPECT_FALSE(other.history->golden()->sees(own, "p", *origin)) << "uid:1 of another node may be another person";
  EXPECT_TRUE(same.history->golden()->sees(own, "p", *origin));
  EXPECT_TRUE(one.history->golden()->sees(own, "p", *origin)) << "at home";
  EXPECT_FALSE(same.history->golden()->sees(another, "p", *origin));
  EXPECT_TRUE(other.history->golden()->sees(reader, "p", *origin));
  EXPECT_FALSE(other.history->golden()->sees(reader, "q", *origin));
  EXPECT_TRUE(other.history->golden()->sees(all, "p", *origin));
}

TEST_F(SharedGoldenTest, WhatIsNoGoldenStepIsRefused) {
  Node one(schema_);
  one.open();
  record(one, 1);
  ASSERT_TRUE(loaded(one, 1).ok());
  const auto beside = server_.connect(schema_);
  ASSERT_TRUE(beside->run("UPDATE golden_steps SET message='\\x0801ff'").ok());
  const auto garbage = one.history->golden()->load("p", "v1", "", 1, 1);
  EXPECT_EQ(garbage.status().code(), absl::StatusCode::kDataLoss) << garbage.status();
  ASSERT_TRUE(beside->run("UPDATE golden_steps SET message='\\x08021001'").ok());  // Rank 2, step 1.
  EXPECT_EQ(one.history->golden()->load("p", "v1", "", 1, 1).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace plumbline
