#include "server/judge/judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// A graph with one scalar tap, "loss", and bounds with one finding on it.
class Judge : public testing::Test {
 protected:
  Judge() {
    const NodeId x = builder_.leaf({1}, {2});
    node_ = builder_.op(Primitive::kDiv, {x, x}, {1});
    builder_.tap("loss", TapKind::kLoss, node_, {1});
    Finding finding;
    finding.name = "loss";
    finding.taps = {0};
    finding.elements = 1;
    finding.execution = {true, 1e-7, 1e-5};
    bounds_.findings.push_back(finding);
  }
  Verdict judged() { return judge({&builder_.graph, &bounds_, changed_, false, ""}); }
  Finding& loss() { return bounds_.findings[0]; }

  test::GraphBuilder builder_;
  NodeId node_ = 0;
  Bounds bounds_;
  std::vector<std::string> changed_;
};

TEST_F(Judge, WithinTheEnvelopeIsTypeI) {
  const Verdict verdict = judged();
  EXPECT_EQ(verdict.outcome, Outcome::kTypeI);
  EXPECT_EQ(verdict.grade, Grade::kFirstOrder);
  EXPECT_EQ(verdict.cause, Cause::kRounding);
  EXPECT_NEAR(verdict.margin, 1e-2, 1e-12);
  EXPECT_EQ(verdict.exec_resolution, 1e-5);
  EXPECT_TRUE(std::isnan(verdict.math_resolution));
}

TEST_F(Judge, WhatWasToldOtherwiseIsNoPass) {
  bounds_.told_otherwise = {"w"};
  for (const bool paired : {false, true}) {
    bounds_.paired = bounds_.all_taps_equal_reference = paired;
    if (paired) loss().mathematics = {true, 0, 1e-12};
    const Verdict verdict = judged();
    EXPECT_EQ(verdict.outcome, Outcome::kInconclusive);
    EXPECT_EQ(verdict.cause, Cause::kUnanswered);
    EXPECT_NE(verdict.sentence.find("of w:"), std::string::npos) << verdict.sentence;
  }
}

TEST_F(Judge, BeyondAFirstOrderEnvelopeIsUnconfirmed) {
  loss().execution.deviation = 2e-5;
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
  EXPECT_EQ(judged().cause, Cause::kExecution);
}

TEST_F(Judge, BeyondAnEnclosureIsTypeII) {
  loss().execution.deviation = 2e-5;
  loss().proven = true;
  EXPECT_EQ(judged().outcome, Outcome::kTypeII);
  EXPECT_EQ(judged().grade, Grade::kProven);
  EXPECT_EQ(judged().cause, Cause::kExecution);
}

TEST_F(Judge, NanNeverPassesAndInfiniteEnvelopesSayNothing) {
  for (double envelope : {kNan, kInf, 0.2}) {
    loss().execution = {true, 1e-9, envelope};
    EXPECT_EQ(judged().outcome, Outcome::kInconclusive) << envelope;
    EXPECT_EQ(judged().cause, Cause::kUnanswered) << envelope;
  }
  loss().execution = {true, kNan, 1e-5};
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
  loss().execution = {true, kInf, 1e-5};
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
}

// |T - M| <= E: never both, and passed only where the comparison is true and the envelope says something.
TEST(Answer, ComparesWhatIsNotOrdinary) {
  constexpr double kSubnormal = 5e-324;
  const double values[] = {kNan, -kNan, kInf, 0.0, -0.0, kSubnormal, 2 * kSubnormal, 1e-300, 0.05, 1e308};
  for (const double deviation : values) {
    for (const double envelope : values) {
      const Answer answer{true, deviation, envelope, envelope};
      const bool says = envelope <= 0.1;
      EXPECT_EQ(answer.vacuous(), !says) << deviation << " of " << envelope;
      EXPECT_EQ(answer.passed(), says && deviation <= envelope) << deviation << " of " << envelope;
      EXPECT_EQ(answer.failed(), says && !(deviation <= envelope)) << deviation << " of " << envelope;
      EXPECT_EQ(answer.beyond_worst_case(), !(deviation <= envelope)) << deviation << " of " << envelope;
      const Answer unasked{false, deviation, envelope, envelope};
      EXPECT_FALSE(unasked.passed() || unasked.failed() || unasked.vacuous());
    }
  }
  EXPECT_TRUE((Answer{true, -0.0, 0.0, 0.0}.passed()));
  EXPECT_TRUE((Answer{true, kSubnormal, 0.0, 0.0}.failed()));
  EXPECT_TRUE((Answer{true, kNan, 0.05, 0.05}.failed()));
  EXPECT_TRUE((Answer{true, kInf, 0.05, 0.05}.failed()));
}

