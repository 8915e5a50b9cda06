#include "server/bound/replay/replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/checks.h"
#include "kernels/sums.h"
#include "server/bound/replay/decided.h"
#include "server/bound/replay/taps.h"
#include "server/bound/replay/tiles.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

TEST(Replay, RoundsToTheDeclaredFormatOnlyWhenAsked) {
  GraphBuilder b;
  const NodeId x = b.leaf({1}, {1.0}), y = b.leaf({1}, {std::ldexp(1.0, -30)});
  const NodeId sum = b.op(Primitive::kAdd, {x, y}, {1});
  b.tap("t", TapKind::kValue, sum, {1.0});
  const auto leaves = leaf_values(b.graph);
  EXPECT_EQ(replay(b.graph, leaves, Precision::kExact).value(sum).item(), 1 + std::ldexp(1.0, -30));
  EXPECT_EQ(replay(b.graph, leaves, Precision::kRounded).value(sum).item(), 1.0);
}

TEST(Replay, RoundedReplayCarriesTheRange) {
  GraphBuilder b;
  const NodeId x = b.leaf({1}, {300.0}, Format::kFloat16);
  const NodeId square = b.op(Primitive::kMul, {x, x}, {1}, Format::kFloat16);
  b.tap("t", TapKind::kValue, square, {std::numeric_limits<double>::infinity()});
  EXPECT_EQ(replay(b.graph, leaf_values(b.graph), Precision::kExact).value(square).item(), 90000.0);
  EXPECT_TRUE(std::isinf(replay(b.graph, leaf_values(b.graph), Precision::kRounded).value(square).item()));
}

TEST(Replay, OverridesAreSeenByConsumersAndRecorded) {
  GraphBuilder b;
  const NodeId x = b.leaf({2}, {1.0, 2.0});
  const NodeId twice = b.op(Primitive::kAdd, {x, x}, {2});
  const NodeId again = b.op(Primitive::kAdd, {twice, x}, {2});
  b.tap("t", TapKind::kValue, again, {0, 0});
  const auto leaves = leaf_values(b.graph);
  const Replay base = replay(b.graph, leaves, Precision::kExact);
  const Replay changed = replay(b.graph, leaves, Precision::kExact, {{twice, Array::full({2}, 10.0)}}, &base);
  EXPECT_EQ(changed.computed(twice).data()[1], 4.0);
  EXPECT_EQ(changed.value(again).data()[0], 11.0);
  EXPECT_EQ(changed.value(again).data()[1], 12.0);
}

// tanh(x) is read twice, a reshaping lies between, and one number counts for all.
TEST(Replay, ElementwiseNodesAreComputedTogetherAsOneByOne) {
  constexpr std::int64_t kCount = 3 * 7001;
  std::vector<double> drawn;
  for (std::int64_t i = 0; i < kCount; ++i) drawn.push_back(static_cast<float>(std::sin(static_cast<double>(i))));
  GraphBuilder b;
  const NodeId x = b.leaf({3, 7001}, drawn), number = b.leaf({}, {0.3});
  const NodeId bent = b.op(Primitive::kTanh, {x}, {3, 7001});
  const NodeId scaled = b.op(Primitive::kMul, {bent, number}, {3, 7001});
  Attributes view;
  view.view = {{kCount}, {1}, 0};
  const NodeId flat = b.op(Primitive::kWindow, {scaled}, {kCount}, Format::kFloat32, view);
  const NodeId bent_flat = b.op(Primitive::kWindow, {bent}, {kCount}, Format::kFloat32, view);
  const NodeId product = b.op(Primitive::kMul, {flat, bent_flat}, {kCount});
  const NodeId end = b.op(Primitive::kSub, {product, flat}, {kCount});
  b.tap("t", TapKind::kValue, end, std::vector<double>(kCount, 0));
  const auto leaves = leaf_values(b.graph);
  const Replay exact = replay(b.graph, leaves, Precision::kExact);
  const auto evaluate = [](Primitive primitive, const std::vector<Array>& inputs) {
    return traits(primitive).evaluate({}, {kCount}, inputs);
  };
  const Array tanh = evaluate(Primitive::kTanh, {exact.value(x).reshape({kCount})});
  const auto one_by_one = [&](const Array& seen) {
    return evaluate(Primitive::kSub, {evaluate(Primitive::kMul, {seen, tanh}), seen});
  };
  const Array times = evaluate(Primitive::kMul, {tanh, Array::scalar(leaf_values(b.graph)[1].part(0, 1).item())});
  EXPECT_EQ(count_differing(exact.value(end), one_by_one(times)), 0);
  const Array given = Array::full({3, 7001}, 0.7).materialize();
  const Replay changed = replay(b.graph, leaves, Precision::kExact, {{scaled, given}}, &exact);
  EXPECT_EQ(count_differing(changed.value(end), one_by_one(given.reshape({kCount}))), 0);
  EXPECT_EQ(count_differing(changed.computed(scaled), exact.value(scaled)), 0);
  changed.forget_computed(scaled);
  EXPECT_EQ(count_differing(changed.computed(scaled), exact.value(scaled)), 0);
}

