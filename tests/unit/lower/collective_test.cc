// Collectives of several ranks: their traces joined, lowered and evaluated.
#include <gtest/gtest.h>

#include "server/ingest/join.h"
#include "tests/unit/lower/trace_builder.h"

namespace plumbline {
namespace {

using testing::TraceBuilder;
using Values = std::vector<double>;
using Integers = std::vector<std::int64_t>;

constexpr Format kFormat = Format::kFloat32;

// A rank that sends leaves in one call and taps what it gets.
struct Rank {
  std::vector<Values> sends, receives;  // There is one for each part.
  Integers splits = {};
};

struct Call {
  std::string kind, reduction = "";
  std::int64_t root = -1;
  std::int64_t tag = -1;
};

std::vector<TraceArgument> share(const Call& call, const Integers& group, std::int64_t number, std::int64_t part) {
  return {{"group", group},    {"call", number}, {"part", part}, {"reduction", call.reduction},
          {"root", call.root}, {"tag", call.tag}};
}

TensorRef send(TraceBuilder& b, const Call& call, const Integers& group, std::int64_t number, std::int64_t part,
               const TensorRef& x, const Integers& splits = {}) {
  auto arguments = share(call, group, number, part);
  arguments.insert(arguments.begin(), {"input", x});
  arguments.push_back({"splits", splits});
  return b.op1("plumbline::send." + call.kind, arguments, {count(x.view.sizes)}, x.format);
}

TensorRef receive(TraceBuilder& b, const Call& call, const Integers& group, std::int64_t number, std::int64_t part,
                  const Values& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  const TensorRef got = b.op1("plumbline::receive." + call.kind, share(call, group, number, part), {n}, kFormat);
  b.observe(0, values);
  return got;
}

std::shared_ptr<const Trace> finished(TraceBuilder& b, int rank) {
  b.trace.identity = {"p", "j", "r", rank, 0};
  b.trace.digest = "digest " + std::to_string(rank);
  return std::make_shared<const Trace>(b.trace);
}

Joined joined(const Call& call, const std::vector<Rank>& ranks) {
  Integers group;
  for (std::size_t r = 0; r < ranks.size(); ++r) group.push_back(static_cast<std::int64_t>(r));
  std::vector<std::shared_ptr<const Trace>> traces;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    TraceBuilder b;
    for (std::size_t i = 0; i < ranks[r].sends.size(); ++i) {
      const Values& values = ranks[r].sends[i];
      const TensorRef x = b.leaf({static_cast<std::int64_t>(values.size())}, values, kFormat);
      send(b, call, group, 0, static_cast<std::int64_t>(i), x, ranks[r].splits);
      b.observe(0, values);
    }
    for (std::size_t i = 0; i < ranks[r].receives.size(); ++i)
      b.tap("got:" + std::to_string(i), receive(b, call, group, 0, static_cast<std::int64_t>(i), ranks[r].receives[i]));
    for (TraceTap& tap : b.trace.taps) tap.kind = TapKind::kGradient;
    traces.push_back(finished(b, static_cast<int>(r)));
  }
  return join_ranks(traces, false);
}

// Checks that what each rank got follows from what all sent: the expected values are those that were observed.
void check(const Call& call, const std::vector<Rank>& ranks) {
  SCOPED_TRACE(call.kind + " " + call.reduction);
  const Joined result = joined(call, ranks);
  ASSERT_NE(result.trace, nullptr) << result.fault;
  EXPECT_EQ(result.trace->rank_digests.size(), ranks.size());
  const Graph graph = lower(*result.trace);
  EXPECT_EQ(graph.coverage.opaque, 0u);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < ranks[r].receives.size(); ++i) {
      const std::string name = "got:" + std::to_string(i);
      const bool shared = r > 0 && i < ranks[0].receives.size() && ranks[r].receives[i] == ranks[0].receives[i];
      const std::string own = "rank" + std::to_string(r) + "/" + name;
      bool apart = false;
      for (const GraphTap& tap : graph.taps) apart = apart || tap.name == own;
      // What one rank alone has keeps its name.
      bool alone = true;
      for (std::size_t other = 0; other < ranks.size(); ++other)
        alone = alone && (other == r || ranks[other].receives.size() <= i);
      EXPECT_EQ(apart, r > 0 && !shared && !alone);
      EXPECT_EQ(testing::tap_values(graph, apart ? own : name), ranks[r].receives[i]);
    }
}