TEST_F(Judge, AVacuousEnvelopeIsTypeIOnlyWhenOurOwnRoundingReproducesTheResult) {
  loss().execution.envelope = 0.5;
  bounds_.explained = false;
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
  bounds_.explained = true;
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  EXPECT_EQ(judged().grade, Grade::kExplained);
}

TEST_F(Judge, ATapThatRoundingAloneDecidesSilencesNoneBesideIt) {
  builder_.tap("update:bias", TapKind::kUpdate, builder_.op(Primitive::kAbs, {node_}, {1}), {1});
  Finding bias;
  bias.name = "update:bias";
  bias.taps = {1};
  bias.elements = 10;
  bias.execution = {true, 1e-3, 0.5};
  bounds_.findings.push_back(bias);
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive) << "ten elements of eleven";
  loss().elements = 190;
  const Verdict verdict = judged();
  EXPECT_EQ(verdict.outcome, Outcome::kTypeI);
  EXPECT_EQ(verdict.grade, Grade::kFirstOrder);
  EXPECT_EQ(verdict.taps[1].outcome, Outcome::kInconclusive);
  ASSERT_EQ(verdict.notes.size(), 1u);
  EXPECT_NE(verdict.notes[0].find("5 % of the elements are open"), std::string::npos) << verdict.notes[0];
  EXPECT_NE(verdict.notes[0].find("update:bias (by 0.5 of its size)"), std::string::npos) << verdict.notes[0];
  bounds_.findings[1].execution.deviation = kNan;
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive) << "no legal rounding gives that";
}

TEST_F(Judge, AMatchedGapIsTypeIIAndNamesTheNormalisation) {
  bounds_.paired = true;
  loss().mathematics = {true, 1e-3, 1e-12};
  EXPECT_EQ(judged().grade, Grade::kFirstOrder);  // Not confirmed.
  loss().mathematics.confirmed = true;
  bounds_.suspicion = Suspicion{node_, "divides by 37, which the reference never does", true};
  const Verdict verdict = judged();
  EXPECT_EQ(verdict.outcome, Outcome::kTypeII);
  EXPECT_EQ(verdict.grade, Grade::kProven);
  EXPECT_EQ(verdict.cause, Cause::kMathematics);
  ASSERT_TRUE(verdict.suspect);
  EXPECT_EQ(verdict.suspect->op, "op:div");
  EXPECT_NE(verdict.suspect_detail.find("normalisation"), std::string::npos);
  EXPECT_EQ(verdict.math_resolution, 1e-12);
}

TEST_F(Judge, AMatchedGapBehindAnOpaqueOperationWithoutCounterpartAccusesNobody) {
  bounds_.paired = true;
  loss().mathematics = {true, 1e-3, 1e-12};
  builder_.graph.coverage.opaque = 1;
  EXPECT_EQ(judged().outcome, Outcome::kTypeII);  // Its counterpart was fed the same and taken to give the same.
  bounds_.cuts_complete = false;
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
}

TEST_F(Judge, TapsThatCannotBeComparedAreNoPass) {
  bounds_.paired = true;
  bounds_.unpaired_taps = {"'loss' (target only)"};
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
  EXPECT_NE(judged().sentence.find("no tap in common: 'loss' (target only)"), std::string::npos) << judged().sentence;
  bounds_.shape_conflicts = {"tap 'grad:w': target [2], reference [4]"};
  EXPECT_EQ(judged().outcome, Outcome::kTypeII);
  JudgeInput of_ranks{&builder_.graph, &bounds_, {}, false, ""};
  of_ranks.ranks = 2;
  EXPECT_EQ(judge(of_ranks).outcome, Outcome::kInconclusive);  // Each may hold a part.
}

TEST_F(Judge, DifferentDataIsALeafMismatch) {
  const NodeId batch = builder_.leaf({2, 3}, {}), half = builder_.leaf({3}, {}), larger = builder_.leaf({5, 3}, {}),
               places = builder_.leaf({4}, {}, Format::kInt64), words = builder_.leaf({9}, {}, Format::kInt64);
  bounds_.paired = true;
  loss().mathematics = {true, 1e-3, 1e-12};
  const auto cause = [&](NodeId of_target, NodeId of_reference) {
    bounds_.match.foreign_data = {of_target};
    bounds_.match.foreign_reference_data = {of_reference};
    const Verdict verdict = judge({&builder_.graph, &bounds_, {}, false, "", &builder_.graph});
    EXPECT_EQ(verdict.outcome, Outcome::kTypeII);
    return verdict.cause;
  };
  EXPECT_EQ(cause(batch, batch), Cause::kLeafMismatch);
  EXPECT_EQ(cause(half, batch), Cause::kLeafMismatch) << "a part of a batch";
  EXPECT_EQ(cause(larger, batch), Cause::kLeafMismatch) << "other rows of one length";
  EXPECT_EQ(cause(places, words), Cause::kMathematics) << "two forms of one program";
  EXPECT_EQ(cause(places, batch), Cause::kMathematics);
}

