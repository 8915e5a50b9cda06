#include "server/judge/surprise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "server/bound/compute.h"
#include "server/judge/judge.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Answer by_chance(double deviation, double bias, double spread, double worst_case) {
  Answer answer{true, deviation, worst_case, worst_case};
  answer.bias = bias;
  answer.spread = spread;
  return answer;
}
Answer by_elements(double ratio, double least_chance) {
  Answer answer{true, ratio * 1e-7, 1e-7};
  answer.least_chance = least_chance;
  return answer;
}

TEST(Surprise, OfAFunctionalIsTheTailsExponent) {
  const double x = std::sqrt(2 * std::log(2e9));  // 2 exp(-x^2 / 2) = 1e-9.
  EXPECT_NEAR(surprise(by_chance(1e-3 + x * 1e-4, 1e-3, 1e-4, 1), 1, 1e-3), 9, 1e-9);
  EXPECT_EQ(surprise(by_chance(1e-3, 1e-3, 1e-4, 1), 1, 1e-3), 0) << "bias alone";
  EXPECT_EQ(surprise(by_chance(1.1e-3, 1e-3, 1e-4, 1), 1, 1e-3), 0) << "often more";
  EXPECT_EQ(surprise(by_chance(0, 0, 0, 0), 1, 1e-3), 0);
  EXPECT_EQ(surprise(by_chance(2e-3, 0, 1e-3, 1.9e-3), 1, 1e-3), kInf) << "beyond the worst case";
  EXPECT_EQ(surprise(by_chance(1e-3, 0, 0, 1), 1, 1e-3), kInf) << "nothing rounds";
  EXPECT_EQ(surprise(by_chance(kInf, 0, 1e-3, 1), 1, 1e-3), kInf);
  EXPECT_EQ(surprise(by_chance(1, kInf, 1, kInf), 1, 1e-3), 0) << "anything is legal";
}