TEST(Collective, Reductions) {
  const std::vector<Values> sends = {{1, 2}, {3, 5}, {4, -7}};
  const auto of = [&](const Values& result) {
    std::vector<Rank> ranks;
    for (const Values& values : sends) ranks.push_back({{values}, {result}});
    return ranks;
  };
  check({"all_reduce", "sum"}, of({8, 0}));
  check({"all_reduce", "product"}, of({12, -70}));
  check({"all_reduce", "max"}, of({4, 5}));
  check({"all_reduce", "min"}, of({1, -7}));
  check({"all_reduce", "sum"}, {{{{1, 2}}, {{4, 7}}}, {{{3, 5}}, {{4, 7}}}});
  check({"all_reduce", "avg"}, {{{{1, 2}}, {{2, 3.5}}}, {{{3, 5}}, {{2, 3.5}}}});
  check({"reduce", "sum", 1}, {{{{1, 2}}, {}}, {{{3, 5}}, {{4, 7}}}});
}

TEST(Collective, Movement) {
  check({"broadcast", "", 1}, {{{}, {{3, 5}}}, {{{3, 5}}, {}}});
  check({"all_gather"}, {{{{1, 2}}, {{1, 2}, {3}}}, {{{3}}, {{1, 2}, {3}}}});
  check({"all_gather_flat"}, {{{{1, 2}}, {{1, 2, 3, 4}}}, {{{3, 4}}, {{1, 2, 3, 4}}}});
  check({"gather", "", 0}, {{{{1, 2}}, {{1, 2}, {3, 4}}}, {{{3, 4}}, {}}});
  check({"scatter", "", 0}, {{{{1, 2}, {3, 4}}, {{1, 2}}}, {{}, {{3, 4}}}});
  check({"all_to_all"}, {{{{1}, {2}}, {{1}, {3}}}, {{{3}, {4}}, {{2}, {4}}}});
  check({"all_to_all_flat"}, {{{{1, 2}}, {{1, 3}}}, {{{3, 4}}, {{2, 4}}}});
  check({"all_to_all_flat"}, {{{{1, 2, 3}}, {{1, 4, 5}}, {1, 2}}, {{{4, 5, 6}}, {{2, 3, 6}}, {2, 1}}});
  check({"reduce_scatter", "sum"}, {{{{1}, {2}}, {{4}}}, {{{3}, {4}}, {{6}}}});
  check({"reduce_scatter_flat", "sum"}, {{{{1, 2}}, {{4}}}, {{{3, 4}}, {{6}}}});
}

TEST(Collective, MessagesBetweenTwoRanks) {
  check({"point_to_point", "", 0, 0}, {{{{1, 2}}, {}}, {{}, {{1, 2}}}});
  check({"point_to_point", "", 1, 7}, {{{}, {{3, 5}}}, {{{3, 5}}, {}}});
}

// Messages of a tag follow each other in their own order, whatever those of another tag, or the collectives of the same
// ranks, do meanwhile.
TEST(Collective, MessagesAreToldApartByTheirTags) {
  const Integers group = {0, 1};
  const Call first{"point_to_point", "", 0, 1}, second{"point_to_point", "", 0, 2}, all{"all_reduce", "sum"};
  TraceBuilder sender, receiver;
  const TensorRef x = sender.leaf({1}, {3}, kFormat), y = sender.leaf({1}, {5}, kFormat);
  send(sender, first, group, 0, 0, x);
  send(sender, second, group, 0, 0, y);
  send(sender, all, group, 0, 0, x);
  const TensorRef none{0, kFormat, {{0}, {1}, 0}};
  send(receiver, all, group, 0, 0, receiver.leaf({1}, {1}, kFormat));
  for (const Call& call : {second, first}) {
    send(receiver, call, group, 0, 0, none);
    receiver.tap(call.tag == 1 ? "x" : "y", receive(receiver, call, group, 0, 0, {call.tag == 1 ? 3.0 : 5.0}));
  }
  const Joined result = join_ranks({finished(sender, 0), finished(receiver, 1)}, false);
  ASSERT_NE(result.trace, nullptr) << result.fault;
  const Graph graph = lower(*result.trace);
  EXPECT_EQ(graph.coverage.opaque, 0u);
  EXPECT_EQ(graph.taps.size(), 2u);
  for (const GraphTap& tap : graph.taps)
    EXPECT_EQ(testing::tap_values(graph, tap.name), Values{tap.name.ends_with("x") ? 3.0 : 5.0});
}

