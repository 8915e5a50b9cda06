// Nodes' parts of a step, made from the traces of their ranks, and the one verdict that follows from them.
#include "server/nodes/combine.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "server/nodes/part.h"
#include "tests/unit/lower/trace_builder.h"

namespace plumbline {
namespace {

using testing::TraceBuilder;
using Values = std::vector<double>;
using Integers = std::vector<std::int64_t>;

struct Call {
  std::string kind, reduction = "";
  std::int64_t root = -1;
  std::int64_t tag = -1;
  Format format = Format::kFloat32;
};

struct Rank {
  std::vector<Values> sends, receives;  // There is one for each part.
  Integers splits = {};
  std::map<std::string, std::pair<Values, Values>> parameters = {};  // Before and after.
  int calls = 1;
};

const StepIdentity kStep{"p", "j", "r", kAllRanks, 3};

std::shared_ptr<const Trace> trace_of(const Call& call, const Rank& rank, std::int32_t number, std::size_t ranks) {
  Integers group;
  for (std::size_t r = 0; r < ranks; ++r) group.push_back(static_cast<std::int64_t>(r));
  TraceBuilder b;
  for (std::int64_t again = 0; again < rank.calls; ++again) {
    const auto share = [&](std::int64_t part) {
      return std::vector<TraceArgument>{{"group", group},    {"call", again},
                                        {"part", part},      {"reduction", call.reduction},
                                        {"root", call.root}, {"tag", call.tag}};
    };
    for (std::size_t i = 0; i < rank.sends.size(); ++i) {
      const Values& values = rank.sends[i];
      auto arguments = share(static_cast<std::int64_t>(i));
      arguments.push_back({"splits", rank.splits});
      b.op1("plumbline::send." + call.kind, arguments, {static_cast<std::int64_t>(values.size())}, call.format);
      b.trace.ops.back().source = "train.py:7";
      b.observe(0, values);
    }
    if (rank.sends.empty()) {
      b.op1("plumbline::send." + call.kind, share(0), {0}, call.format);
      b.trace.ops.back().source = "train.py:7";
    }
    for (std::size_t i = 0; i < rank.receives.size(); ++i) {
      const Values& values = rank.receives[i];
      b.op1("plumbline::receive." + call.kind, share(static_cast<std::int64_t>(i)),
            {static_cast<std::int64_t>(values.size())}, call.format);
      b.observe(0, values);
    }
  }
  for (const auto& [name, content] : rank.parameters) {
    const Shape shape{static_cast<std::int64_t>(content.first.size())};
    const TensorRef before = b.leaf(shape, content.first, Format::kFloat32, LeafRole::kParameter, "param:" + name);
    const TensorRef after = b.op1("aten::add.Tensor", {}, shape, Format::kFloat32);
    TraceTap tap;
    tap.name = "update:" + name;
    tap.kind = TapKind::kUpdate;
    tap.terms = {{after, 1, b.payload(Format::kFloat32, content.second)}, {before, -1, 0}};
    b.trace.taps.push_back(tap);
  }
  b.trace.identity = {"p", "j", "r", number, 3};
  b.trace.digest = "digest " + std::to_string(number);
  return std::make_shared<const Trace>(b.trace);
}

v1::Verdict own_verdict(v1::Outcome outcome, v1::Grade grade, v1::Cause cause = v1::CAUSE_ROUNDING) {
  v1::Verdict verdict;
  verdict.set_id("p/j/r/0/3");
  verdict.set_verdict(outcome);
  verdict.set_grade(grade);
  verdict.set_cause(cause);
  verdict.set_sentence("So it is.");
  verdict.set_exec_resolution(1e-6);
  verdict.mutable_coverage()->set_operations(10);
  verdict.mutable_coverage()->set_audited(10);
  return verdict;
}

// Parts of nodes of so many ranks each.
std::vector<v1::NodePart> parts_of(const Call& call, const std::vector<Rank>& ranks, std::size_t of_node = 2,
                                   bool replicated = false) {
  std::vector<v1::NodePart> parts;
  for (std::size_t first = 0; first < ranks.size(); first += of_node) {
    std::vector<std::shared_ptr<const Trace>> traces;
    for (std::size_t r = first; r < std::min(ranks.size(), first + of_node); ++r)
      traces.push_back(trace_of(call, ranks[r], static_cast<std::int32_t>(r), ranks.size()));
    parts.push_back(make_part(traces, static_cast<std::int32_t>(ranks.size()), replicated, ieee()));
    set_verdict(own_verdict(v1::OUTCOME_TYPE_I, v1::GRADE_PROVEN), &parts.back());
  }
  return parts;
}

v1::Verdict combined(const std::vector<v1::NodePart>& parts, std::int32_t ranks, const std::string& fault = "") {
  StepOfNodes of{kStep, ranks, {}, fault, "5m"};
  for (const v1::NodePart& part : parts) of.parts.push_back(part.SerializeAsString());
  return combine(of);
}

v1::Verdict judged(const Call& call, const std::vector<Rank>& ranks, std::size_t of_node = 2) {
  return combined(parts_of(call, ranks, of_node), static_cast<std::int32_t>(ranks.size()));
}

void expect_held(const Call& call, const std::vector<Rank>& ranks) {
  SCOPED_TRACE(call.kind + " " + call.reduction);
  for (const std::size_t of_node : {1, 2, 3}) {
    if (of_node >= ranks.size()) continue;
    const v1::Verdict verdict = judged(call, ranks, of_node);
    EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_I) << verdict.DebugString();
    EXPECT_EQ(verdict.grade(), v1::GRADE_PROVEN) << verdict.DebugString();
    EXPECT_NE(verdict.sentence().find("what ranks got from other nodes is what was sent"), std::string::npos);
  }
  // And what any rank got wrong, in one element.
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (std::size_t part = 0; part < ranks[r].receives.size(); ++part) {
      for (std::size_t i = 0; i < ranks[r].receives[part].size(); ++i) {
        auto others = ranks;
        others[r].receives[part][i] += 1;
        const v1::Verdict verdict = judged(call, others, 1);
        EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_II) << verdict.DebugString();
        EXPECT_EQ(verdict.cause(), v1::CAUSE_EXECUTION);
        EXPECT_EQ(verdict.suspect().op(), call.kind);
        EXPECT_EQ(verdict.suspect().source(), "train.py:7");
        EXPECT_NE(verdict.sentence().find("ank " + std::to_string(r)), std::string::npos) << verdict.sentence();
      }
    }
  }
}