// A product is kept where many read it through a reshaping, which holds its memory in any case: it is not computed
// again where itself is asked for. A long row of reshapings does not take a long row of calls.
TEST(Replay, WhatIsReadThroughAWindowStaysWithIt) {
  constexpr std::int64_t kRows = 80, kTerms = 64;
  for (const int readers : {1, 20}) {
    GraphBuilder b;
    const NodeId x = b.leaf({kRows, kTerms}, std::vector<double>(kRows * kTerms, 1)),
                 y = b.leaf({kTerms, kRows}, std::vector<double>(kTerms * kRows, 2));
    const NodeId product = b.op(Primitive::kMatmul, {x, y}, {kRows, kRows});
    Attributes view;
    view.view = {{kRows * kRows}, {1}, 0};
    NodeId flat = b.op(Primitive::kWindow, {product}, {kRows * kRows}, Format::kFloat32, view);
    const NodeId first = flat;
    for (int i = 0; i < 50000; ++i) flat = b.op(Primitive::kWindow, {flat}, {kRows * kRows}, Format::kFloat32, view);
    NodeId end = b.op(Primitive::kTanh, {flat}, {kRows * kRows});
    for (int i = 1; i < readers; ++i) end = b.op(Primitive::kAdd, {end, first}, {kRows * kRows});
    b.tap("t", TapKind::kValue, end, std::vector<double>(kRows * kRows, 0));
    const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
    EXPECT_EQ(exact.at_hand(product), readers > 1);
    EXPECT_EQ(exact.at_hand(first), readers > 1);
    EXPECT_EQ(exact.value(end).data()[0], std::tanh(2.0 * kTerms) + (readers - 1) * 2.0 * kTerms);
  }
}

// What sweeps read holds smaller products, too, and so does what is based on it. Values are the same.
TEST(Replay, ForSweepsSmallerProductsAreKept) {
  constexpr std::int64_t kRows = 80, kTerms = 256;
  GraphBuilder b;
  const NodeId x = b.leaf({kRows, kTerms}, std::vector<double>(kRows * kTerms, 1)),
               y = b.leaf({kTerms, kRows}, std::vector<double>(kTerms * kRows, 2));
  const NodeId product = b.op(Primitive::kMatmul, {x, y}, {kRows, kRows}),
               end = b.op(Primitive::kTanh, {product}, {kRows, kRows});
  b.tap("t", TapKind::kValue, end, std::vector<double>(kRows * kRows, 0));
  const std::vector<LeafValue> leaves = leaf_values(b.graph);
  const Overrides given = {{x, Array::full({kRows, kTerms}, 3.0)}};
  for (const bool swept : {false, true}) {
    const Replay exact = replay(b.graph, leaves, Precision::kExact, {}, nullptr, {.for_sweeps = swept});
    const Replay changed = replay(b.graph, leaves, Precision::kExact, given, &exact);
    EXPECT_EQ(exact.at_hand(product), swept);
    EXPECT_EQ(changed.at_hand(product), swept);
    EXPECT_EQ(exact.value(product).data()[0], 2.0 * kTerms);
    EXPECT_EQ(changed.value(product).data()[0], 6.0 * kTerms);
  }
}

