#include "server/bound/replay/tapped.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/sums.h"
#include "server/bound/compute.h"
#include "server/bound/envelope/adjoint.h"
#include "server/bound/envelope/tap_values.h"
#include "server/bound/replay/replay.h"
#include "server/bound/replay/taps.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;
using test::normal;

constexpr std::int64_t kRows = 160, kTerms = 640, kColumns = 144;

const Profile& ieee() {
  static const Profile profile;
  return profile;
}

// A product in fp32, one term after the other.
std::vector<double> executed(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> product;
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t j = 0; j < kColumns; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < kTerms; ++k)
        sum += static_cast<float>(a[static_cast<std::size_t>(i * kTerms + k)]) *
               static_cast<float>(b[static_cast<std::size_t>(k * kColumns + j)]);
      product.push_back(sum);
    }
  return product;
}

enum class Shown { kAsItIs, kTransposed, kInFourDimensions };

// The gradient of a weight, AB with A = 2 a and B = 3 b, and what an optimizer does with it: w - AB.
struct Step {
  explicit Step(Shown shown = Shown::kAsItIs, Format format = Format::kFloat32) {
    std::mt19937 rng(11);
    std::vector<double> a = normal(rng, kRows * kTerms), b_values = normal(rng, kTerms * kColumns);
    const NodeId two = b.leaf({}, {2.0}), three = b.leaf({}, {3.0});
    left = b.op(Primitive::kMul, {b.leaf({kRows, kTerms}, a), two}, {kRows, kTerms}, format);
    right = b.op(Primitive::kMul, {b.leaf({kTerms, kColumns}, b_values), three}, {kTerms, kColumns}, format);
    for (double& x : a) x *= 2;
    for (double& x : b_values) x = static_cast<float>(3 * x);
    observed = executed(a, b_values);
    product = b.op(Primitive::kMatmul, {left, right}, {kRows, kColumns}, format);
    Attributes view;
    Shape shape = {kRows, kColumns};
    gradient = product;
    if (shown == Shown::kTransposed) {
      shape = {kColumns, kRows};
      view.view = {shape, {1, kColumns}, 0};
    } else if (shown == Shown::kInFourDimensions) {
      shape = {kRows, kColumns / 9, 3, 3};
      view.view = {shape, {kColumns, 9, 3, 1}, 0};
    }
    if (shown != Shown::kAsItIs) gradient = b.op(Primitive::kWindow, {product}, shape, format, view);
    if (shown == Shown::kTransposed) {
      std::vector<double> turned;
      for (std::int64_t j = 0; j < kColumns; ++j)
        for (std::int64_t i = 0; i < kRows; ++i) turned.push_back(observed[static_cast<std::size_t>(i * kColumns + j)]);
      observed = turned;
    }
    b.tap("grad:w", TapKind::kGradient, gradient, observed);
    const std::int64_t n = kRows * kColumns;
    const std::vector<double> w = normal(rng, n);
    std::vector<double> updated;
    for (std::size_t i = 0; i < w.size(); ++i) updated.push_back(static_cast<float>(w[i] - observed[i]));
    const NodeId weight = b.leaf(shape, w, Format::kFloat32, "w", LeafRole::kParameter);
    b.tap("weight:w", TapKind::kUpdate, b.op(Primitive::kSub, {weight, gradient}, shape, format), updated);
  }
  const Graph& graph() const { return b.graph; }

  GraphBuilder b;
  NodeId left, right, product, gradient;
  std::vector<double> observed;
};