TEST(Combine, Reductions) {
  const std::vector<Values> sends = {{1, 2}, {3, 5}, {4, -7}};
  const auto of = [&](const Values& result) {
    std::vector<Rank> ranks;
    for (const Values& values : sends) ranks.push_back({{values}, {result}});
    return ranks;
  };
  expect_held({"all_reduce", "sum"}, of({8, 0}));
  expect_held({"all_reduce", "max"}, of({4, 5}));
  expect_held({"all_reduce", "min"}, of({1, -7}));
  expect_held({"all_reduce", "sum", -1, -1, Format::kInt64}, of({8, 0}));
  expect_held({"all_reduce", "sum"}, {{{{1, 2}}, {{4, 7}}}, {{{3, 5}}, {{4, 7}}}});
  expect_held({"all_reduce", "avg"}, {{{{1, 2}}, {{2, 3.5}}}, {{{3, 5}}, {{2, 3.5}}}});
  expect_held({"reduce", "sum", 1}, {{{{1, 2}}, {}}, {{{3, 5}}, {{4, 7}}}});
}

TEST(Combine, Movement) {
  expect_held({"broadcast", "", 1}, {{{}, {{3, 5}}}, {{{3, 5}}, {}}});
  expect_held({"all_gather"}, {{{{1, 2}}, {{1, 2}, {3}}}, {{{3}}, {{1, 2}, {3}}}});
  expect_held({"all_gather_flat"}, {{{{1, 2}}, {{1, 2, 3, 4}}}, {{{3, 4}}, {{1, 2, 3, 4}}}});
  expect_held({"gather", "", 0}, {{{{1, 2}}, {{1, 2}, {3, 4}}}, {{{3, 4}}, {}}});
  expect_held({"scatter", "", 0}, {{{{1, 2}, {3, 4}}, {{1, 2}}}, {{}, {{3, 4}}}});
  expect_held({"all_to_all"}, {{{{1}, {2}}, {{1}, {3}}}, {{{3}, {4}}, {{2}, {4}}}});
  expect_held({"all_to_all_flat"}, {{{{1, 2}}, {{1, 3}}}, {{{3, 4}}, {{2, 4}}}});
  expect_held({"all_to_all_flat"}, {{{{1, 2, 3}}, {{1, 4, 5}}, {1, 2}}, {{{4, 5, 6}}, {{2, 3, 6}}, {2, 1}}});
  expect_held({"reduce_scatter", "sum"}, {{{{1}, {2}}, {{4}}}, {{{3}, {4}}, {{6}}}});
  expect_held({"reduce_scatter_flat", "sum"}, {{{{1, 2}}, {{4}}}, {{{3, 4}}, {{6}}}});
}