// A backward pass computes again what the forward pass threw away; one of both is computed, and both see it. Another
// number, one of the other sign among them, or an operand that was overridden makes another node.
TEST(Replay, WhatIsComputedTwiceIsComputedOnce) {
  const Shape shape = {80, 80};
  GraphBuilder b;
  std::mt19937 rng(3);
  const NodeId x = b.leaf(shape, test::normal(rng, count(shape)));
  const auto scaled = [&](double by) {
    Attributes number;
    number.scalar = by;
    const NodeId constant = b.op(Primitive::kConstant, {}, shape, Format::kFloat32, number);
    return b.op(Primitive::kTanh, {b.op(Primitive::kMul, {x, constant}, shape)}, shape);
  };
  const std::vector<NodeId> ends = {scaled(0.5), scaled(0.5), scaled(0.25), scaled(0.0), scaled(-0.0)};
  for (const NodeId end : ends) {  // Read so often that each is kept.
    NodeId sum = end;
    for (int i = 0; i < 20; ++i) sum = b.op(Primitive::kAdd, {sum, end}, shape);
    b.tap("t" + std::to_string(end), TapKind::kValue, sum, std::vector<double>(static_cast<std::size_t>(count(shape))));
  }
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const auto same = [&](const Replay& replay, std::size_t i, std::size_t k) {
    return replay.value(ends[i]).same_place(replay.value(ends[k]));
  };
  EXPECT_TRUE(same(exact, 0, 1));
  EXPECT_TRUE(exact.at_hand(ends[1]));
  EXPECT_FALSE(same(exact, 1, 2));
  EXPECT_FALSE(same(exact, 3, 4));
  EXPECT_NE(std::signbit(exact.value(ends[3]).data()[0]), std::signbit(exact.value(ends[4]).data()[0]));
  const Array given = Array::full(shape, 2).materialize();
  for (const std::size_t overridden : {0, 1}) {
    const Replay changed = replay(b.graph, leaf_values(b.graph), Precision::kExact, {{ends[overridden], given}});
    EXPECT_EQ(changed.value(ends[overridden]).data()[0], 2);
    EXPECT_EQ(count_differing(changed.value(ends[1 - overridden]), exact.value(ends[0])), 0);
  }
}

// As for two parts of a batch, each with the rows of a kernel's taps in reverse.
TEST(Replay, RowsThatAreGatheredTwiceAreGatheredOnce) {
  const Shape shape = {80, 80};
  GraphBuilder b;
  std::mt19937 rng(4);
  const NodeId x = b.leaf(shape, test::normal(rng, count(shape)));
  const auto gathered = [&](double first, double step) {
    Attributes numbers;
    numbers.scalar = first;
    numbers.scalar2 = step;
    const NodeId index = b.op(Primitive::kIota, {}, {80}, Format::kInt64, numbers);
    return b.op(Primitive::kGatherRows, {x, index}, shape);
  };
  const std::vector<NodeId> ends = {gathered(79, -1), gathered(79, -1), gathered(0, 1)};
  for (const NodeId end : ends) {  // Read so often that each is kept.
    NodeId sum = end;
    for (int i = 0; i < 40; ++i) sum = b.op(Primitive::kAdd, {sum, end}, shape);
    b.tap("t" + std::to_string(end), TapKind::kValue, sum, std::vector<double>(static_cast<std::size_t>(count(shape))));
  }
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  EXPECT_TRUE(exact.value(ends[0]).same_place(exact.value(ends[1])));
  const double* const rows = exact.value(x).data();
  EXPECT_EQ(exact.value(ends[1]).data()[0], rows[79 * 80]);
  EXPECT_EQ(exact.value(ends[2]).data()[80], rows[80]);
}