TEST(TappedProducts, AreThoseThatAGradientShows) {
  for (const Shown shown : {Shown::kAsItIs, Shown::kTransposed, Shown::kInFourDimensions}) {
    const Step step(shown);
    const TappedProducts found = tapped_products(step.graph());
    ASSERT_EQ(found.size(), 1U);
    const auto& [node, product] = *found.begin();
    EXPECT_EQ(node, step.product);
    EXPECT_EQ(product.tap, 0U);
    EXPECT_EQ(product.transposed, shown == Shown::kTransposed);
    // What was observed lies as the product does: it differs from it by a rounding.
    const Replay exact = replay(step.graph(), leaf_values(step.graph()), Precision::kExact);
    const Array seen = product.observed(step.graph(), step.graph().nodes[node]).materialize(),
                computed = exact.value(node);
    for (std::int64_t i = 0; i < seen.count(); ++i) ASSERT_NEAR(seen.data()[i], computed.data()[i], 1e-3) << i;
  }
}

TEST(TappedProducts, AreNoneThatAnythingElseReads) {
  const auto found = [](auto change) {
    Step step;
    change(&step);
    return tapped_products(step.graph()).size();
  };
  EXPECT_EQ(found([](Step*) {}), 1U);
  EXPECT_EQ(found([](Step* s) { s->b.tap("norm", TapKind::kValue, s->b.sum_all(s->gradient), {0}); }), 0U);
  EXPECT_EQ(found([](Step* s) { s->b.sum_all(s->gradient); }), 1U);  // Which nobody needs.
  EXPECT_EQ(found([](Step* s) {
              const NodeId zero = s->b.leaf({}, {0.0});
              const NodeId side = s->b.op(Primitive::kGreater, {s->gradient, zero}, {kRows, kColumns}, Format::kBool);
              s->b.graph.decisions.push_back({side, test::encoded(Format::kBool, s->observed)});
            }),
            0U);
  EXPECT_EQ(found([](Step* s) { s->b.graph.reads.push_back({s->product, 0}); }), 0U);
  EXPECT_EQ(found([](Step* s) { s->b.graph.taps[0].terms[0].weight = 0.5; }), 0U);
  EXPECT_EQ(found([](Step* s) { s->b.graph.taps[0].terms[0].observed = nullptr; }), 0U);
  EXPECT_EQ(found([](Step* s) { s->b.graph.nodes[s->product].compute = Format::kFloat64; }), 0U);
  EXPECT_EQ(found([](Step* s) { s->b.graph.nodes[s->product].result = Format::kBFloat16; }), 0U);
  EXPECT_EQ(tapped_products(Step(Shown::kAsItIs, Format::kFloat64).graph()).size(), 0U);
}

TEST(TappedProducts, OnWhichAnotherQuestionDependsAreToBeComputed) {
  const Step step;
  const TappedProducts all = tapped_products(step.graph());
  EXPECT_EQ(not_asked(step.graph(), all, {0}).size(), 1U);
  EXPECT_EQ(not_asked(step.graph(), all, {0, 1}).size(), 0U);
}

TEST(TappedProducts, AreReplayedWhenAskedForAlone) {
  const Step step;
  const std::vector<LeafValue> leaves = leaf_values(step.graph());
  const Replay whole = replay(step.graph(), leaves, Precision::kExact);
  std::vector<bool> later(step.graph().nodes.size(), false);
  later[step.product] = true;
  const Replay waiting = replay(step.graph(), leaves, Precision::kExact, {}, nullptr, {.later = &later});
  EXPECT_TRUE(waiting.waits(step.product));
  EXPECT_FALSE(waiting.at_hand(step.product));
  EXPECT_FALSE(whole.waits(step.product));
  const Replay based = replay(step.graph(), leaves, Precision::kExact, {}, &waiting);
  EXPECT_TRUE(based.waits(step.product));
  EXPECT_TRUE(bitwise_equal(based.value(step.product), whole.value(step.product)));
  EXPECT_FALSE(waiting.waits(step.product));  // What it is based on has it since.
  EXPECT_TRUE(waiting.at_hand(step.product));
}