// It is counted within a step, and a pipeline may receive in one what was sent in the step before.
TEST(Combine, AMessageIsThatOfItsNumberOrNothingIsSaidOfIt) {
  const auto message = [](const Values& got) {
    return judged({"point_to_point", "", 0, 0}, {{{{1, 2}}, {}}, {{}, {got}}}, 1);
  };
  EXPECT_EQ(message({1, 2}).verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_EQ(message({1, 2}).grade(), v1::GRADE_PROVEN);
  const v1::Verdict other = message({1, 3});
  EXPECT_EQ(other.verdict(), v1::OUTCOME_INCONCLUSIVE);
  EXPECT_NE(other.sentence().find("is not the message from rank 0, tag 0, number 0 in this step"), std::string::npos)
      << other.sentence();
  EXPECT_EQ(other.suspect().source(), "train.py:7");
}

// Where a rank lacks a call, the numbers of the others do not say which is which: results that seem wrong, and kinds
// that seem to differ, may be those of another call.
TEST(Combine, CallsOfAGroupThatAreNotEqualInNumberAccuseNobody) {
  const Rank rank{{{1, 2}}, {{2, 4}}}, wrong{{{1, 2}}, {{2, 5}}};
  Rank more = rank;
  more.calls = 2;
  const Call call{"all_reduce", "sum"};
  EXPECT_EQ(judged(call, {rank, wrong}, 1).verdict(), v1::OUTCOME_TYPE_II);
  const v1::Verdict verdict = judged(call, {more, wrong}, 1);
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_INCONCLUSIVE) << verdict.sentence();
  EXPECT_NE(verdict.sentence().find("rank 1 makes fewer"), std::string::npos) << verdict.sentence();
  const auto others = parts_of({"all_reduce", "max"}, {rank, rank}, 1);
  EXPECT_EQ(combined({parts_of(call, {more, rank}, 1)[0], others[1]}, 2).verdict(), v1::OUTCOME_INCONCLUSIVE);
}

TEST(Combine, AResultThatIsNotWaitedForIsNotCompared) {
  const Call call{"all_reduce", "sum"};
  const v1::Verdict verdict = judged(call, {{{{1, 2}}, {}}, {{{3, 4}}, {}}}, 1);
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_EQ(verdict.grade(), v1::GRADE_FIRST_ORDER);
  EXPECT_NE(verdict.DebugString().find("2 results were not compared: it was not there when the step ended"),
            std::string::npos)
      << verdict.DebugString();
  EXPECT_EQ(judged(call, {{{{}}, {}}, {{{}}, {}}}, 1).grade(), v1::GRADE_PROVEN) << "nothing was to be received";
}

TEST(Combine, WhatOneNodeFoundBesideRoundingIsTold) {
  const Rank rank{{{1, 2}}, {{2, 4}}};
  auto parts = parts_of({"all_reduce", "sum"}, {rank, rank}, 1);
  parts[1].mutable_verdict()->set_cause(v1::CAUSE_RANGE);
  parts[1].mutable_verdict()->set_sentence("The loss leaves the range.");
  parts[0].mutable_verdict()->mutable_coverage()->set_opaque(3);
  const v1::Verdict verdict = combined(parts, 2);
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_EQ(verdict.cause(), v1::CAUSE_RANGE);
  EXPECT_EQ(verdict.sentence(),
            "Rank 1: The loss leaves the range, and what ranks got from other nodes is what was sent. Of 20 operations "
            "3 are not modelled.");
}

// A large gradient, added in some order, on three nodes.
struct Gradient {
  explicit Gradient(Format format, std::size_t count, unsigned seed) : call{"all_reduce", "sum", -1, -1, format} {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    std::vector<Values> sent(6, Values(count));
    Values sum(count);
    for (Values& values : sent)
      for (double& value : values) value = round_to(format, normal(random));
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t first = random() % 6;
      for (std::size_t r = 0; r < 6; ++r) sum[i] = round_to(format, sum[i] + sent[(first + r) % 6][i]);
    }
    for (const Values& values : sent) ranks.push_back({{values}, {sum}});
  }
  Call call;
  std::vector<Rank> ranks;
};