TEST(Replay, PackedOverridesAreDecodedForConsumersAlone) {
  constexpr std::int64_t kCount = 10000;
  GraphBuilder b;
  const NodeId x = b.leaf({kCount}, std::vector<double>(kCount, 1));
  const NodeId twice = b.op(Primitive::kAdd, {x, x}, {kCount});
  const NodeId again = b.op(Primitive::kAdd, {twice, x}, {kCount});
  b.tap("t", TapKind::kValue, again, std::vector<double>(kCount, 0));
  const LeafValue given(Format::kFloat16, test::encoded(Format::kFloat16, std::vector<double>(kCount, 10)), {kCount});
  ASSERT_TRUE(given.packed());
  const Replay changed = replay(b.graph, leaf_values(b.graph), Precision::kExact, {{twice, given}});
  EXPECT_TRUE(changed.packed(twice).same_bytes(given));
  EXPECT_EQ(changed.value(twice).data()[kCount - 1], 10);
  EXPECT_EQ(changed.computed(twice).data()[kCount - 1], 2);
  EXPECT_EQ(changed.value(again).data()[kCount - 1], 11);
}

// What a window shows of such a value is decoded each time, not held.
TEST(Replay, WindowsOfPackedOverridesHoldNothing) {
  constexpr std::int64_t kCount = 10000;
  GraphBuilder b;
  const NodeId x = b.leaf({kCount}, std::vector<double>(kCount, 1));
  Attributes along;
  along.dims = {0};
  const NodeId summed = b.op(Primitive::kCumsum, {x}, {kCount}, Format::kFloat32, along);
  Attributes view;
  view.view = {{2, kCount / 2}, {kCount / 2, 1}, 0};
  const NodeId window = b.op(Primitive::kWindow, {summed}, {2, kCount / 2}, Format::kFloat32, view);
  b.tap("t", TapKind::kValue, window, std::vector<double>(kCount, 0));
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  EXPECT_TRUE(exact.at_hand(window));
  const LeafValue given(Format::kFloat16, test::encoded(Format::kFloat16, std::vector<double>(kCount, 10)), {kCount});
  for (const Replay* base : {static_cast<const Replay*>(nullptr), &exact}) {
    const Replay changed = replay(b.graph, leaf_values(b.graph), Precision::kExact, {{summed, given}}, base);
    EXPECT_FALSE(changed.at_hand(window));
    EXPECT_EQ(changed.value(window).data()[0], 10);
  }
}

// A node that passes an earlier one's value on is no step of a chain, whatever is computed at it: with s = -x + x
// passed over for -x, s x is -x x.
TEST(Replay, ChainsEndAtNodesThatPassAnotherOn) {
  constexpr std::int64_t kCount = 1 << 14;
  GraphBuilder b;
  const NodeId x = b.leaf({kCount}, std::vector<double>(kCount, 1));
  const NodeId negative = b.op(Primitive::kNeg, {x}, {kCount});
  const NodeId sum = b.op(Primitive::kAdd, {negative, x}, {kCount});
  const NodeId product = b.op(Primitive::kMul, {sum, x}, {kCount});
  b.tap("t", TapKind::kValue, product, std::vector<double>(kCount, 0));
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  for (const Replay* base : {static_cast<const Replay*>(nullptr), &exact}) {
    const Replay passing =
        replay(b.graph, leaf_values(b.graph), Precision::kExact, {}, base, {.passes = {{sum, negative}}});
    EXPECT_EQ(passing.value(product).materialize().data()[0], -1);
    std::vector<double> seen(1);
    const auto of_tile = [&](std::int64_t, const Tile&, std::span<const Array> ends) { seen[0] = ends[0].data()[0]; };
    look(b.graph, passing, {{{product}, of_tile, [] {}}});
    EXPECT_EQ(seen[0], -1);
  }
}

TEST(Replay, LeafWithoutContentIsAnErrorThatNamesIt) {
  GraphBuilder b;
  const NodeId x = b.leaf({1}, {1.0}, Format::kFloat32, "param:w", LeafRole::kParameter);
  b.tap("t", TapKind::kValue, b.op(Primitive::kNeg, {x}, {1}), {-1.0});
  b.graph.leaves[0].bytes = nullptr;
  try {
    replay(b.graph, leaf_values(b.graph), Precision::kExact);
    FAIL() << "expected an error";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("param:w"), std::string::npos);
  }
}