// What is read by factors is what the product's elements say, but for less than the envelope has for that.
TEST(TappedProducts, AreReadByTheirFactors) {
  for (const Shown shown : {Shown::kAsItIs, Shown::kTransposed, Shown::kInFourDimensions}) {
    Step step(shown);
    const Graph& graph = step.graph();
    const Replay exact = replay(graph, leaf_values(graph), Precision::kExact);
    const Array m = replayed_value(graph.taps[0], exact);
    const std::vector<Probe> probes = {signs_probe("signs", {probe_tap(0, graph.taps[0], m)}, 7)};
    const Envelope by_elements = adjoint_envelopes(graph, exact, probes, ieee(), Executions::kTarget)[0];
    const Envelope read =
        adjoint_envelopes(graph, exact, probes, ieee(), Executions::kTarget, {}, false, tapped_products(graph))[0];
    const double said = dot(probes[0].parts[0].weights.array(), m);
    EXPECT_EQ(by_elements.read, 0);
    EXPECT_NE(read.read, 0);
    EXPECT_NEAR(read.read, said, 1e-12);
    EXPECT_LE(std::fabs(read.read - said), read.error - by_elements.error);
    EXPECT_GT(read.error, by_elements.error);
    EXPECT_LT(read.error, by_elements.error * (1 + 1e-4));
    EXPECT_GT(read.noise.bias, by_elements.noise.bias);
    EXPECT_LT(statistical(read.noise, 6), statistical(by_elements.noise, 6) * (1 + 1e-2));
    EXPECT_GT(read.noise.squares, by_elements.noise.squares * (1 - 1e-3));
  }
}

const Finding* named(const Bounds& bounds, const std::string& name) {
  for (const Finding& finding : bounds.findings)
    if (finding.name == name) return &finding;
  return nullptr;
}

TEST(TappedProducts, OfALegalExecutionPassAndAWrongElementDoesNot) {
  for (const Shown shown : {Shown::kAsItIs, Shown::kTransposed, Shown::kInFourDimensions}) {
    for (const double wrong : {0.0, 40.0, HUGE_VAL}) {
      Step step(shown);
      if (wrong != 0) step.observed[kColumns + 5] += wrong;
      step.b.graph.taps[0].terms[0].observed = test::encoded(Format::kFloat32, step.observed);
      const Bounds bounds = compute_bounds({.target = &step.graph(), .profile = &ieee(), .seed = 9});
      const Finding* const found = named(bounds, "all gradients");
      if (std::isinf(wrong)) {
        EXPECT_EQ(found, nullptr);
        EXPECT_FALSE(bounds.range.empty());
        continue;
      }
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->execution.failed(), wrong != 0) << found->execution.deviation;
      EXPECT_GT(found->execution.deviation, 0);
      EXPECT_FALSE(found->execution.vacuous());
    }
  }
}

// One gradient alone, the product of these; what was observed of it is the legal one times `share`.
struct OneGradient {
  OneGradient(const std::vector<double>& a, const std::vector<double>& b_values, double share) {
    std::vector<double> seen = executed(a, b_values);
    for (double& x : seen) x = static_cast<float>(x * share);
    const NodeId product =
        b.op(Primitive::kMatmul, {b.leaf({kRows, kTerms}, a), b.leaf({kTerms, kColumns}, b_values)}, {kRows, kColumns});
    b.tap("grad:w", TapKind::kGradient, product, seen);
  }
  // `by_elements`: its sum is looked at as well, so that the product is computed.
  Finding found(bool by_elements) {
    if (by_elements) {
      const Array seen = observed_value(b.graph.taps[0]);
      double sum = 0;
      for (std::int64_t i = 0; i < seen.count(); ++i) sum += seen.data()[i];
      b.tap("sum", TapKind::kValue, b.sum_all(b.graph.taps[0].terms[0].node), {sum});
    }
    EXPECT_EQ(tapped_products(b.graph).empty(), by_elements);
    const Bounds bounds = compute_bounds({.target = &b.graph, .profile = &ieee(), .seed = 9});
    return *named(bounds, "all gradients");
  }
  GraphBuilder b;
};