TEST(Combine, LargeSumsAreComparedByProjections) {
  for (const Format format : {Format::kFloat32, Format::kBFloat16, Format::kFloat16, Format::kFloat64}) {
    Gradient gradient(format, 20000, 1);
    const v1::Verdict held = judged(gradient.call, gradient.ranks);
    EXPECT_EQ(held.verdict(), v1::OUTCOME_TYPE_I) << held.sentence() << held.suspect_detail();
    EXPECT_EQ(held.grade(), v1::GRADE_FIRST_ORDER) << "errors may cancel in projections";
    EXPECT_EQ(held.taps_size(), 6);
    double norm = 0;
    for (const Rank& rank : gradient.ranks)
      for (const double value : rank.sends[0]) norm += std::fabs(value);
    // An error of the size that the verdict states is found, wherever it is.
    const double error = held.taps(0).exec_resolution() * norm;
    for (const std::size_t at : {0, 12345, 19999}) {
      Gradient other(format, 20000, 1);
      double& element = other.ranks[4].receives[0][at];
      element = round_to(format, element + 1.1 * error);
      const v1::Verdict wrong = judged(other.call, other.ranks);
      EXPECT_EQ(wrong.verdict(), v1::OUTCOME_TYPE_II) << traits(format).name << " " << at;
      EXPECT_NE(wrong.sentence().find("rank 4"), std::string::npos) << wrong.sentence();
    }
  }
}

TEST(Combine, APartIsSmallHoweverLargeTheTensors) {
  const auto parts = parts_of(Gradient(Format::kFloat32, 100000, 2).call, Gradient(Format::kFloat32, 100000, 2).ranks);
  for (const v1::NodePart& part : parts) EXPECT_LT(part.ByteSizeLong(), 3000u);
}

TEST(Combine, CallsBeyondTheLimitAreCountedAndAccuseNobody) {
  Rank rank{{Values(1000, 1)}, {Values(1000, 3)}};
  rank.calls = 700;
  std::vector<Rank> ranks(3, rank);
  const auto parts = parts_of({"all_reduce", "sum"}, ranks, 1);
  EXPECT_GT(parts[0].calls_left_out(), 0u);
  EXPECT_LE(parts[0].ByteSizeLong(), kPartBytesMax + 4096);
  const v1::Verdict verdict = combined(parts, 3);
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_I) << verdict.sentence();
  EXPECT_NE(verdict.sentence().find("as far as it was compared"), std::string::npos);
  EXPECT_EQ(verdict.grade(), v1::GRADE_FIRST_ORDER);
}

TEST(Combine, NumbersThatAreNotFinite) {
  const double infinity = HUGE_VAL;
  // What was sent overflowed: nothing follows for the sum.
  v1::Verdict verdict = judged({"all_reduce", "sum"}, {{{{infinity}}, {{infinity}}}, {{{1}}, {{infinity}}}}, 1);
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_I) << verdict.sentence();
  EXPECT_NE(verdict.sentence().find("as far as"), std::string::npos);
  verdict = judged({"all_reduce", "sum"}, {{{{3e38}}, {{infinity}}}, {{{3e38}}, {{infinity}}}}, 1);
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_I) << verdict.sentence();
  // No order of these overflows.
  for (const double wrong : {infinity, -infinity, std::nan("")}) {
    verdict = judged({"all_reduce", "sum"}, {{{{1}}, {{wrong}}}, {{{2}}, {{3}}}}, 1);
    EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_II) << verdict.sentence();
  }
}

TEST(Combine, IntegersBeyondWhatASketchHoldsAreNotCompared) {
  const v1::Verdict verdict =
      judged({"all_reduce", "sum", -1, -1, Format::kInt64}, {{{{0x1p60}}, {{0}}}, {{{0x1p60}}, {{0}}}}, 1);
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_I);
  EXPECT_NE(verdict.sentence().find("as far as"), std::string::npos);
}

TEST(Combine, CallsThatDoNotFitTogether) {
  const Rank rank{{{1, 2}}, {{2, 4}}};
  auto parts = parts_of({"all_reduce", "sum"}, {rank, rank}, 1);
  const auto others = parts_of({"all_reduce", "max"}, {rank, rank}, 1);
  v1::Verdict verdict = combined({parts[0], others[1]}, 2);
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_II);
  EXPECT_EQ(verdict.cause(), v1::CAUSE_MATHEMATICS);
  EXPECT_NE(
      verdict.sentence().find("rank 0 makes all_reduce (sum) of 2 fp32 (train.py:7), and rank 1 all_reduce (max)"),
      std::string::npos)
      << verdict.sentence();
  parts[1].clear_calls();
  verdict = combined(parts, 2);
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_INCONCLUSIVE);
  EXPECT_NE(verdict.sentence().find("rank 1 makes fewer"), std::string::npos) << verdict.sentence();
}