TEST(Replay, DecisionsWithinRoundingAreFollowedAndWideOnesAreIllegal) {
  for (const auto& [value, legal] : {std::pair{1e-9, true}, std::pair{0.5, false}}) {
    GraphBuilder b;
    const NodeId x = b.leaf({3}, {1.0, -1.0, value});
    const NodeId zero = b.leaf({}, {0.0});
    const NodeId side = b.op(Primitive::kGreater, {x, zero}, {3}, Format::kBool);
    b.tap("t", TapKind::kValue, side, {1, 0, 0});
    b.graph.decisions.push_back({side, test::encoded(Format::kBool, {1, 0, 0})});
    const DecisionCheck check = follow_decisions(b.graph, leaf_values(b.graph), Profile()).decisions;
    EXPECT_EQ(check.differing, 1u);
    EXPECT_EQ(check.total, 3u);
    EXPECT_EQ(check.illegal.empty(), legal) << value;
    EXPECT_EQ(static_cast<Array>(check.overrides.at(side)).data()[2], 0.0);
  }
}

// In a chain of tiles, and alone.
TEST(Replay, WhatReadsANumberForAllElementsIsTheSameHoweverItIsComputed) {
  constexpr std::int64_t kElements = 1 << 14;
  std::vector<double> values;
  for (std::int64_t i = 0; i < kElements; ++i) values.push_back(1 + static_cast<double>(i) / 777);
  for (const Primitive primitive : {Primitive::kPow, Primitive::kMul, Primitive::kDiv, Primitive::kMax})
    for (const double number : {2.0, 3.0, -1.0, 0.5, 0.3}) {
      GraphBuilder b;
      const NodeId x = b.leaf({kElements}, values);
      Attributes all;
      all.view = {{kElements}, {0}, 0};
      const NodeId expanded = b.op(Primitive::kWindow, {b.leaf({}, {number})}, {kElements}, Format::kFloat32, all);
      const NodeId read = b.op(primitive, {x, expanded}, {kElements});
      const NodeId after = b.op(Primitive::kNeg, {read}, {kElements});
      b.tap("t", TapKind::kValue, after, values);
      const auto fresh = [&] { return replay(b.graph, leaf_values(b.graph), Precision::kExact); };
      const Array chain = fresh().value(after), alone = fresh().value(read);
      for (std::int64_t i = 0; i < kElements; ++i)
        ASSERT_EQ(-chain.data()[i], alone.data()[i]) << traits(primitive).name << " " << number << " " << i;
    }
}

// x > 0 comes out otherwise in the first of the elements, and so do a choice by it and what is compared of that.
struct Turned {
  explicit Turned(std::int64_t n) {
    std::vector<double> values(static_cast<std::size_t>(n), 1.0), sides(static_cast<std::size_t>(n), 1.0);
    values[0] = 1e-9;
    x = b.leaf({n}, values);
    const NodeId zero = b.leaf({}, {0.0}), two = b.leaf({}, {2.0}), five = b.leaf({}, {5.0});
    side = b.op(Primitive::kGreater, {x, zero}, {n}, Format::kBool);
    again = b.op(Primitive::kGreater, {x, zero}, {n}, Format::kBool);  // Of which nothing is told.
    picked = b.op(Primitive::kSelect, {side, five, x}, {n});
    later = b.op(Primitive::kGreater, {picked, two}, {n}, Format::kBool);
    total = b.sum_all(b.op(Primitive::kSelect, {later, picked, x}, {n}));
    untouched = b.sum_all(x);
    b.tap("total", TapKind::kValue, total, {0});
    b.tap("untouched", TapKind::kValue, untouched, {0});
    b.tap("again", TapKind::kValue, again, values);
    sides[0] = 0;
    b.graph.decisions.push_back({side, test::encoded(Format::kBool, sides)});
    b.graph.decisions.push_back({later, test::encoded(Format::kBool, sides)});
  }
  GraphBuilder b;
  NodeId x, side, again, picked, later, total, untouched;
};