// What was observed is no measure of itself: what does not pass by factors is asked by elements.
TEST(TappedProducts, AreComputedWhereSomethingIsWrong) {
  std::mt19937 rng(3);
  const std::vector<double> a = normal(rng, kRows * kTerms), b = normal(rng, kTerms * kColumns);
  for (const double share : {1.0, 0x1p-10, 0x1p-16, 0.0, 0x1p16}) {
    const Finding by_factors = OneGradient(a, b, share).found(false),
                  by_elements = OneGradient(a, b, share).found(true);
    EXPECT_EQ(by_factors.execution.failed(), share != 1) << share;
    EXPECT_EQ(by_elements.execution.failed(), share != 1) << share;
    EXPECT_NEAR(by_factors.execution.envelope, by_elements.execution.envelope, 5e-2 * by_elements.execution.envelope);
    EXPECT_NEAR(by_factors.execution.deviation, by_elements.execution.deviation,
                1e-6 * by_elements.execution.deviation);
  }
}

// Elements that are infinite in exact arithmetic as well are left out, and the others asked.
TEST(TappedProducts, AreComputedWhereTheyAreNotFinite) {
  std::mt19937 rng(3);
  std::vector<double> a = normal(rng, kRows * kTerms), b = normal(rng, kTerms * kColumns);
  for (double& x : b) x = std::fabs(x) + 0.5;
  a[5 * kTerms + 2] = HUGE_VAL;
  EXPECT_TRUE(OneGradient(a, b, 1).found(false).execution.passed());
  EXPECT_TRUE(OneGradient(a, b, 0.5).found(false).execution.failed());
}

// Operands that are replayed again within the sweep, between products in single precision, are as exact as before.
TEST(TappedProducts, AreReadFromExactOperandsHoweverLateTheyAreAskedFor) {
  constexpr std::int64_t kWide = 1024, kInner = 48, kNarrow = 256;
  std::mt19937 rng(1);
  GraphBuilder b;
  const auto drawn = [&](const Shape& shape) { return b.leaf(shape, normal(rng, count(shape))); };
  const auto cheap_product = [&] {
    return b.op(Primitive::kTanh,
                {b.op(Primitive::kMatmul, {drawn({kWide, kInner}), drawn({kInner, kWide})}, {kWide, kWide})},
                {kWide, kWide});
  };
  const NodeId left = cheap_product(), right = cheap_product();
  Attributes turned;
  turned.view = {{kWide, kWide}, {1, kWide}, 0};
  const NodeId window = b.op(Primitive::kWindow, {right}, {kWide, kWide}, Format::kFloat32, turned);
  const NodeId gradient = b.op(Primitive::kMatmul, {window, drawn({kWide, kNarrow})}, {kWide, kNarrow});
  const NodeId value =
      b.op(Primitive::kTanh, {b.op(Primitive::kMatmul, {left, right}, {kWide, kWide})}, {kWide, kWide});
  b.tap("grad:w", TapKind::kGradient, gradient, std::vector<double>(kWide * kNarrow, 0));
  b.tap("value", TapKind::kValue, value, std::vector<double>(kWide * kWide, 0));
  const Graph& graph = b.graph;
  const auto replayed = [&] { return replay(graph, leaf_values(graph), Precision::kExact); };
  const Replay exact = replayed(), swept = replayed();
  std::vector<Probe> probes;
  for (std::size_t i = 0; i < 2; ++i)
    probes.push_back(signs_probe("signs", {probe_tap(i, graph.taps[i], replayed_value(graph.taps[i], exact))}, 7 + i));
  const double said = dot(probes[0].parts[0].weights.array(), replayed_value(graph.taps[0], exact));
  const TappedProducts products = tapped_products(graph);
  ASSERT_EQ(products.size(), 1U);
  const double read = adjoint_envelopes(graph, swept, probes, ieee(), Executions::kTarget, {}, false, products)[0].read;
  EXPECT_NEAR(read, said, 1e-12);
}