TEST(Combine, RanksThatAreMissingAreNamed) {
  const Rank rank{{{1, 2}}, {{4, 8}}};
  auto parts = parts_of({"all_reduce", "sum"}, {rank, rank, rank, rank});
  const v1::Verdict silent = combined({parts[0]}, 4);
  EXPECT_EQ(silent.verdict(), v1::OUTCOME_INCONCLUSIVE);
  EXPECT_EQ(silent.sentence(),
            "Not judged as a whole: the trace of ranks 2, 3 is missing: nothing came from its daemon within 5m.");
  EXPECT_EQ(silent.ranks_here_size(), 2);
  EXPECT_EQ(silent.ranks_of_run(), 4);
  // One of a node's own ranks.
  const auto trace = trace_of({"all_reduce", "sum"}, rank, 2, 4);
  v1::NodePart half = part_without_calls({trace}, {3}, 4);
  v1::Verdict own = own_verdict(v1::OUTCOME_INCONCLUSIVE, v1::GRADE_UNSPECIFIED, v1::CAUSE_UNANSWERED);
  own.set_sentence("Not audited: the trace of rank 3 is missing.");
  set_verdict(own, &half);
  const v1::Verdict verdict = combined({parts[0], half}, 4);
  EXPECT_EQ(verdict.sentence(),
            "Not judged as a whole: the trace of rank 3 is missing: Not audited: the trace of rank 3 is missing.");
  // What was found is found.
  set_verdict(own_verdict(v1::OUTCOME_TYPE_II, v1::GRADE_PROVEN, v1::CAUSE_EXECUTION), &parts[0]);
  EXPECT_EQ(combined({parts[0]}, 4).verdict(), v1::OUTCOME_TYPE_II);
}

TEST(Combine, AnyNodesVerdictCounts) {
  const Rank rank{{{1, 2}}, {{2, 4}}};
  auto parts = parts_of({"all_reduce", "sum"}, {rank, rank}, 1);
  v1::Verdict open = own_verdict(v1::OUTCOME_INCONCLUSIVE, v1::GRADE_UNSPECIFIED, v1::CAUSE_UNANSWERED);
  set_verdict(open, &parts[0]);
  EXPECT_EQ(combined(parts, 2).verdict(), v1::OUTCOME_INCONCLUSIVE);
  EXPECT_EQ(combined(parts, 2).sentence(), "Rank 0: So it is.");
  v1::Verdict wrong = own_verdict(v1::OUTCOME_TYPE_II, v1::GRADE_FIRST_ORDER, v1::CAUSE_MATHEMATICS);
  wrong.mutable_suspect()->set_source("model.py:3");
  set_verdict(wrong, &parts[1]);
  const v1::Verdict verdict = combined(parts, 2);
  EXPECT_EQ(verdict.verdict(), v1::OUTCOME_TYPE_II);
  EXPECT_EQ(verdict.cause(), v1::CAUSE_MATHEMATICS);
  EXPECT_EQ(verdict.suspect().source(), "model.py:3");
  EXPECT_EQ(verdict.coverage().operations(), 20u);
  set_verdict(own_verdict(v1::OUTCOME_TYPE_I, v1::GRADE_STATISTICAL), &parts[0]);
  set_verdict(own_verdict(v1::OUTCOME_TYPE_I, v1::GRADE_PROVEN), &parts[1]);
  EXPECT_EQ(combined(parts, 2).grade(), v1::GRADE_STATISTICAL);
}

TEST(Combine, WhatCrossedWronglyComesBeforeWhatFollowsFromIt) {
  const Rank right{{{1, 2}}, {{2, 4}}}, wrong{{{1, 2}}, {{2, 5}}};
  auto parts = parts_of({"all_reduce", "sum"}, {right, wrong}, 1);
  set_verdict(own_verdict(v1::OUTCOME_TYPE_II, v1::GRADE_PROVEN, v1::CAUSE_INVARIANT), &parts[1]);
  const v1::Verdict verdict = combined(parts, 2);
  EXPECT_EQ(verdict.cause(), v1::CAUSE_EXECUTION);
  EXPECT_EQ(verdict.suspect().op(), "all_reduce");
}