TEST(Collective, AMessageThatNobodyReceivesIsAFault) {
  const Joined lost = joined({"point_to_point", "", 0, 3}, {{{{1, 2}}, {}}, {}});
  EXPECT_EQ(lost.trace, nullptr);
  EXPECT_NE(lost.fault.find("message from rank 0, tag 3"), std::string::npos) << lost.fault;
  EXPECT_NE(lost.fault.find("rank 1 makes only 0"), std::string::npos) << lost.fault;
}

// It is counted within a step, and a pipeline may receive in one what was sent in the step before.
TEST(Collective, AMessageOfOtherBitsIsAFaultAndAccusesNobody) {
  const Joined other = joined({"point_to_point", "", 0, 3}, {{{{1, 2}}, {}}, {{}, {{1, 3}}}});
  EXPECT_EQ(other.trace, nullptr);
  EXPECT_FALSE(other.contradiction);
  EXPECT_NE(other.fault.find("what rank 1 got is not the message from rank 0, tag 3, number 0 in this step"),
            std::string::npos)
      << other.fault;
}

TEST(Collective, WhatDoesNotFitIsAFaultThatNamesBothRanks) {
  const Joined other = joined({"all_reduce", "sum"}, {{{{1, 2}}, {{4, 7}}}, {{{3, 5, 6}}, {{4, 7, 6}}}});
  EXPECT_EQ(other.trace, nullptr);
  EXPECT_TRUE(other.contradiction);
  EXPECT_NE(other.fault.find("rank 0 makes all_reduce (sum) of 2 "), std::string::npos) << other.fault;
  EXPECT_NE(other.fault.find("rank 1 all_reduce (sum) of 3 "), std::string::npos) << other.fault;
  const Joined fewer = joined({"all_reduce", "sum"}, {{{{1, 2}}, {{4, 7}}}, {}});
  EXPECT_EQ(fewer.trace, nullptr);
  EXPECT_FALSE(fewer.contradiction);
  EXPECT_NE(fewer.fault.find("rank 1 makes only 0"), std::string::npos) << fewer.fault;
}

TEST(Collective, WaitingInACircleIsAFault) {
  // Each rank's second message builds on what it got from the other's second.
  const Integers group = {0, 1};
  std::vector<std::shared_ptr<const Trace>> traces;
  for (int rank = 0; rank < 2; ++rank) {
    TraceBuilder b;
    const Call call{"all_reduce", "sum"};
    const TensorRef got = receive(b, call, group, 0, 0, {1});
    send(b, call, group, 0, 0, got);
    traces.push_back(finished(b, rank));
  }
  const Joined result = join_ranks(traces, false);
  EXPECT_EQ(result.trace, nullptr);
  EXPECT_NE(result.fault.find("before all of its group had sent"), std::string::npos) << result.fault;
}

// Ranks 2 and 3 of four send what they hold and tap what they get.
Joined of_two_ranks(const Call& call, const Integers& group, const std::vector<Values>& sends,
                    const std::vector<Values>& receives) {
  std::vector<std::shared_ptr<const Trace>> traces;
  for (std::size_t i = 0; i < sends.size(); ++i) {
    TraceBuilder b;
    const TensorRef x = b.leaf({static_cast<std::int64_t>(sends[i].size())}, sends[i], kFormat);
    send(b, call, group, 0, 0, x);
    b.observe(0, sends[i]);
    b.tap("got", receive(b, call, group, 0, 0, receives[i]));
    b.trace.taps.back().kind = TapKind::kGradient;
    b.trace.taps.back().terms[0].observed = b.payload(kFormat, receives[i]);
    traces.push_back(finished(b, static_cast<int>(i) + 2));
  }
  return join_ranks(traces, false, 4);
}

std::vector<std::string> names_of_taps(const Trace& trace) {
  std::vector<std::string> names;
  for (const TraceTap& tap : trace.taps) names.push_back(tap.name);
  return names;
}

TEST(Collective, WhatCameFromRanksElsewhereIsALeaf) {
  const Joined result = of_two_ranks({"all_reduce", "sum"}, {0, 1, 2, 3}, {{1, 2}, {3, 5}}, {{9, 9}, {9, 9}});
  ASSERT_NE(result.trace, nullptr) << result.fault;
  EXPECT_EQ(result.trace->identity.rank, 2);
  std::vector<std::string> received;
  for (const TraceLeaf& leaf : result.trace->leaves)
    if (leaf.role == LeafRole::kObserved) received.push_back(leaf.name);
  EXPECT_EQ(received, std::vector<std::string>{"received:all_reduce#0"});
  EXPECT_EQ(names_of_taps(*result.trace),
            (std::vector<std::string>{"sent:all_reduce#0", "rank3/sent:all_reduce#0", "got"}));
  const Graph graph = lower(*result.trace);
  EXPECT_EQ(graph.coverage.opaque, 0u);
  EXPECT_EQ(testing::tap_values(graph, "got"), (Values{9, 9}));
  EXPECT_EQ(testing::tap_values(graph, "rank3/sent:all_reduce#0"), (Values{3, 5}));
}