TEST_F(Judge, EqualMathematicsWithCarriedDriftIsTypeI) {
  bounds_.paired = true;
  loss().mathematics = {true, 1e-16, 1e-12};
  loss().drift = 1e-3;
  bounds_.match.drifted = {"param:w"};
  const Verdict verdict = judged();
  EXPECT_EQ(verdict.outcome, Outcome::kTypeI);
  ASSERT_FALSE(verdict.notes.empty());
  EXPECT_NE(verdict.notes[0].find("param:w"), std::string::npos);
}

TEST_F(Judge, AgreementByRoundingAloneIsNotProven) {
  bounds_.paired = true;
  loss().proven = true;
  loss().mathematics = {true, 0, 1e-12};
  EXPECT_EQ(judged().grade, Grade::kProven);
  loss().mathematics.deviation = 1e-16;  // A change of 1e-15 would pass as well.
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  EXPECT_EQ(judged().grade, Grade::kFirstOrder);
  loss().mathematics.deviation = 0;
  bounds_.match.items.push_back({Evidence::kRounding, false, 0, std::nullopt, Format::kUnknown});
  EXPECT_EQ(judged().grade, Grade::kFirstOrder);
}

TEST_F(Judge, AgreementWithABareValueIsNotProven) {
  loss().proven = true;
  loss().value = {true, 1e-6, 1e-5};
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  EXPECT_EQ(judged().grade, Grade::kFirstOrder);
  EXPECT_EQ(judged().taps.at(0).grade, Grade::kFirstOrder);
  loss().value.deviation = 0;
  EXPECT_EQ(judged().grade, Grade::kProven);
}

TEST_F(Judge, AgreementByTurnedDecisionsIsNoAnswer) {
  bounds_.paired = true;
  loss().mathematics = {true, 1e-3, 2e-3};
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  loss().mathematics.by_jumps = true;
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
}

TEST_F(Judge, StateThatDiffersAtTheFirstStepIsALeafMismatch) {
  bounds_.paired = true;
  loss().mathematics = {true, 1e-16, 1e-12};
  bounds_.match.foreign_state = {0};
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  JudgeInput first;
  first.graph = &builder_.graph;
  first.bounds = &bounds_;
  first.first_step_of_run = true;
  EXPECT_EQ(judge(first).outcome, Outcome::kTypeII);
  EXPECT_EQ(judge(first).cause, Cause::kLeafMismatch);
  ASSERT_TRUE(judge(first).suspect);
  bounds_.all_taps_equal_reference = true;  // Nothing that was asked for depends on it.
  EXPECT_EQ(judge(first).outcome, Outcome::kTypeI);
}

TEST_F(Judge, ABareValueMustBeBeyondEveryFormulaToAccuse) {
  loss().value = {true, 1.5e-5, 1e-5};
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
  loss().value = {true, 3e-5, 1e-5};
  EXPECT_EQ(judged().outcome, Outcome::kTypeII);
  loss().value.excuse = "decisions near a tie may have come out otherwise in the reference";
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
  EXPECT_NE(judged().sentence.find("near a tie"), std::string::npos);
  loss().value = {true, 0.9e-5, 1e-5};
  loss().value_resolution = 1e-5;
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  EXPECT_EQ(judged().math_resolution, 1e-5);
}

TEST_F(Judge, WhatASpecialReadingExplainsIsAPolicyOfPrecision) {
  loss().value = {true, 0.9e-5, 1e-5};
  bounds_.value_reading = {"if its parameters went through bf16", true, Format::kBFloat16};
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  EXPECT_EQ(judged().cause, Cause::kPrecisionPolicy);
  EXPECT_NE(judged().sentence.find("went through bf16"), std::string::npos);
}

TEST_F(Judge, AnInfinityThatNoRoundingMakesAccuses) {
  loss().value = {true, 0, 1e-5};
  bounds_.value_patterns = {{"loss", 0, 1, HUGE_VAL, 1.0, false}};
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
  bounds_.value_patterns[0].certain = true;
  EXPECT_EQ(judged().outcome, Outcome::kTypeII);
  EXPECT_EQ(judged().grade, Grade::kFirstOrder);
}