TEST(Combine, ReplicasOfTwoNodesAreOne) {
  Rank rank{{{1, 2}}, {{2, 4}}};
  rank.parameters["w"] = {{1, 2, 3}, {2, 3, 4}};
  auto other = rank;
  EXPECT_EQ(combined(parts_of({"all_reduce", "sum"}, {rank, other}, 1, true), 2).verdict(), v1::OUTCOME_TYPE_I);
  other.parameters["w"].second[1] = 7;
  const v1::Verdict after = combined(parts_of({"all_reduce", "sum"}, {rank, other}, 1, true), 2);
  EXPECT_EQ(after.verdict(), v1::OUTCOME_TYPE_II);
  EXPECT_EQ(after.cause(), v1::CAUSE_INVARIANT);
  EXPECT_EQ(after.sentence(), "The ranks do not hold the same parameters after the step: param:w.");
  EXPECT_EQ(combined(parts_of({"all_reduce", "sum"}, {rank, other}, 1, false), 2).verdict(), v1::OUTCOME_TYPE_I);
  other.parameters["w"].first[1] = 7;
  EXPECT_NE(combined(parts_of({"all_reduce", "sum"}, {rank, other}, 1, true), 2).sentence().find("before the step"),
            std::string::npos);
}

TEST(Combine, PartsThatAreNotOfOneStep) {
  const Rank rank{{{1, 2}}, {{2, 4}}};
  const auto parts = parts_of({"all_reduce", "sum"}, {rank, rank}, 1);
  const auto says = [&](const std::function<void(v1::NodePart*)>& change) {
    auto others = parts;
    change(&others[1]);
    const v1::Verdict verdict = combined(others, 2);
    EXPECT_EQ(verdict.verdict(), v1::OUTCOME_INCONCLUSIVE);
    return verdict.sentence();
  };
  const auto found = [](const std::string& text, const char* words) { return text.find(words) != std::string::npos; };
  EXPECT_TRUE(
      found(says([](v1::NodePart* part) { part->set_version(2); }), "version 2, and this daemon reads up to 1"));
  EXPECT_TRUE(found(says([](v1::NodePart* part) { part->set_ranks(0, 2); }), "rank 2 is in one, and the run has 2"));
  EXPECT_TRUE(found(says([](v1::NodePart* part) { part->set_ranks(0, -1); }), "rank -1 is in one"));
  EXPECT_TRUE(found(says([](v1::NodePart* part) { part->set_ranks(0, 0); }), "rank 0 is in two"));
  EXPECT_TRUE(found(says([](v1::NodePart* part) { part->set_ranks_of_run(3); }), "a run of 3 ranks"));
  EXPECT_TRUE(found(says([](v1::NodePart* part) { part->clear_ranks(); }), "cannot be read"));
  EXPECT_TRUE(found(combined(parts, 2, "rank 1 streams to two daemons").sentence(), "streams to two daemons"));
  StepOfNodes damaged{kStep, 2, {"\xff\xff"}, "", ""};
  EXPECT_TRUE(found(combine(damaged).sentence(), "cannot be read"));
}

TEST(Combine, TheSamePartsGiveTheSameVerdict) {
  const Rank rank{{{1, 2}}, {{2, 4}}};
  const auto parts = parts_of({"all_reduce", "sum"}, {rank, rank}, 1);
  EXPECT_EQ(combined(parts, 2).SerializeAsString(), combined(parts, 2).SerializeAsString());
  EXPECT_NE(combined({parts[0]}, 2).digest(), combined(parts, 2).digest());
}

// Parts come from other machines: whatever is in one, it costs a verdict and nothing else.
TEST(Combine, DamagedPartsAreSurvived) {
  Gradient gradient(Format::kFloat32, 300, 5);
  std::vector<std::string> parts;
  for (const v1::NodePart& part : parts_of(gradient.call, gradient.ranks)) parts.push_back(part.SerializeAsString());
  const google::protobuf::LogSilencer silence;
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    StepOfNodes of{kStep, 6, parts, "", ""};
    std::string& bytes = of.parts[random() % of.parts.size()];
    for (unsigned change = 0; change <= random() % 4; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    EXPECT_NE(combine(of).verdict(), v1::OUTCOME_UNSPECIFIED);
  }
}

}  // namespace
}  // namespace plumbline
