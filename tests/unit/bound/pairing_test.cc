#include <gtest/gtest.h>

#include <cmath>

#include "server/bound/compute.h"
#include "server/bound/replay/arithmetic.h"
#include "server/bound/replay/replay.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

const Profile& profile() {
  static const Profile instance;
  return instance;
}

Bounds paired(const Graph& target, const Graph& reference) {
  return compute_bounds({&target, &reference, &profile(), 42});
}

const Finding& finding(const Bounds& bounds, const std::string& name) {
  for (const Finding& candidate : bounds.findings)
    if (candidate.name == name) return candidate;
  throw std::runtime_error("no finding " + name);
}

// a/b + c/d against (a + c)/(b + d): the mean of means.
GraphBuilder mean_of_means(double a, double b, double c, double d) {
  GraphBuilder g;
  const NodeId na = g.leaf({}, {a}), nb = g.leaf({}, {b}), nc = g.leaf({}, {c}), nd = g.leaf({}, {d});
  const NodeId first = g.op(Primitive::kDiv, {na, nb}, {}), second = g.op(Primitive::kDiv, {nc, nd}, {});
  const NodeId half = g.leaf({}, {0.5});
  const NodeId mean = g.op(Primitive::kMul, {g.op(Primitive::kAdd, {first, second}, {}), half}, {});
  g.tap("loss", TapKind::kLoss, mean, {(a / b + c / d) / 2});
  return g;
}

GraphBuilder mean_of_all(double a, double b, double c, double d) {
  GraphBuilder g;
  const NodeId na = g.leaf({}, {a}), nb = g.leaf({}, {b}), nc = g.leaf({}, {c}), nd = g.leaf({}, {d});
  const NodeId top = g.op(Primitive::kAdd, {na, nc}, {}), bottom = g.op(Primitive::kAdd, {nb, nd}, {});
  g.tap("loss", TapKind::kLoss, g.op(Primitive::kDiv, {top, bottom}, {}), {(a + c) / (b + d)});
  return g;
}

TEST(Pairing, UnevenMeanOfMeansIsAnotherMathematicsAndTheDivisionIsSuspected) {
  const GraphBuilder target = mean_of_means(3, 2, 5, 7), reference = mean_of_all(3, 2, 5, 7);
  const Bounds bounds = paired(target.graph, reference.graph);
  EXPECT_TRUE(finding(bounds, "loss").mathematics.failed());
  ASSERT_TRUE(bounds.suspicion);
  EXPECT_TRUE(bounds.suspicion->normalisation);
  EXPECT_EQ(target.graph.nodes[bounds.suspicion->node].primitive, Primitive::kDiv);
}

TEST(Pairing, EvenMeanOfMeansAgrees) {
  const Bounds bounds = paired(mean_of_means(3, 4, 5, 4).graph, mean_of_all(3, 4, 5, 4).graph);
  EXPECT_TRUE(finding(bounds, "loss").mathematics.passed());
  EXPECT_LT(finding(bounds, "loss").mathematics.envelope, 1e-14);
}

// The reference's error is looked for where the target's own is not enough: a program that rounds nothing may stand on
// either side.
TEST(Pairing, ProgramsAgreeByTheErrorOfEither) {
  const double a = 1.1, b = 0x1p-40 / 3;
  const auto program = [&](bool doubled_early) {
    GraphBuilder g;
    const NodeId na = g.leaf({}, {a}), nb = g.leaf({}, {b}), two = g.leaf({}, {2});
    const auto twice = [&](NodeId x) { return g.op(Primitive::kMul, {x, two}, {}); };
    // Doubling is exact; a + b, where it is computed, is not.
    const NodeId y =
        doubled_early ? g.op(Primitive::kAdd, {twice(na), twice(nb)}, {}) : twice(g.op(Primitive::kAdd, {na, nb}, {}));
    g.tap("y", TapKind::kValue, y, {static_cast<float>(2 * (a + b))});
    return g;
  };
  const GraphBuilder early = program(true), late = program(false);
  const Answer within = finding(paired(early.graph, late.graph), "y").mathematics;
  const Answer twice = finding(paired(early.graph, early.graph), "y").mathematics;
  EXPECT_TRUE(within.passed());
  EXPECT_EQ(within.envelope, twice.envelope)
      << "where the gap is nothing, the reference's error counts as the target's";

  // In fp64 (1 / 49) 49 is not 1: the gap is beyond the error of a program that rounds nothing.
  GraphBuilder exact, rounded;
  for (GraphBuilder* const g : {&exact, &rounded}) {
    const NodeId one = g->leaf({}, {1}), n = g->leaf({}, {49});
    NodeId y = g->op(Primitive::kCast, {one}, {});
    if (g == &rounded) y = g->op(Primitive::kMul, {g->op(Primitive::kDiv, {one, n}, {}), n}, {});
    g->tap("y", TapKind::kValue, y, {1});
  }
  for (const auto& [target, reference] : {std::pair(&exact, &rounded), std::pair(&rounded, &exact)}) {
    const Answer answer = finding(paired(target->graph, reference->graph), "y").mathematics;
    EXPECT_GT(answer.deviation, 0);
    EXPECT_TRUE(answer.passed());
    EXPECT_LT(answer.envelope, 0x1p-49);
  }
}