TEST_F(Judge, BitwiseEqualityIsAMatch) {
  bounds_.all_taps_equal_reference = true;
  EXPECT_EQ(judged().grade, Grade::kMatch);
  EXPECT_EQ(judged().margin, 0);
}

TEST_F(Judge, AChangedWeightIsAnInvariantWhateverElsePasses) {
  changed_ = {"param:w"};
  EXPECT_EQ(judged().outcome, Outcome::kTypeII);
  EXPECT_EQ(judged().cause, Cause::kInvariant);
  EXPECT_EQ(judged().suspect->op, "leaf param:w");
}

TEST_F(Judge, TheRangeLaneDecidesWhatIsNotFinite) {
  RangeFinding range;
  range.tap = "loss";
  range.first = node_;
  range.rounded_agrees = false;  // T overflowed, a legal execution does not
  bounds_.range = {range};
  EXPECT_EQ(judged().outcome, Outcome::kTypeII);
  EXPECT_EQ(judged().cause, Cause::kRange);

  bounds_.range[0].rounded_agrees = true;  // the format makes it overflow
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  EXPECT_EQ(judged().cause, Cause::kPrecisionPolicy);
  ASSERT_EQ(judged().hazards.size(), 1u);
  EXPECT_EQ(judged().hazards[0].kind, "overflow");

  bounds_.range[0].reference_finite = true;  // ... where the reference does not
  EXPECT_EQ(judged().outcome, Outcome::kTypeII);

  bounds_.range[0].borderline = true;  // ... by rounding alone
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  EXPECT_EQ(judged().cause, Cause::kRange);

  bounds_.range[0] = {"loss", false, false, false, false, false, node_};
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);

  bounds_.range[0].rounded_agrees = true;  // not finite by mathematics
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  ASSERT_EQ(judged().hazards.size(), 1u);
  EXPECT_EQ(judged().hazards[0].kind, "not_finite");
  EXPECT_EQ(judged().hazards[0].share, 1);
}

TEST_F(Judge, WhatIsNotModelledIsNeverProven) {
  loss().proven = true;
  EXPECT_EQ(judged().grade, Grade::kProven);
  builder_.graph.coverage.operations = 3;
  builder_.graph.coverage.opaque = 1;
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  EXPECT_EQ(judged().grade, Grade::kFirstOrder);
  EXPECT_NE(judged().sentence.find("Of 3 operations 1 are not modelled"), std::string::npos);
}

TEST_F(Judge, WhereMostOfTheWorkIsNotModelledNothingIsAnswered) {
  const NodeId given = builder_.leaf({4}, {1, 2, 3, 4}), aside = builder_.leaf({4}, {1, 2, 3, 4});
  builder_.graph.coverage.operations = 2;
  builder_.graph.coverage.opaque = 1;
  builder_.graph.opaque.push_back({0, "", {given}, {builder_.graph.nodes[node_].inputs[0]}, true});
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
  EXPECT_EQ(judged().cause, Cause::kUnanswered);
  EXPECT_EQ(judged().coverage.work, 6);  // One division, and an operation on four elements that gives one.
  EXPECT_EQ(judged().coverage.work_audited, 1);
  bounds_.paired = true;  // Its counterpart is given the same.
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  bounds_.paired = false;
  builder_.graph.opaque[0].outputs = {aside};  // Not on the way to the tap.
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  EXPECT_EQ(judged().coverage.work, 1);
  EXPECT_EQ(judged().coverage.work_audited, 1);
}

TEST_F(Judge, AnOpaqueProductOfMatricesIsAsMuchWorkAsAnyOther) {
  const NodeId a = builder_.leaf({2, 8}, std::vector<double>(16, 1)),
               b = builder_.leaf({8, 4}, std::vector<double>(32, 1)),
               c = builder_.leaf({2, 4}, std::vector<double>(8, 1));
  builder_.tap("product", TapKind::kValue, c, std::vector<double>(8, 1));
  builder_.graph.opaque.push_back({0, "", {a, b}, {c}, true});
  EXPECT_EQ(judged().coverage.work, 1 + 2 * 8 * 4);
}

TEST_F(Judge, NothingToJudgeIsNeverAPass) {
  bounds_.findings.clear();
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
}

TEST_F(Judge, ContributorsAreSharesByPlace) {
  loss().by_origin.assign(builder_.graph.origins.size(), 0.0);
  loss().by_origin.back() = 3.0;
  const Verdict verdict = judged();
  ASSERT_EQ(verdict.contributors.size(), 1u);
  EXPECT_EQ(verdict.contributors[0].share, 1.0);
  EXPECT_EQ(verdict.contributors[0].place.source, "test.py:1");
}

}  // namespace
}  // namespace plumbline