TEST(Collective, RanksThatGotDifferentThingsFromElsewhereKeepBoth) {
  const Joined result = of_two_ranks({"all_reduce", "sum"}, {0, 1, 2, 3}, {{1, 2}, {3, 5}}, {{9, 9}, {9, 8}});
  ASSERT_NE(result.trace, nullptr) << result.fault;
  const Graph graph = lower(*result.trace);
  EXPECT_EQ(testing::tap_values(graph, "got"), (Values{9, 9}));
  EXPECT_EQ(testing::tap_values(graph, "rank3/got"), (Values{9, 8}));
}

TEST(Collective, CallsAmongRanksThatAreHereAreComputed) {
  const Joined result = of_two_ranks({"all_reduce", "sum"}, {2, 3}, {{1, 2}, {3, 5}}, {{4, 7}, {4, 7}});
  ASSERT_NE(result.trace, nullptr) << result.fault;
  EXPECT_EQ(names_of_taps(*result.trace), std::vector<std::string>{"got"});
  const Graph graph = lower(*result.trace);
  EXPECT_EQ(graph.coverage.opaque, 0u);
  EXPECT_EQ(testing::tap_values(graph, "got"), (Values{4, 7}));
}

TEST(Collective, ARankOutsideOfTheRunIsAFault) {
  const Joined result = of_two_ranks({"all_reduce", "sum"}, {2, 3, 4}, {{1, 2}, {3, 5}}, {{4, 7}, {4, 7}});
  EXPECT_EQ(result.trace, nullptr);
  EXPECT_NE(result.fault.find("with rank 4, and the run has 4 ranks"), std::string::npos) << result.fault;
}

TEST(Collective, RanksHereThatCallDifferentlyAreAFaultWhoeverIsElsewhere) {
  const Joined result = of_two_ranks({"all_reduce", "sum"}, {0, 1, 2, 3}, {{1, 2}, {3, 5, 6}}, {{9, 9}, {9, 9, 9}});
  EXPECT_EQ(result.trace, nullptr);
  EXPECT_TRUE(result.contradiction);
  EXPECT_NE(result.fault.find("rank 2 makes all_reduce (sum) of 2 "), std::string::npos) << result.fault;
}

TEST(Collective, WhatRanksHoldAlikeIsTakenOnce) {
  std::vector<std::shared_ptr<const Trace>> traces;
  for (int rank = 0; rank < 2; ++rank) {
    TraceBuilder b;
    const TensorRef w = b.leaf({2}, {1, 2}, kFormat, LeafRole::kParameter, "param:w");
    const TensorRef own = b.leaf({2}, {1.0 + rank, 2}, kFormat, LeafRole::kParameter, "param:v");
    b.tap("same", b.op1("aten::neg.default", {{"self", w}}, {2}, kFormat));
    b.trace.taps.back().terms[0].observed = b.payload(kFormat, {-1, -2});
    b.tap("other", b.op1("aten::neg.default", {{"self", own}}, {2}, kFormat));
    b.trace.taps.back().terms[0].observed = b.payload(kFormat, {-1.0 - rank, -2});
    traces.push_back(finished(b, rank));
  }
  const Joined result = join_ranks(traces, true);
  ASSERT_NE(result.trace, nullptr) << result.fault;
  std::vector<std::string> leaves, taps;
  for (const TraceLeaf& leaf : result.trace->leaves) leaves.push_back(leaf.name);
  for (const TraceTap& tap : result.trace->taps) taps.push_back(tap.name);
  EXPECT_EQ(leaves, (std::vector<std::string>{"param:w", "param:v", "rank1/param:v"}));
  EXPECT_EQ(taps, (std::vector<std::string>{"same", "rank0/other", "rank1/other"}));
  EXPECT_EQ(result.trace->ops.size(), 3u);
  EXPECT_TRUE(result.trace->replicated);
}

}  // namespace
}  // namespace plumbline
