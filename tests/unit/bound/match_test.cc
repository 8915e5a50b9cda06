#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "kernels/cpu/parallel.h"
#include "server/bound/compute.h"
#include "server/bound/match/margin.h"
#include "server/bound/match/readings.h"
#include "server/bound/replay/taps.h"
#include "tests/unit/bound/compared.h"

namespace plumbline {
namespace {

using test::agree;
using test::compared;
using test::GraphBuilder;
using test::held;
using test::kX;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> mapped(double (*f)(double)) {
  std::vector<double> values;
  for (double x : held(kX)) values.push_back(f(x));
  return held(values);
}

std::size_t with_evidence(const Bounds& bounds, Evidence evidence) {
  std::size_t found = 0;
  for (const MatchedItem& item : bounds.match.items) found += item.evidence == evidence;
  return found;
}

void tap_sum(GraphBuilder* b, NodeId node) { b->tap("loss", TapKind::kLoss, b->sum_all(node), {0}); }

TEST(Match, DrawsGoByContentWhateverTheirOrder) {
  const std::vector<double> first = held({0.3, 0.6, 0.1, 0.9}), second = held({0.2, 0.8, 0.7, 0.4});
  const auto program = [&](bool exchanged) {
    GraphBuilder b;
    const NodeId u = b.leaf({4}, first, Format::kFloat32, exchanged ? "#1" : "#0", LeafRole::kRandom);
    const NodeId v = b.leaf({4}, second, Format::kFloat32, exchanged ? "#0" : "#1", LeafRole::kRandom);
    tap_sum(&b, b.op(Primitive::kMul, {b.op(Primitive::kExp, {u}, {4}), v}, {4}));
    return b;
  };
  EXPECT_TRUE(agree(compared(program(false), program(true))));
}

// 0.1 times a standard normal draw is a draw of deviation 0.1, whatever the two generators gave.
TEST(Match, DrawsOfOneFamilyAreMovedToTheirOwnDistribution) {
  const auto program = [](const std::vector<double>& numbers, double drawn_with, double times) {
    GraphBuilder b;
    const NodeId z = b.leaf({4}, held(numbers), Format::kFloat32, "", LeafRole::kRandom);
    b.graph.draws.push_back(
        {z, 0, "normal", {0, drawn_with}, {}, {Draw::Parameter{std::nullopt, 0}, {std::nullopt, drawn_with}}});
    Attributes factor;
    factor.scalar = times;
    const NodeId by = b.op(Primitive::kConstant, {}, {}, Format::kFloat32, factor);
    tap_sum(&b, b.op(Primitive::kExp, {b.op(Primitive::kMul, {z, by}, {4})}, {4}));
    return b;
  };
  const std::vector<double> standard = {0.3, -1.2, 0.7, 2.1}, other = {0.25, 0.5, -0.125, 1};
  EXPECT_TRUE(agree(compared(program(standard, 1, 0.125), program(other, 0.125, 1))));
  EXPECT_FALSE(agree(compared(program(standard, 1, 0.125), program(other, 0.25, 1))));
}

TEST(Match, ATableThatTheOtherProgramComputesIsComputed) {
  GraphBuilder cached, computed;
  const NodeId x = computed.leaf({4}, held(kX)), y = cached.leaf({4}, held(kX));
  const NodeId table = cached.leaf({4}, mapped([](double v) { return std::exp(v); }), Format::kFloat32, "buffer:table",
                                   LeafRole::kBuffer);
  tap_sum(&cached, cached.op(Primitive::kMul, {y, table}, {4}));
  tap_sum(&computed, computed.op(Primitive::kMul, {x, computed.op(Primitive::kExp, {x}, {4})}, {4}));
  for (const Bounds& bounds : {compared(cached, computed), compared(computed, cached)}) {
    EXPECT_TRUE(agree(bounds));
    EXPECT_EQ(with_evidence(bounds, Evidence::kComputed), 1U);
  }
}

// What one program's optimizer leaves is what its next step begins with, however near it lies to what the other one's
// step begins with.
TEST(Match, WhatAStepBeginsWithIsNotComputedByTheOthersOptimizer) {
  for (const bool carried : {true, false}) {
    GraphBuilder target, reference;
    const std::vector<double> before = held(kX), after = mapped([](double v) { return v * (1 - 0x1p-20); });
    const LeafRole role = carried ? LeafRole::kParameter : LeafRole::kData;
    const NodeId own = target.leaf({4}, after, Format::kFloat32, carried ? "param:flat" : "", role);
    tap_sum(&target, target.op(Primitive::kExp, {own}, {4}));
    const NodeId theirs = reference.leaf({4}, before, Format::kFloat32, "param:w", LeafRole::kParameter);
    tap_sum(&reference, reference.op(Primitive::kExp, {theirs}, {4}));
    Attributes factor;
    factor.scalar = 1 - 0x1p-20;
    const NodeId by = reference.op(Primitive::kConstant, {}, {}, Format::kFloat32, factor);
    const NodeId updated = reference.op(Primitive::kMul, {theirs, by}, {4});
    reference.graph.origins.push_back({"aten::mul_.Tensor", "", "", Phase::kOptimizer});
    reference.graph.nodes[updated].origin = static_cast<std::uint32_t>(reference.graph.origins.size() - 1);
    reference.tap("update:w", TapKind::kUpdate, updated, after);
    EXPECT_EQ(with_evidence(compared(target, reference), Evidence::kComputed), carried ? 0U : 1U);
  }
}

// Rows of a kept table, by number, are what the other program computes of the numbers.
TEST(Match, RowsOfATableThatTheOtherProgramComputesAreComputed) {
  GraphBuilder cached, computed;
  const std::vector<double> numbers = {2, 0, 3, 2};
  const NodeId table = cached.leaf({4, 1}, mapped([](double v) { return std::exp(v); }), Format::kFloat32,
                                   "buffer:table", LeafRole::kBuffer);
  const NodeId index = cached.leaf({4}, numbers, Format::kInt64);
  tap_sum(&cached, cached.op(Primitive::kGatherRows, {table, index}, {4, 1}));
  std::vector<double> picked;
  for (double n : numbers) picked.push_back(kX[static_cast<std::size_t>(n)]);
  tap_sum(&computed, computed.op(Primitive::kExp, {computed.leaf({4, 1}, held(picked))}, {4, 1}));
  const Bounds bounds = compared(cached, computed);
  EXPECT_TRUE(agree(bounds));
  EXPECT_EQ(with_evidence(bounds, Evidence::kComputed), 1U);
  EXPECT_TRUE(bounds.match.target_freedoms.empty()) << "the table has no reader left";
}

// A number near one that cancels nearly all of its digits is no evidence. Where that would explain a difference nothing
// is decided, and where the item's own program computes that number beside it, it is no question.
TEST(Match, ANumberNearAWideOneIsNotTakenForIt) {
  enum class Held { kNothing, kBeside, kInPlace };
  const auto program = [](Held held_number, double given) {
    GraphBuilder b;
    const NodeId x = b.leaf({4}, held(kX)), terms = b.leaf({3}, held({1e7 / 3, -1e7 / 3, 1.0037}));
    NodeId made = 0;
    if (held_number != Held::kInPlace) {
      made = b.op(Primitive::kSum, {terms}, {1}, Format::kFloat32, [] {
        Attributes attributes;
        attributes.dims = {0};
        return attributes;
      }());
      b.tap("value", TapKind::kValue, made, {1.0037});
    }
    const NodeId by = held_number == Held::kNothing ? made : b.leaf({1}, held({given}));
    tap_sum(&b, b.op(Primitive::kExp, {b.op(Primitive::kMul, {x, by}, {4})}, {4}));
    return b;
  };
  const Bounds open = compared(program(Held::kInPlace, 1.01), program(Held::kNothing, 0));
  EXPECT_TRUE(open.taken_for);
  EXPECT_EQ(with_evidence(open, Evidence::kComputed), 1U);
  const Bounds other = compared(program(Held::kBeside, 1.01), program(Held::kBeside, 1.03));
  EXPECT_FALSE(agree(other));
  EXPECT_EQ(with_evidence(other, Evidence::kComputed), 0U);
  EXPECT_FALSE(other.taken_for);
}

// An infinity is near nothing.
TEST(Match, ANumberIsNoRoundingOfAnInfinity) {
  const auto program = [](double given) {
    GraphBuilder b;
    const NodeId x = b.leaf({4}, held(kX)), by = b.leaf({1}, held({given}));
    const NodeId infinite = b.op(Primitive::kReciprocal, {b.leaf({1}, {0})}, {1});
    const NodeId none = b.op(Primitive::kReciprocal, {infinite}, {1});
    tap_sum(&b, b.op(Primitive::kAdd, {b.op(Primitive::kMul, {x, by}, {4}), none}, {4}));
    return b;
  };
  EXPECT_FALSE(agree(compared(program(1.02), program(1.3))));
}

// One program multiplies by thirds that it was given, the other divides by 3.
TEST(Match, WhatHasNoCounterpartIsFreeAsFarAsItIsRounded) {
  const auto given = [](double third) {
    GraphBuilder b;
    const NodeId x = b.leaf({4}, held(kX)), factors = b.leaf({4}, held({third, third, third, third}));
    tap_sum(&b, b.op(Primitive::kExp, {b.op(Primitive::kMul, {x, factors}, {4})}, {4}));
    return b;
  };
  GraphBuilder divided;
  Attributes three;
  three.scalar = 3;
  const NodeId x = divided.leaf({4}, held(kX));
  const NodeId by = divided.op(Primitive::kConstant, {}, {}, Format::kFloat32, three);
  tap_sum(&divided, divided.op(Primitive::kExp, {divided.op(Primitive::kDiv, {x, by}, {4})}, {4}));
  const Bounds bounds = compared(given(1.0 / 3), divided);
  EXPECT_TRUE(agree(bounds));
  EXPECT_GT(bounds.findings.front().mathematics.freedom, 0);
  EXPECT_FALSE(agree(compared(given(1.0 / 3 + 1e-5), divided)));
}

// A temperature that one program was given as rounded to bf16. 12 has too few digits for that, unless bf16 holds it.
TEST(Match, ANumberThatSomebodyWroteIsNoRoundingOfAnother) {
  const auto program = [](double given, Format format) {
    GraphBuilder b;
    const NodeId x = b.leaf({4}, held(kX)), by = b.leaf({}, {round_to(format, given)}, format);
    tap_sum(&b, b.op(Primitive::kTanh, {b.op(Primitive::kDiv, {x, by}, {4})}, {4}));
    return b;
  };
  const auto evidence = [&](double wide, double narrow, Format format) {
    return with_evidence(compared(program(wide, Format::kFloat32), program(narrow, format)), Evidence::kRounding);
  };
  EXPECT_EQ(evidence(0.1, round_to(Format::kBFloat16, 0.1), Format::kFloat32), 1U);
  EXPECT_EQ(evidence(12.012, 12.0, Format::kBFloat16), 1U);
  EXPECT_EQ(evidence(12.012, 12.0, Format::kFloat32), 0U);
  EXPECT_FALSE(agree(compared(program(12.012, Format::kFloat32), program(12.0, Format::kFloat32))));
}

// Data that differs in one element is free there alone: a label that is off is not hidden by the rounding of all
// others.
TEST(Match, OfDataThatDiffersInAnElementOnlyThatOneIsFree) {
  const auto program = [](double last) {
    GraphBuilder b;
    const NodeId x = b.leaf({4}, held({1e6 / 3, 2e6 / 3, 7e6 / 9, last}));
    tap_sum(&b, b.op(Primitive::kTanh, {x}, {4}));
    return b;
  };
  const Bounds bounds = compared(program(1.0 / 3), program(1.0 / 3 + 1e-6));
  EXPECT_FALSE(agree(bounds));
  for (const Finding& finding : bounds.findings) EXPECT_LT(finding.mathematics.freedom, 1e-6);
}

// A rounding that one program does once and the other in two rows of a batch.
TEST(Match, ADecisionThatIsTakenTwiceHasItsCounterpart) {
  const std::vector<double> x = {0.1, 0.7, 1.3, 2.2};
  const auto program = [&](bool twice) {
    GraphBuilder b;
    const NodeId leaf = b.leaf({4}, held(x));
    const auto codes = [&] { return b.op(Primitive::kRound, {b.op(Primitive::kNeg, {leaf}, {4})}, {4}); };
    const NodeId first = codes(), second = twice ? codes() : first;
    tap_sum(&b, b.op(Primitive::kAdd, {first, second}, {4}));
    return b;
  };
  for (const bool twice : {false, true}) {
    const Bounds bounds = compared(program(twice), program(!twice));
    EXPECT_TRUE(agree(bounds));
    EXPECT_TRUE(bounds.match.target_grids.empty() && bounds.match.reference_grids.empty());
  }
}

// Rows of a table by a position that is open by one: the other row is what may come of it.
TEST(Match, ARowThatIsTakenByAnOpenNumberMayBeTheNext) {
  const auto program = [](bool computed, double times) {
    GraphBuilder b;
    const NodeId table = b.leaf({3, 1}, held({0.1, 0.2, 0.3}));
    // exp(0) lies next to 1, as the other program's data say.
    const NodeId x = b.op(Primitive::kExp, {b.leaf({2}, {0, 0.5})}, {2});
    const NodeId row = computed ? b.op(Primitive::kFloor, {x}, {2}) : b.leaf({2}, {1, 1});
    const NodeId index =
        computed ? b.op(Primitive::kCast, {row}, {2}, Format::kInt64) : b.leaf({2}, {1, 1}, Format::kInt64);
    const NodeId picked = b.op(Primitive::kGatherRows, {table, index}, {2, 1});
    Attributes factor;
    factor.scalar = times;
    const NodeId by = b.op(Primitive::kConstant, {}, {}, Format::kFloat32, factor);
    tap_sum(&b, b.op(Primitive::kMul, {b.op(Primitive::kExp, {picked}, {2, 1}), by}, {2, 1}));
    return b;
  };
  EXPECT_TRUE(agree(compared(program(true, 1), program(false, 1))));
  EXPECT_FALSE(agree(compared(program(true, 4), program(false, 1)))) << "farther than any row";
}

TEST(Match, AGradientThatOneProgramLacksIsMissingUnlessItIsZero) {
  const auto program = [](bool both, double second) {
    GraphBuilder b;
    const NodeId v = b.leaf({1}, {0.5}, Format::kFloat32, "param:v", LeafRole::kParameter);
    const NodeId w = b.leaf({1}, {second}, Format::kFloat32, "param:w", LeafRole::kParameter);
    const NodeId gv = b.op(Primitive::kNeg, {v}, {1}), gw = b.op(Primitive::kNeg, {w}, {1});
    b.tap("grad:v", TapKind::kGradient, gv, {-0.5});
    if (both) b.tap("grad:w", TapKind::kGradient, gw, {-second});
    return b;
  };
  const Bounds lost = compared(program(false, 0.25), program(true, 0.25));
  ASSERT_EQ(lost.missing_taps.size(), 1U);
  EXPECT_EQ(lost.missing_taps[0].tap, "grad:w");
  EXPECT_TRUE(lost.missing_taps[0].in_reference);
  EXPECT_TRUE(compared(program(false, 0), program(true, 0)).missing_taps.empty());
}

// What backward left, and what is given: masked, in one program after backward and in the other within it.
TEST(Match, OfTwoReadingsOfAGradientTheClosestArePaired) {
  const auto program = [](bool changes, const std::vector<double>& mask) {
    GraphBuilder b;
    const NodeId w = b.leaf({4}, held({0.5, 0.25, 2, 1}), Format::kFloat32, "param:w", LeafRole::kParameter);
    const NodeId left = b.op(Primitive::kNeg, {w}, {4});
    const NodeId given = b.op(Primitive::kMul, {left, b.leaf({4}, mask)}, {4});
    const std::vector<double> masked = {-0.5 * mask[0], -0.25 * mask[1], -2 * mask[2], -1 * mask[3]};
    if (changes) b.tap("given:w", TapKind::kGradient, given, masked);
    b.tap("grad:w", TapKind::kGradient, changes ? left : given, changes ? held({-0.5, -0.25, -2, -1}) : masked);
    return b;
  };
  const std::vector<double> mask = {1, 0, 1, 0}, other = {0, 1, 0, 1}, none = {1, 1, 1, 1};
  for (const bool target : {false, true})
    for (const bool reference : {false, true}) {
      const Bounds bounds = compared(program(target, mask), program(reference, mask));
      EXPECT_TRUE(agree(bounds)) << target << reference;
      EXPECT_TRUE(bounds.unpaired_taps.empty() && bounds.missing_taps.empty());
    }
  EXPECT_TRUE(agree(compared(program(true, mask), program(false, none)))) << "Its update is masked, or forgotten.";
  EXPECT_TRUE(agree(compared(program(true, mask), program(true, other)))) << "Backward left the same.";
  EXPECT_FALSE(agree(compared(program(true, other), program(false, mask))));
  EXPECT_FALSE(agree(compared(program(false, mask), program(true, other))));
}

// Scaled after backward, and told as it was before too; or scaled within backward, or its loss with it.
TEST(Match, OfALossAndAGradientThatWereScaledTheClosestReadingsArePaired) {
  struct Program {
    bool scales;        // After backward.
    double loss, left;  // What it computes, and what backward leaves of the gradient.
  };
  const auto built = [](const Program& program) {
    GraphBuilder b;
    const NodeId x = b.leaf({1}, {0.5}, Format::kFloat32, "param:w", LeafRole::kParameter);
    const auto times = [&](NodeId a, double factor) { return b.op(Primitive::kMul, {a, b.leaf({1}, {factor})}, {1}); };
    const NodeId loss = times(x, program.loss), left = times(x, program.left);
    const auto tell = [&](const std::string& name, TapKind kind, NodeId node, double value) {
      if (program.scales) b.tap("unscaled:" + name, kind, node, {value});
      b.tap(name, kind, program.scales ? times(node, 0.25) : node, {program.scales ? value / 4 : value});
    };
    tell("loss", TapKind::kLoss, loss, program.loss / 2);
    tell("grad:w", TapKind::kGradient, left, program.left / 2);
    return b;
  };
  const Program scales{true, 3, 3}, averages{false, 0.75, 0.75}, hooks{false, 3, 0.75}, wrong{true, 3, 6};
  for (const Program& target : {scales, averages, hooks})
    for (const Program& reference : {scales, averages, hooks}) {
      const bool same = target.scales || reference.scales || target.loss == reference.loss;
      const Bounds bounds = compared(built(target), built(reference));
      EXPECT_EQ(agree(bounds), same) << target.scales << reference.scales;
      EXPECT_TRUE(bounds.unpaired_taps.empty() && bounds.missing_taps.empty());
    }
  for (const Program& reference : {scales, averages, hooks}) {
    EXPECT_FALSE(agree(compared(built(wrong), built(reference))));
    EXPECT_FALSE(agree(compared(built(reference), built(wrong))));
  }
}

TEST(Match, ReadingsAreNamedByWhatTheyRead) {
  EXPECT_EQ(first_reading("rank1/given:w#1"), "rank1/grad:w#1");
  EXPECT_EQ(first_reading("unscaled:loss"), "loss");
  EXPECT_EQ(first_reading("given:loss"), "grad:loss");
  EXPECT_FALSE(is_other_reading("unscaled:lossy"));  // Somebody's own name.
  EXPECT_EQ(all_readings("rank1/unscaled:grad:w"),
            (std::vector<std::string>{"rank1/grad:w", "rank1/given:w", "rank1/unscaled:grad:w"}));
  EXPECT_EQ(all_readings("update:w"), std::vector<std::string>{"update:w"});
}

TEST(Match, AnUpdateThatTheOtherProgramTellsAsWhatTheParameterBecomesIsNotMissing) {
  const auto program = [](bool as_update) {
    GraphBuilder b;
    const NodeId w = b.leaf({1}, {0.5}, Format::kFloat32, "param:w", LeafRole::kParameter);
    const NodeId after = b.op(Primitive::kNeg, {w}, {1});
    b.tap(as_update ? "update:w" : "param:w", as_update ? TapKind::kUpdate : TapKind::kState, after, {-0.5});
    return b;
  };
  for (const bool as_update : {false, true}) {
    const Bounds bounds = compared(program(as_update), program(!as_update));
    EXPECT_TRUE(bounds.missing_taps.empty());
    EXPECT_EQ(bounds.told_otherwise, std::vector<std::string>{"w"});
  }
}

// Where the other program has nothing like it, the place is the parameter's first use; where its branch was cut, the
// first value on the way to the gradient that the other program does not have.
TEST(Match, WhatIsMissingHasItsPlace) {
  const auto program = [](bool used, bool reached) {
    GraphBuilder b;
    const NodeId x = b.leaf({4}, held(kX));
    const NodeId v = b.leaf({4}, held({1, 2, 3, 4}), Format::kFloat32, "param:v", LeafRole::kParameter);
    const NodeId w = b.leaf({4}, held({0.5, 0.25, 2, 1}), Format::kFloat32, "param:w", LeafRole::kParameter);
    const NodeId scaled = used ? b.op(Primitive::kMul, {x, w}, {4}) : x;
    tap_sum(&b, b.op(Primitive::kMul, {scaled, v}, {4}));
    b.tap("grad:v", TapKind::kGradient, b.op(Primitive::kExp, {scaled}, {4}), {1, 1, 1, 1});
    if (reached) {
      const NodeId on_the_way = b.op(Primitive::kSigmoid, {v}, {4});
      b.tap("grad:w", TapKind::kGradient, b.op(Primitive::kMul, {on_the_way, x}, {4}), {1, 1, 1, 1});
    }
    return b;
  };
  const GraphBuilder whole = program(true, true);
  const Bounds cut = compared(program(true, false), whole);
  ASSERT_EQ(cut.missing_taps.size(), 1U);
  EXPECT_EQ(whole.graph.nodes[cut.missing_taps[0].node].primitive, Primitive::kSigmoid);
  GraphBuilder unused = program(false, false);
  unused.tap("update:w", TapKind::kUpdate, 2, {0.5, 0.25, 2, 1});  // It has the parameter, and takes it nowhere.
  const Bounds left_out = compared(unused, whole);
  ASSERT_EQ(left_out.missing_taps.size(), 1U);
  EXPECT_TRUE(left_out.missing_taps[0].unused);
  EXPECT_EQ(whole.graph.nodes[left_out.missing_taps[0].node].primitive, Primitive::kMul);
}

TEST(Match, ALargeElementHidesNoSmallOne) {
  const auto program = [](double factor) {
    GraphBuilder b;
    const NodeId large = b.leaf({2}, {0x1p60, 0x1p59}), small = b.leaf({2}, held({0.1, 0.3}));
    Attributes scale;
    scale.scalar = factor;
    const NodeId by = b.op(Primitive::kConstant, {}, {}, Format::kFloat64, scale);
    Attributes attributes;
    attributes.size = 4;
    attributes.views = {View{{2}, {1}, 0}, View{{2}, {1}, 2}};
    const NodeId scaled = b.op(Primitive::kMul, {small, by}, {2}, Format::kFloat64);
    const NodeId all = b.op(Primitive::kAssemble, {large, scaled}, {4}, Format::kFloat64, attributes);
    b.tap("y", TapKind::kValue, all, {0x1p60, 0x1p59, 0.1, 0.3});
    return b;
  };
  // Written in another way, so that the programs are two.
  EXPECT_TRUE(agree(compared(program(1), program(1))));
  const Bounds bounds = compared(program(1 + 1e-6), program(1));
  EXPECT_FALSE(agree(bounds));
  bool by_itself = false;
  for (const Finding& finding : bounds.findings)
    by_itself = by_itself || (finding.name == "y[2]" && finding.mathematics.failed() && finding.mathematics.confirmed);
  EXPECT_TRUE(by_itself);
}

// Replays and sweeps of a pair go on at once where a processor is free: what is found is the same where none is.
TEST(Match, WhatIsFoundDoesNotHangOnFreeProcessors) {
  const auto program = [](bool exchanged) {
    std::mt19937 rng(11);
    GraphBuilder b;
    const Shape square = {96, 96};
    NodeId x = b.leaf(square, test::normal(rng, 96 * 96)), y = b.leaf(square, test::normal(rng, 96 * 96));
    for (int layer = 0; layer < 3; ++layer) {
      const NodeId product = b.op(Primitive::kMatmul, {x, y}, square);
      y = b.op(Primitive::kTanh,
               {b.op(Primitive::kAdd, exchanged ? std::vector{y, product} : std::vector{product, y}, square)}, square);
    }
    b.tap("loss", TapKind::kLoss, b.sum_all(y), {0});
    b.tap("grad:a", TapKind::kGradient, y, std::vector<double>(96 * 96, 0));
    return b;
  };
  const GraphBuilder target = program(false), reference = program(true);
  const Bounds free = compared(target, reference);
  std::vector<std::unique_ptr<cpu::Computing>> audits;
  while (std::ssize(audits) < cpu::threads()) audits.push_back(std::make_unique<cpu::Computing>());
  const Bounds busy = compared(target, reference);
  ASSERT_EQ(free.findings.size(), busy.findings.size());
  for (std::size_t i = 0; i < free.findings.size(); ++i) {
    EXPECT_EQ(free.findings[i].name, busy.findings[i].name);
    EXPECT_EQ(free.findings[i].mathematics.envelope, busy.findings[i].mathematics.envelope);
    EXPECT_EQ(free.findings[i].mathematics.deviation, busy.findings[i].mathematics.deviation);
    EXPECT_EQ(free.findings[i].execution.envelope, busy.findings[i].execution.envelope);
    EXPECT_GT(free.findings[i].mathematics.envelope, 0);
  }
}

// A user may call a tap as the group of all gradients is called: they stay two questions.
TEST(Match, ATapWithTheNameOfAGroupIsAskedByItself) {
  const auto program = [](double factor, bool exchanged) {
    std::mt19937 rng(5);
    GraphBuilder b;
    const auto all = [&](double number) {
      Attributes wide;
      wide.view = {{64}, {0}, 0};
      return b.op(Primitive::kWindow, {b.leaf({}, {number})}, {64}, Format::kFloat32, wide);
    };
    const NodeId x = b.leaf({64}, test::normal(rng, 64)), y = b.leaf({64}, test::normal(rng, 64));
    const NodeId sum = b.op(Primitive::kAdd, exchanged ? std::vector{y, x} : std::vector{x, y}, {64});
    const NodeId far = all(1e30), lost = b.op(Primitive::kSub, {b.op(Primitive::kAdd, {sum, far}, {64}), far}, {64});
    b.tap("all gradients", TapKind::kValue, lost, std::vector<double>(64, 0));
    const NodeId gradient = b.op(Primitive::kMul, {sum, all(factor)}, {64});
    for (const char* name : {"grad:a", "grad:b"}) b.tap(name, TapKind::kGradient, gradient, std::vector<double>(64, 0));
    return b;
  };
  const Bounds bounds = compared(program(1.001, false), program(1, true));
  int groups = 0;
  for (const Finding& finding : bounds.findings) {
    if (finding.taps.size() != 2) continue;
    ++groups;
    EXPECT_NE(finding.name, "all gradients");
    EXPECT_TRUE(finding.mathematics.failed());
  }
  EXPECT_EQ(groups, 1);
}

TEST(Match, InfinitiesAreComparedInTheirPatternAndWhatIsFiniteByItself) {
  const auto program = [](double factor, double masked) {
    GraphBuilder b;
    const NodeId x = b.leaf({3}, held({0.1, 0.3, 0.7})), mask = b.leaf({3}, {0, masked, 0});
    Attributes scale;
    scale.scalar = factor;
    const NodeId by = b.op(Primitive::kConstant, {}, {}, Format::kFloat64, scale);
    const NodeId scores = b.op(Primitive::kAdd, {b.op(Primitive::kMul, {x, by}, {3}), mask}, {3});
    b.tap("scores", TapKind::kValue, scores, {0.1, masked == 0 ? 0.3 : masked, 0.7});
    return b;
  };
  EXPECT_TRUE(agree(compared(program(1, -kInfinity), program(1, -kInfinity))));
  EXPECT_FALSE(agree(compared(program(1 + 1e-6, -kInfinity), program(1, -kInfinity))));
  EXPECT_FALSE(agree(compared(program(1, -kInfinity), program(1, 0))));
}

TEST(Margins, AnOrderIsOpenWhereSomeElementMayTurn) {
  std::mt19937 rng(3);
  const std::vector<double> apart = {kInfinity, -kInfinity, std::nan(""), 1e300, 0.75, -2};
  int open = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<double> a = test::normal(rng, 6), b = test::normal(rng, 6);
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (rng() % 4 == 0) a[i] = apart[rng() % apart.size()];
      if (rng() % 4 == 0) b[i] = apart[rng() % apart.size()];
    }
    if (round % 2 == 0) b[round % 6] = a[round % 6] * (1 + 0x1p-23);
    GraphBuilder g;
    const NodeId x = g.leaf({6}, a, Format::kFloat64), y = g.leaf({6}, b, Format::kFloat64);
    const NodeId node = g.op(Primitive::kLess, {x, y}, {6}, Format::kBool);
    tap_sum(&g, g.op(Primitive::kCast, {node}, {6}));
    const Replay exact = replay(g.graph, leaf_values(g.graph), Precision::kExact);
    const Margins margins({g.graph, exact}, node, nullptr, round % 3 == 0 ? 0 : 0x1p-21);
    bool some = false;
    for (std::int64_t i = 0; i < 6; ++i) some = some || margins.jump(i) > 0;
    EXPECT_EQ(margins.open(), some) << round;
    open += some ? 1 : 0;
  }
  EXPECT_GT(open, 40);
  EXPECT_LT(open, 360);
}

// What is near zero as its terms cancel is off by what these are, not by what is left of them.
TEST(Margins, ASignOfADifferenceIsOpenWhereItsTermsMayMeet) {
  for (const Primitive primitive : {Primitive::kSub, Primitive::kAdd}) {
    GraphBuilder g;
    const double second = primitive == Primitive::kSub ? 1 : -1;
    const NodeId a = g.leaf({3}, {1, 1, 1}), b = g.leaf({3}, {second * (1 + 0x1p-22), second * (1 - 0x1p-22), 0});
    const NodeId apart = g.op(primitive, {a, b}, {3}), sign = g.op(Primitive::kSign, {apart}, {3});
    g.tap("sign", TapKind::kValue, sign, {-1, 1, 1});
    const Replay exact = replay(g.graph, leaf_values(g.graph), Precision::kExact);
    const Margins margins({g.graph, exact}, sign, nullptr, 0x1p-21);
    EXPECT_EQ(margins.jump(0), 2);
    EXPECT_EQ(margins.jump(1), 2);
    EXPECT_EQ(margins.jump(2), 0);
  }
}

}  // namespace
}  // namespace plumbline