TEST(Replay, LaterDecisionsAreJudgedByWhatTheEarlierOnesLedTo) {
  for (const std::int64_t n : {2, 1 << 14}) {
    const Turned of(n);
    const Graph& graph = of.b.graph;
    const std::vector<LeafValue> leaves = leaf_values(graph);
    const Replay exact = replay(graph, leaves, Precision::kExact);
    EXPECT_EQ(exact.value(of.total).item(), 5.0 * static_cast<double>(n));
    for (const Replay* base : {static_cast<const Replay*>(nullptr), &exact}) {
      const auto [followed, decisions] = follow_decisions(graph, leaves, Profile(), base);
      EXPECT_EQ(decisions.total, 2U * static_cast<std::uint64_t>(n));
      EXPECT_EQ(decisions.differing, 1U);
      EXPECT_TRUE(decisions.illegal.empty());
      EXPECT_EQ(decisions.overrides.size(), 1U);
      EXPECT_EQ(followed.value(of.side).data()[0], 0.0);
      EXPECT_EQ(followed.computed(of.side).data()[0], 1.0);
      EXPECT_EQ(followed.value(of.again).data()[0], 1.0);
      EXPECT_EQ(followed.value(of.later).data()[0], 0.0);
      EXPECT_EQ(followed.value(of.total).item(), 5.0 * static_cast<double>(n - 1) + 1e-9);
      const Replay given = replay(graph, leaves, Precision::kExact, decisions.overrides);
      for (NodeId id = 0; id < graph.nodes.size(); ++id)
        EXPECT_TRUE(!given.has(id) || bitwise_equal(given.value(id), followed.value(id))) << id;
    }
    EXPECT_EQ(exact.value(of.total).item(), 5.0 * static_cast<double>(n));
  }
}

// What was asked first stays as it is, and the rest goes on from it.
TEST(Replay, APartIsMadeWholeByOneThatIsBasedOnIt) {
  const Turned of(1 << 14);
  const Graph& graph = of.b.graph;
  const std::vector<LeafValue> leaves = leaf_values(graph);
  const std::vector<NodeId> asked = asked_by_program(graph);
  const auto [part, decisions] = follow_decisions(graph, leaves, Profile(), nullptr, &asked);
  const auto [whole, all] = follow_decisions(graph, leaves, Profile());
  EXPECT_EQ(decisions.differing, all.differing);
  EXPECT_FALSE(part.has(of.total));
  EXPECT_TRUE(part.has(of.later));
  const Replay made_whole = replay(graph, leaves, Precision::kExact, {}, &part);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    ASSERT_EQ(made_whole.has(id), whole.has(id)) << id;
    EXPECT_TRUE(!whole.has(id) || bitwise_equal(made_whole.value(id), whole.value(id))) << id;
    EXPECT_EQ(made_whole.overridden(id), whole.overridden(id)) << id;
  }
  EXPECT_EQ(made_whole.value(of.later).address(), part.value(of.later).address());
}

TEST(Replay, WhereNoDecisionDiffersTheExactReplayIsTheFollowedOne) {
  Turned of(1 << 14);
  of.b.graph.decisions.clear();
  std::vector<double> sides(1 << 14, 1.0);
  sides[1] = std::numeric_limits<double>::quiet_NaN();  // Not told.
  of.b.graph.decisions.push_back({of.side, test::encoded(Format::kFloat32, sides), false, Format::kFloat32});
  const std::vector<LeafValue> leaves = leaf_values(of.b.graph);
  const Replay exact = replay(of.b.graph, leaves, Precision::kExact);
  const auto [followed, decisions] = follow_decisions(of.b.graph, leaves, Profile(), &exact);
  EXPECT_TRUE(decisions.overrides.empty());
  EXPECT_EQ(followed.value(of.total).address(), exact.value(of.total).address());
}

TEST(Taps, ComparatorsTreatNanInfinityAndSignedZero) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(bitwise_equal(Array::scalar(nan), Array::scalar(nan)));
  EXPECT_FALSE(bitwise_equal(Array::scalar(0.0), Array::scalar(-0.0)));
  EXPECT_FALSE(bitwise_equal(Array::scalar(nan), Array::scalar(1.0)));
  EXPECT_FALSE(all_finite(Array::scalar(inf)));
  EXPECT_EQ(norm2_difference(Array::scalar(inf), Array::scalar(inf)), 0.0);
  EXPECT_TRUE(std::isnan(norm2_difference(Array::scalar(nan), Array::scalar(1.0))));
  EXPECT_EQ(dot(Array::scalar(0.0), Array::scalar(inf)), 0.0);
}

}  // namespace
}  // namespace plumbline