// a b, and `more` of it: what is much of a small element, and nothing of a large one beside it. The sum before it
// rounds a to `format`.
GraphBuilder product(Format format, double more, const std::vector<double>& a) {
  const std::vector<double> b = {1.5, 1.25, 1.75};
  GraphBuilder g;
  const NodeId na = g.leaf({3}, a), nb = g.leaf({3}, b);
  NodeId y = g.op(Primitive::kMul, {g.op(Primitive::kAdd, {na, g.leaf({}, {0})}, {3}, format), nb}, {3});
  if (more != 0) {
    Attributes constant;
    constant.scalar = more;
    y = g.op(Primitive::kAdd, {y, g.op(Primitive::kConstant, {}, {}, Format::kFloat32, constant)}, {3});
  }
  std::vector<double> seen;
  for (std::size_t i = 0; i < 3; ++i) seen.push_back(round_to(format, a[i]) * b[i]);
  seen[2] += more;
  g.tap("y", TapKind::kValue, y, seen);
  return g;
}

TEST(Pairing, ALargeElementHidesNoSmallOneWhateverRoundsIt) {
  const std::vector<double> exact = {1 << 20, 1, 0x1p-30}, rounded = {0x1.002p+20, 0x1.002p+0, 0x1.002p-30};
  for (const Format format : {Format::kFloat32, Format::kBFloat16}) {
    for (const std::vector<double>& a : {exact, rounded}) {
      const GraphBuilder target = product(format, 0, a), reference = product(format, 0x1p-50, a);
      const Roundoffs executed = roundoffs(target.graph, needed_nodes(target.graph));
      EXPECT_EQ(executed.finest == executed.coarsest, format == Format::kFloat32);
      const Bounds bounds = paired(target.graph, reference.graph);
      EXPECT_TRUE(finding(bounds, "y[2]").mathematics.failed());
      for (const Finding& other : bounds.findings) EXPECT_TRUE(other.name == "y[2]" || !other.mathematics.failed());
      for (const Finding& same : paired(target.graph, target.graph).findings) EXPECT_FALSE(same.mathematics.failed());
    }
  }
}