TEST(Surprise, OfElementsGrowsLessLikelyWithTheirNumber) {
  EXPECT_NEAR(surprise(by_elements(0.9, 1e-6), 1, 1e-3), 6, 1e-12);
  EXPECT_NEAR(surprise(by_elements(0.9, 1e-6), 1000, 1e-3), 3, 1e-12);
  EXPECT_EQ(surprise(by_elements(0.9999, 1e-4), 1'000'000, 1e-3), 0);
  EXPECT_EQ(surprise(by_elements(0, 1), 1000, 1e-3), 0);
  EXPECT_EQ(surprise(by_elements(1.01, 0), 1'000'000'000, 1e-3), kInf);
}

// A gap of two programs: the envelope is all that is known, and was taken at alpha.
TEST(Surprise, OfAnEnvelopeAloneIsAtLeastItsOwnAlpha) {
  const auto gap = [](double margin) { return surprise(Answer{true, margin * 1e-9, 1e-9, 1e-6}, 1, 1e-3); };
  EXPECT_EQ(gap(0.99), 0);
  EXPECT_NEAR(gap(1.0000001), 3, 1e-4);
  EXPECT_GT(gap(10), 300);
  EXPECT_EQ(gap(1001), kInf);
  Answer python{true, 1, 1e-9, 1e-9};
  python.python = 1e-12;
  EXPECT_EQ(surprise(python, 1, 1e-3), 0) << "numbers of unknown origin may be the reason";
}

class OfAVerdict : public testing::Test {
 protected:
  OfAVerdict() {
    const NodeId x = builder_.leaf({1}, {2});
    builder_.tap("loss", TapKind::kLoss, builder_.op(Primitive::kExp, {x}, {1}), {std::exp(2)});
  }
  Finding& add(const Answer& execution, std::uint64_t elements = 1) {
    Finding finding;
    finding.name = "loss";
    finding.taps = {0};
    finding.elements = elements;
    finding.execution = execution;
    bounds_.findings.push_back(finding);
    return bounds_.findings.back();
  }
  Verdict judged() { return judge({&builder_.graph, &bounds_, {}, false, ""}); }

  test::GraphBuilder builder_;
  Bounds bounds_;
};

TEST_F(OfAVerdict, IsThatOfItsLeastLikelyQuestionAsOneOfSoMany) {
  for (int i = 0; i < 10; ++i) add(by_elements(0.5, 0.5), 100).proven = true;
  bounds_.findings[3].execution = by_elements(0.99, 1e-5);
  const Verdict verdict = judged();
  EXPECT_EQ(verdict.outcome, Outcome::kTypeI);
  EXPECT_NEAR(verdict.taps[3].surprise, 3, 1e-12);
  EXPECT_EQ(verdict.taps[4].surprise, 0);
  EXPECT_NEAR(verdict.surprise, 2, 1e-12);
  EXPECT_NE(verdict.sentence.find("probability of at most 0.01 (surprise 2)"), std::string::npos) << verdict.sentence;
  EXPECT_TRUE(verdict.notes.empty());
  bounds_.findings[3].execution = by_elements(0.9999, 1e-7);
  EXPECT_NEAR(judged().surprise, 4, 1e-12);
  ASSERT_EQ(judged().notes.size(), 1u) << "beyond what the step may spend on false alarms";
  EXPECT_NE(judged().notes[0].find("surprise 4 is beyond 3"), std::string::npos) << judged().notes[0];
}

TEST_F(OfAVerdict, ProvenWrongIsInfinite) {
  add(by_elements(1.5, 0), 1000).proven = true;
  EXPECT_EQ(judged().outcome, Outcome::kTypeII);
  EXPECT_EQ(judged().surprise, kInf);
  EXPECT_EQ(judged().taps[0].surprise, kInf);
  bounds_.findings.clear();
  add(by_chance(1e-9, 0, 1e-7, 1e-6));
  bounds_.illegal_values.push_back({0, 1, 0.5});
  EXPECT_EQ(judged().surprise, kInf);
  EXPECT_EQ(judged().taps[0].surprise, 0) << "another tap's";
}

TEST_F(OfAVerdict, AGapCountsWhereItAccuses) {
  bounds_.paired = true;
  add(by_chance(1e-9, 0, 1e-7, 1e-6)).mathematics = {true, 1e-3, 1e-12, 1e-12};
  EXPECT_EQ(judged().outcome, Outcome::kTypeII);
  EXPECT_EQ(judged().surprise, kInf);
  bounds_.cuts_complete = false;  // Something that was not looked at may be the reason.
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
  EXPECT_EQ(judged().surprise, 0);
}

TEST_F(OfAVerdict, UnansweredQuestionsHaveNone) {
  EXPECT_TRUE(std::isnan(judged().surprise)) << "no tap";
  add({true, 0.3, 0.5, 0.5});
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
  EXPECT_TRUE(std::isnan(judged().surprise));
  EXPECT_TRUE(std::isnan(judged().taps[0].surprise));
  add(by_chance(1e-9, 0, 1e-7, 1e-6));
  EXPECT_EQ(judged().surprise, 0) << "of the other";
}

TEST_F(OfAVerdict, EqualOrReproducedIsNone) {
  Finding& loss = add(by_chance(2e-6, 0, 1e-7, 1e-6));
  EXPECT_EQ(judged().outcome, Outcome::kInconclusive);
  EXPECT_EQ(judged().surprise, kInf);
  bounds_.explained = true;
  EXPECT_EQ(judged().outcome, Outcome::kTypeI);
  EXPECT_EQ(judged().surprise, 0);
  loss.execution = by_chance(1e-9, 0, 1e-7, 1e-6);
  bounds_.all_taps_equal_reference = true;
  EXPECT_EQ(judged().grade, Grade::kMatch);
  EXPECT_EQ(judged().surprise, 0);
}

float rounded(double x) { return static_cast<float>(x); }

// One execution in fp32 of w' = w - lr g, g = x y, loss = sum x y, with sums in an order of its own. Where `w` lies
// just above 1, half a unit in the last place is nearly u |w|: there the elements' chances are exact, elsewhere too
// large.
Graph executed(std::mt19937_64& rng, std::int64_t n, double w_low, double w_high, int flipped = -1) {
  std::uniform_real_distribution<double> draw(-1, 1), weight(w_low, w_high);
  std::vector<double> x, y, w, g, updated;
  const float lr = 1e-6F;
  for (std::int64_t i = 0; i < n; ++i) {
    x.push_back(rounded(draw(rng)));
    y.push_back(rounded(draw(rng)));
    w.push_back(rounded(weight(rng)));
    g.push_back(rounded(x.back() * y.back()));
    updated.push_back(rounded(w.back() - rounded(lr * g.back())));
  }
  std::vector<double> left = g;
  std::shuffle(left.begin(), left.end(), rng);
  while (left.size() > 1) {
    const double last = left.back();
    left.pop_back();
    const std::size_t k = std::uniform_int_distribution<std::size_t>(0, left.size() - 1)(rng);
    left[k] = rounded(left[k] + last);
  }
  if (flipped >= 0) {
    auto bits = std::bit_cast<std::uint32_t>(rounded(updated[static_cast<std::size_t>(n / 3)]));
    updated[static_cast<std::size_t>(n / 3)] = std::bit_cast<float>(bits ^ (1u << flipped));
  }

  test::GraphBuilder b;
  const NodeId product = b.op(Primitive::kMul, {b.leaf({n}, x), b.leaf({n}, y)}, {n});
  b.tap("loss", TapKind::kLoss, b.sum_all(product), left);
  b.tap("grad:w", TapKind::kGradient, product, g);
  const NodeId step = b.op(Primitive::kMul, {product, b.leaf({}, {lr})}, {n});
  b.tap("weight:w", TapKind::kUpdate,
        b.op(Primitive::kSub, {b.leaf({n}, w, Format::kFloat32, "w", LeafRole::kParameter), step}, {n}), updated);
  return b.graph;
}

Verdict judged(const Graph& graph, std::uint64_t seed) {
  static const Profile profile;
  const Bounds bounds = compute_bounds({&graph, nullptr, &profile, seed});
  return judge({&graph, &bounds, {}, false, ""});
}

// The claim itself: of legal executions at most one in 10^s has a surprise of s or more. And near one in 10^s has,
// where roundings fill their half-widths: it is not idle.
TEST(Surprise, OfLegalExecutionsIsRare) {
  constexpr int kExecutions = 6000;
  struct Case {
    double low, high;
    bool sharp;
  };
  for (const Case& of : {Case{1.000002, 1.000004, true}, Case{-3, 3, false}}) {
    std::mt19937_64 rng(31);
    int beyond[4] = {};
    for (int k = 0; k < kExecutions; ++k) {
      const Verdict verdict = judged(executed(rng, 48, of.low, of.high), rng());
      ASSERT_EQ(verdict.outcome, Outcome::kTypeI) << verdict.sentence;
      ASSERT_FALSE(std::isnan(verdict.surprise));
      for (int s = 1; s <= 3; ++s) beyond[s] += verdict.surprise >= s ? 1 : 0;
    }
    for (int s = 1; s <= 3; ++s) {
      const double expected = kExecutions * std::pow(10, -s);
      EXPECT_LE(beyond[s], expected + 4 * std::sqrt(expected)) << "s " << s << " of weights from " << of.low;
    }
    // The update is one question of three: a third of what may be is.
    if (of.sharp) {
      EXPECT_GT(beyond[1], kExecutions / 40) << "it says something";
      EXPECT_GT(beyond[2], kExecutions / 600);
    }
  }
}

TEST(Surprise, OfAFlippedBitIsLarge) {
  std::mt19937_64 rng(32);
  for (const int bit : {2, 8, 15, 22}) {
    const Verdict verdict = judged(executed(rng, 48, 1, 1.5, bit), 7);
    EXPECT_EQ(verdict.outcome, Outcome::kTypeII) << bit;
    EXPECT_EQ(verdict.surprise, kInf) << bit;
  }
}

// Which no worst case sees: the loss is off by a tenth of what all of its roundings could do together.
TEST(Surprise, OfAnUnlikelyLossIsLarge) {
  std::mt19937_64 rng(33);
  constexpr std::int64_t kElements = 40'000;
  Graph graph = executed(rng, kElements, 1, 1.5);
  const Verdict healthy = judged(graph, 7);
  EXPECT_LT(healthy.surprise, 3);
  const auto loss = *std::ranges::find(healthy.taps, "loss", &TapVerdict::name);
  GraphTap& tap = graph.taps[0];
  const double exact = (loss.low + loss.high) / 2, half_width = (loss.high - loss.low) / 2;
  const double all = half_width / loss.envelope * loss.worst_case;
  ASSERT_GT(all, 20 * half_width);
  tap.terms[0].observed = test::encoded(Format::kFloat32, {exact + 0.1 * all});
  const Verdict moved = judged(graph, 7);
  EXPECT_NE(moved.outcome, Outcome::kTypeI);
  EXPECT_GT(moved.surprise, 9);
  EXPECT_LT(moved.surprise, kInf);
}

}  // namespace
}  // namespace plumbline