// The gradient of a weight behind a kink, where an element lies so near that rounding alone decides of its side: u v -
// w is 2^-24, and in fp32 it is 0. `turned`: a program that computes the product the other way round.
struct BehindKink {
  explicit BehindKink(bool turned, double wrong = 0) {
    std::mt19937 rng(5);
    const Shape shape = {kRows, kTerms};
    std::vector<double> a = normal(rng, kRows * kTerms), other = normal(rng, kTerms * kColumns);
    std::vector<double> u = normal(rng, kRows * kTerms), v(u.size(), 1), w(u.size(), 0);
    u[7] = v[7] = 1 + 0x1p-12;
    w[7] = 1 + 0x1p-11;
    const NodeId x = b.op(
        Primitive::kSub, {b.op(Primitive::kMul, {b.leaf(shape, u), b.leaf(shape, v)}, shape), b.leaf(shape, w)}, shape);
    const NodeId zero = b.leaf({}, {0.0}), side = b.op(Primitive::kGreater, {x, zero}, shape, Format::kBool);
    std::vector<double> sides;
    for (std::size_t i = 0; i < u.size(); ++i) {
      sides.push_back(i != 7 && u[i] > 0 ? 1 : 0);
      if (sides.back() == 0) a[i] = 0;
    }
    std::vector<double> kept = a;
    kept[7] = 3;  // Which the execution did not see.
    b.graph.decisions.push_back({side, test::encoded(Format::kBool, sides)});
    const NodeId left = b.op(Primitive::kSelect, {side, b.leaf(shape, kept), zero}, shape),
                 right = b.leaf({kTerms, kColumns}, other);
    std::vector<double> observed = executed(a, other);
    observed[kColumns + 5] += wrong;
    const auto transposed = [&](NodeId of, const Shape& to) {
      Attributes view;
      view.view = {to, {1, to[0]}, 0};
      return b.op(Primitive::kWindow, {of}, to, Format::kFloat32, view);
    };
    const NodeId product =
        turned ? transposed(b.op(Primitive::kMatmul,
                                 {transposed(right, {kColumns, kTerms}), transposed(left, {kTerms, kRows})},
                                 {kColumns, kRows}),
                            {kRows, kColumns})
               : b.op(Primitive::kMatmul, {left, right}, {kRows, kColumns});
    b.tap("grad:w", TapKind::kGradient, product, observed);
  }
  GraphBuilder b;
};

// Beside another program, the replay that follows the execution's decisions has no product of its own to be asked.
TEST(TappedProducts, OfTwoProgramsAreReadByFactorsWhereDecisionsDiffer) {
  const BehindKink reference(true);
  for (const double wrong : {0.0, 40.0}) {
    const BehindKink target(false, wrong);
    ASSERT_EQ(tapped_products(target.b.graph).size(), 1U);
    const Bounds bounds =
        compute_bounds({.target = &target.b.graph, .reference = &reference.b.graph, .profile = &ieee(), .seed = 9});
    EXPECT_EQ(bounds.unstable, 1U);
    EXPECT_TRUE(bounds.illegal_decisions.empty());
    const Finding* const found = named(bounds, "all gradients");
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->execution.failed(), wrong != 0) << found->execution.deviation;
    EXPECT_GT(found->execution.deviation, 0);
    EXPECT_TRUE(found->mathematics.passed());
    EXPECT_LT(found->mathematics.envelope, 1e-10);
    const Bounds alone = compute_bounds({.target = &target.b.graph, .profile = &ieee(), .seed = 9});
    EXPECT_NEAR(found->execution.envelope, named(alone, "all gradients")->execution.envelope,
                1e-2 * found->execution.envelope);
  }
}

}  // namespace
}  // namespace plumbline