// However many elements a tap has, and however many threads look at them.
TEST(Pairing, SmallElementsStandOutWhereverTheyLie) {
  constexpr std::int64_t kCount = 200'000;
  const std::vector<std::int64_t> small = {(1 << 16) - 1, 130'011};
  const auto program = [&](double more) {
    std::vector<double> a(kCount), y;
    for (std::int64_t i = 0; i < kCount; ++i) a[static_cast<std::size_t>(i)] = 1 + static_cast<double>(i % 1024) / 1024;
    for (const std::int64_t i : small) a[static_cast<std::size_t>(i)] = 0x1p-30;
    for (const double one : a) y.push_back(static_cast<float>(one * 1.5 + more));
    GraphBuilder g;
    NodeId node = g.op(Primitive::kMul, {g.leaf({kCount}, a), g.leaf({}, {1.5})}, {kCount});
    Attributes constant;
    constant.scalar = more;
    if (more != 0)
      node = g.op(Primitive::kAdd, {node, g.op(Primitive::kConstant, {}, {}, Format::kFloat32, constant)}, {kCount});
    g.tap("y", TapKind::kValue, node, y);
    return g;
  };
  const GraphBuilder target = program(0), reference = program(0x1p-50);
  const Bounds bounds = paired(target.graph, reference.graph);
  for (const std::int64_t i : small)
    EXPECT_TRUE(finding(bounds, "y[" + std::to_string(i) + "]").mathematics.failed()) << i;
  EXPECT_FALSE(finding(bounds, "y").mathematics.failed());
}

TEST(Pairing, ParametersAreSharedAndDriftIsShown) {
  auto program = [](double w, double observed) {
    GraphBuilder g;
    const NodeId weight = g.leaf({2}, {w, w}, Format::kFloat32, "param:w", LeafRole::kParameter);
    const NodeId x = g.leaf({2}, {1, 2});
    g.tap("loss", TapKind::kLoss, g.sum_all(g.op(Primitive::kMul, {weight, x}, {2})), {observed});
    return g;
  };
  const Bounds bounds = paired(program(0.5, 1.5).graph, program(0.625, 1.875).graph);
  EXPECT_TRUE(finding(bounds, "loss").mathematics.passed());
  EXPECT_EQ(bounds.match.drifted, std::vector<std::string>{"param:w"});
  EXPECT_NEAR(finding(bounds, "loss").drift, 0.2, 1e-12);
}

TEST(Pairing, BatchMatchesItsSplitAndOtherDataIsForeign) {
  auto rows = [](std::vector<std::vector<double>> pieces) {
    GraphBuilder g;
    NodeId total = g.leaf({}, {0.0});
    for (const auto& piece : pieces) {
      const NodeId x = g.leaf({static_cast<std::int64_t>(piece.size()) / 2, 2}, piece);
      Attributes dims;
      dims.dims = {0, 1};
      const NodeId sum = g.op(Primitive::kSum, {x}, {1, 1}, Format::kFloat32, dims);
      total = g.op(Primitive::kAdd, {total, sum}, {1, 1});
    }
    g.tap("loss", TapKind::kLoss, total, {21});
    return g;
  };
  const GraphBuilder whole = rows({{1, 2, 3, 4, 5, 6}}), split = rows({{1, 2}, {3, 4, 5, 6}}),
                     other = rows({{1, 2, 3, 4, 5, 7}});
  const auto match = [](const GraphBuilder& a, const GraphBuilder& b) {
    return correspond(a.graph, leaf_values(a.graph), b.graph, leaf_values(b.graph));
  };
  EXPECT_TRUE(match(split, whole).foreign_data.empty());
  EXPECT_TRUE(match(whole, whole).foreign_reference_data.empty());
  EXPECT_EQ(match(whole, other).foreign_data.size(), 1u);
  EXPECT_TRUE(finding(paired(split.graph, whole.graph), "loss").mathematics.passed());
  EXPECT_TRUE(finding(paired(whole.graph, other.graph), "loss").mathematics.failed());
}

TEST(Pairing, ReferenceLeafThatNobodyHoldsIsMissing) {
  GraphBuilder target, reference;
  target.tap("loss", TapKind::kLoss, target.sum_all(target.leaf({1}, {1})), {1});
  const NodeId w = reference.leaf({1}, {1}, Format::kFloat32, "param:w", LeafRole::kParameter);
  reference.tap("loss", TapKind::kLoss, reference.sum_all(w), {1});
  reference.graph.leaves[0].bytes = nullptr;
  EXPECT_EQ(paired(target.graph, reference.graph).match.missing, std::vector<std::string>{"param:w"});
}

TEST(Pairing, TapsOfDifferentShapesAndOfOneSideOnlyAreNamed) {
  GraphBuilder target, reference;
  const NodeId x = target.leaf({2}, {1, 2}), y = reference.leaf({1, 2}, {1, 2});
  target.tap("g", TapKind::kValue, target.op(Primitive::kNeg, {x}, {2}), {-1, -2});
  target.tap("only", TapKind::kValue, target.op(Primitive::kNeg, {x}, {2}), {-1, -2});
  reference.tap("g", TapKind::kValue, reference.op(Primitive::kNeg, {y}, {1, 2}), {-1, -2});
  const Bounds bounds = paired(target.graph, reference.graph);
  ASSERT_EQ(bounds.shape_conflicts.size(), 1u);
  EXPECT_NE(bounds.shape_conflicts[0].find("[2]"), std::string::npos);
  EXPECT_NE(bounds.shape_conflicts[0].find("[1, 2]"), std::string::npos);
  EXPECT_EQ(bounds.unpaired_taps.size(), 1u);
}

// x * 0.1 against x * torch.tensor(0.1), either way round; another constant is another mathematics.
TEST(Pairing, AConstantMayBeHeldAsATensor) {
  auto program = [](double factor, bool as_leaf) {
    GraphBuilder g;
    const NodeId x = g.leaf({3}, {0.5, 0.25, 3});
    Attributes constant;
    constant.scalar = factor;
    const NodeId by = as_leaf ? g.leaf({}, {factor}) : g.op(Primitive::kConstant, {}, {}, Format::kFloat32, constant);
    g.tap("loss", TapKind::kLoss, g.sum_all(g.op(Primitive::kMul, {x, by}, {3})), {0});
    return g;
  };
  const auto compared = [&](double a, bool as_leaf, double b, bool other_as_leaf) {
    return finding(paired(program(a, as_leaf).graph, program(b, other_as_leaf).graph), "loss").mathematics;
  };
  EXPECT_TRUE(compared(0.1, false, 0.1, true).passed());
  EXPECT_TRUE(compared(0.1, true, 0.1, false).passed());
  EXPECT_TRUE(compared(0.1, false, 0.1000001, true).disproved());
}

// x s against x sqrt(v), where v is s squared but for its own rounding. What both programs use alike hides nothing, be
// it less than the roundings of what they hold.
TEST(Pairing, TablesThatBothHoldAreRoundedThemselves) {
  const std::vector<double> x = {0.3, -1.7, 2.9}, s = {1.1, 0.7, 2.3};
  std::vector<double> held, squares, off, xs;
  for (std::size_t i = 0; i < s.size(); ++i) {
    held.push_back(static_cast<float>(s[i]));
    squares.push_back(static_cast<float>(s[i] * s[i]));
    off.push_back(static_cast<float>(s[i] * s[i] * (1 + 1e-5)));
    xs.push_back(static_cast<float>(x[i]));
  }
  const auto program = [&](bool by_squares, const std::vector<double>& variance, double factor) {
    GraphBuilder g;
    const NodeId nx = g.leaf({3}, xs), ns = g.leaf({3}, held), nv = g.leaf({3}, variance);
    Attributes constant;
    constant.scalar = factor;
    const NodeId by = by_squares ? g.op(Primitive::kSqrt, {nv}, {3}) : ns;
    const NodeId times = g.op(Primitive::kConstant, {}, {}, Format::kFloat32, constant);
    const NodeId y = g.op(Primitive::kMul, {g.op(Primitive::kMul, {nx, by}, {3}), times}, {3});
    std::vector<double> seen;
    for (std::size_t i = 0; i < s.size(); ++i) seen.push_back(static_cast<float>(xs[i] * held[i] * factor));
    g.tap("y", TapKind::kValue, y, seen);
    g.tap("held", TapKind::kValue, g.op(Primitive::kAdd, {ns, nv}, {3}), seen);
    return g;
  };
  const auto compared = [&](const GraphBuilder& target, const GraphBuilder& reference) {
    return paired(target.graph, reference.graph);
  };
  const GraphBuilder plain = program(false, squares, 1), by_squares = program(true, squares, 1);
  for (const auto& [target, reference] : {std::pair(&plain, &by_squares), std::pair(&by_squares, &plain)}) {
    const Bounds bounds = compared(*target, *reference);
    EXPECT_TRUE(finding(bounds, "y").mathematics.passed());
    EXPECT_EQ(bounds.rounded_items, RoundedItems::kExchanged);
  }
  EXPECT_TRUE(finding(compared(program(false, off, 1), program(true, off, 1)), "y").mathematics.failed());
  EXPECT_TRUE(finding(compared(program(false, squares, 1 + 1e-9), plain), "y").mathematics.failed());
  EXPECT_TRUE(finding(compared(program(true, squares, 1 + 1e-9), by_squares), "y").mathematics.failed());
}

TEST(Pairing, AnInputRoundedOnOneSideIsAPrecisionPolicy) {
  auto program = [](bool rounded) {
    GraphBuilder g;
    std::vector<double> x{0.1, 0.2, 0.3};
    for (double& value : x) value = round_to(rounded ? Format::kBFloat16 : Format::kFloat32, value);
    const NodeId leaf = g.leaf({3}, x);
    g.tap("loss", TapKind::kLoss, g.sum_all(g.op(Primitive::kExp, {leaf}, {3})), {0});
    return g;
  };
  const Bounds bounds = paired(program(true).graph, program(false).graph);
  EXPECT_TRUE(finding(bounds, "loss").mathematics.passed());
  ASSERT_EQ(bounds.match.items.size(), 1U);
  EXPECT_EQ(bounds.match.items[0].evidence, Evidence::kRounding);
  EXPECT_EQ(bounds.match.items[0].format, Format::kBFloat16);
}

// sum(opaque(a + b) * w), the opaque call's result off by a rounding between two runs.
GraphBuilder around_an_opaque_call(double shift, double weight, double observed) {
  GraphBuilder g;
  const NodeId a = g.leaf({2}, {1, 2}), b = g.leaf({2}, {shift, shift});
  const NodeId in = g.op(Primitive::kAdd, {a, b}, {2});
  const NodeId out = g.leaf({2}, {observed, observed});
  g.graph.leaves.back().anchor = true;
  g.graph.origins.push_back({"my::kernel", "model.py:7", "blocks.0", Phase::kForward});
  g.graph.opaque.push_back({static_cast<std::uint32_t>(g.graph.origins.size() - 1), "eps=0x1p-20;", {in}, {out}, true});
  g.graph.coverage.opaque = 1;
  const NodeId w = g.leaf({2}, {weight, weight});
  g.tap("loss", TapKind::kLoss, g.sum_all(g.op(Primitive::kMul, {out, w}, {2})), {2 * observed * weight});
  return g;
}

TEST(Transplant, TheComparisonGoesOnBehindAnOpaqueCall) {
  const double one = 1 + 0x1p-23;  // The two runs' kernels differ by an ulp, which is theirs.
  const Bounds same = paired(around_an_opaque_call(3, 0.75, 1).graph, around_an_opaque_call(3, 0.75, one).graph);
  EXPECT_TRUE(same.cuts_complete);
  EXPECT_EQ(same.transplanted, 1U);
  for (const Finding& f : same.findings) EXPECT_FALSE(f.mathematics.failed()) << f.name;
  const Bounds after = paired(around_an_opaque_call(3, 0.75, 1).graph, around_an_opaque_call(3, 0.5, one).graph);
  EXPECT_TRUE(finding(after, "loss").mathematics.failed());
}

TEST(Transplant, WhatGoesIntoAnOpaqueCallIsCompared) {
  const Bounds bounds = paired(around_an_opaque_call(3, 0.75, 1).graph, around_an_opaque_call(3.5, 0.75, 1.2).graph);
  EXPECT_FALSE(finding(bounds, "loss").mathematics.failed());
  EXPECT_TRUE(finding(bounds, "input 0 of my::kernel (blocks.0), opaque call 0").mathematics.failed());
  EXPECT_FALSE(bounds.indifferent_call);
}

TEST(Transplant, ACallThatHardlyReactsToItsInputsProvesNothing) {
  const double one = 1 + 0x1p-23;
  const Bounds bounds = paired(around_an_opaque_call(3, 0.75, 1).graph, around_an_opaque_call(3.5, 0.75, one).graph);
  EXPECT_TRUE(bounds.indifferent_call);
  for (const Finding& f : bounds.findings) EXPECT_FALSE(f.mathematics.failed()) << f.name;
  EXPECT_FALSE(
      paired(around_an_opaque_call(3, 0.75, 1).graph, around_an_opaque_call(3, 0.75, 2).graph).indifferent_call);
}

TEST(Transplant, CallsThatDifferHaveNoCounterpart) {
  GraphBuilder other = around_an_opaque_call(3, 0.75, 1);
  other.graph.opaque[0].attributes = "eps=0x1p-10;";
  EXPECT_FALSE(paired(around_an_opaque_call(3, 0.75, 1).graph, other.graph).cuts_complete);
  other.graph.opaque.clear();
  EXPECT_FALSE(paired(around_an_opaque_call(3, 0.75, 1).graph, other.graph).cuts_complete);
}

}  // namespace
}  // namespace plumbline
