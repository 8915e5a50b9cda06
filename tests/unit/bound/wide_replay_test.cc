#include "server/bound/replay/wide_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "kernels/wide/compare.h"
#include "server/bound/envelope/adjoint.h"
#include "server/bound/replay/taps.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;
using enum Primitive;

double item(const WideArray& x) { return static_cast<double>(x.materialize().data()[0]); }

bool equal(const WideArray& a, const WideArray& b) {
  const Array apart = wide::difference(a, b);
  return std::all_of(apart.data(), apart.data() + apart.count(), [](double x) { return x == 0; });
}

Attributes over(std::vector<std::int64_t> dims, double scalar = 0) {
  Attributes a;
  a.dims = std::move(dims);
  a.scalar = scalar;
  return a;
}

Attributes seen(View view) {
  Attributes a;
  a.view = std::move(view);
  return a;
}

std::vector<double> random_values(std::int64_t n, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& x : values) x = static_cast<float>(normal(rng));
  return values;
}

// ((1 + tiny) - 1) / tiny.
struct Cancelling {
  GraphBuilder b;
  NodeId one, tiny, sum, back, ratio;

  Cancelling() {
    one = b.leaf({1}, {1.0});
    tiny = b.leaf({1}, {1e-20}, Format::kFloat64);
    sum = b.op(kAdd, {one, tiny}, {1}, Format::kFloat64);
    back = b.op(kSub, {sum, one}, {1}, Format::kFloat64);
    ratio = b.op(kDiv, {back, tiny}, {1}, Format::kFloat64);
    b.tap("t", TapKind::kValue, ratio, {0});
  }
};

// A chain of functions, asked for at its end, then in its middle and beyond.
TEST(WideReplay, TakesWhatWasKept) {
  GraphBuilder b;
  const NodeId x = b.leaf({64}, random_values(64, 5));
  const NodeId grown = b.op(kExp, {x}, {64}, Format::kFloat64);
  const NodeId choice = b.op(kFloor, {grown}, {64}, Format::kFloat64);
  const NodeId rest = b.op(kSub, {grown, choice}, {64}, Format::kFloat64);
  const NodeId beyond = b.op(kTanh, {rest}, {64}, Format::kFloat64);
  const auto leaves = leaf_values(b.graph);
  const Overrides given{{choice, Array::full({64}, 0.5)}};
  WideValues kept;
  ASSERT_TRUE(wide_replay(b.graph, leaves, given, {rest, choice}, {}, &kept));
  EXPECT_NE(kept.find(grown), nullptr);
  EXPECT_NE(kept.find(rest), nullptr);
  const std::vector<NodeId> wanted{grown, choice, rest, beyond};
  const WideReplay afresh = wide_replay(b.graph, leaves, given, wanted);
  const WideReplay again = wide_replay(b.graph, leaves, given, wanted, {}, &kept);
  ASSERT_TRUE(afresh && again);
  EXPECT_LT(again.cost().nodes, afresh.cost().nodes);
  for (NodeId id : wanted) {
    EXPECT_TRUE(equal(again.value(id), afresh.value(id))) << id;
    EXPECT_TRUE(equal(again.computed(id), afresh.computed(id))) << id;
  }
}

TEST(WideReplay, KeepsWhatFp64Loses) {
  Cancelling c;
  const auto leaves = leaf_values(c.b.graph);
  EXPECT_EQ(replay(c.b.graph, leaves, Precision::kExact).value(c.ratio).item(), 0);
  const WideReplay wide = wide_replay(c.b.graph, leaves, {}, {c.ratio});
  ASSERT_TRUE(wide);
  EXPECT_NEAR(item(wide.value(c.ratio)), 1, 1e-13);
  EXPECT_NEAR(wide::difference(replayed_value(c.b.graph.taps[0], wide), Array::zeros({1})).item(), 1, 1e-13);
  EXPECT_FALSE(wide.value(c.back)) << "only what was wanted is kept";
}

// A small training step of a network, forward and backward, with every family of primitives in it.
struct Network {
  GraphBuilder b;
  NodeId logits, positive, loss, gradient;

  Network() {
    const NodeId x = b.leaf({16, 24}, random_values(16 * 24, 1)), w = b.leaf({24, 32}, random_values(24 * 32, 2));
    const NodeId v = b.leaf({32, 10}, random_values(320, 3)), zero = b.op(kConstant, {}, {});
    const NodeId at = b.leaf({16}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5}, Format::kInt64);
    const NodeId mean =
        b.op(kMul, {b.op(kSum, {x}, {16, 1}, Format::kFloat32, over({1})), constant(1.0 / 24)}, {16, 1});
    const NodeId centred = b.op(kSub, {x, mean}, {16, 24});
    const NodeId scale = b.op(kVarianceRsqrt, {x}, {16, 1}, Format::kFloat32, over({1}, 1e-5));
    const NodeId normal = b.op(kMul, {centred, scale}, {16, 24});
    const NodeId hidden = b.op(kMatmul, {normal, w}, {16, 32});
    positive = b.op(kGreater, {hidden, zero}, {16, 32}, Format::kBool);
    const NodeId active = b.op(kSelect, {positive, hidden, zero}, {16, 32});
    const NodeId wave = b.op(kMul, {b.op(kTanh, {active}, {16, 32}), b.op(kErf, {hidden}, {16, 32})}, {16, 32});
    logits = b.op(kMatmul, {wave, v}, {16, 10});
    const NodeId logs = b.op(kLogSoftmax, {logits}, {16, 10});
    const NodeId flat = b.op(kWindow, {logs}, {160, 1}, Format::kFloat32, seen({{160, 1}, {1, 1}, 0}));
    Attributes rows;
    rows.scalar2 = 10;
    const NodeId places = b.op(kAdd, {b.op(kIota, {}, {16}, Format::kInt64, rows), at}, {16}, Format::kInt64);
    const NodeId picked = b.op(kGatherRows, {flat, places}, {16, 1});
    loss = b.op(kMul, {b.sum_all(picked), constant(-1.0 / 16)}, {1, 1});
    const NodeId p = b.op(kExp, {logs}, {16, 10});
    Attributes size;
    size.size = 160;
    const NodeId hot = b.op(kScatterAdd, {b.op(kConstant, {}, {16, 1}, Format::kFloat32, over({}, 1)), places},
                            {160, 1}, Format::kFloat32, size);
    const NodeId delta =
        b.op(kSub, {p, b.op(kWindow, {hot}, {16, 10}, Format::kFloat32, seen({{16, 10}, {10, 1}, 0}))}, {16, 10});
    const NodeId transposed = b.op(kWindow, {wave}, {32, 16}, Format::kFloat32, seen({{32, 16}, {1, 32}, 0}));
    gradient = b.op(kMatmul, {transposed, delta}, {32, 10});
    b.tap("loss", TapKind::kLoss, loss, {0});
    b.tap("grad", TapKind::kGradient, gradient, std::vector<double>(320, 0));
  }
  NodeId constant(double value) { return b.op(kConstant, {}, {}, Format::kFloat32, over({}, value)); }
};

TEST(WideReplay, AgreesWithTheFp64ReplayUpToItsRounding) {
  Network n;
  const auto leaves = leaf_values(n.b.graph);
  const Replay narrow = replay(n.b.graph, leaves, Precision::kExact);
  const WideReplay wide = wide_replay(n.b.graph, leaves, {}, {n.loss, n.gradient});
  ASSERT_TRUE(wide);
  EXPECT_LE(std::fabs(wide::difference(wide.value(n.loss), narrow.value(n.loss)).item()), 1e-14);
  const Array apart = wide::difference(wide.value(n.gradient), narrow.value(n.gradient));
  double most = 0;
  for (std::int64_t i = 0; i < apart.count(); ++i) most = std::fmax(most, std::fabs(apart.data()[i]));
  EXPECT_LE(most, 1e-12);
  EXPECT_GT(most, 0) << "two replays of different precision";
}

TEST(WideReplay, MeasuresWhatRhoEstimates) {
  Network n;
  const Graph& graph = n.b.graph;
  const auto leaves = leaf_values(graph);
  const Replay narrow = replay(graph, leaves, Precision::kExact);
  const std::vector<NodeId> wanted = {n.loss, n.gradient};
  const WideReplay wide = wide_replay(graph, leaves, shared_decisions(graph, narrow, wanted), wanted);
  ASSERT_TRUE(wide);
  std::vector<Probe> probes;
  for (std::size_t tap = 0; tap < graph.taps.size(); ++tap) {
    const ProbeTap probed = probe_tap(tap, graph.taps[tap], replayed_value(graph.taps[tap], narrow));
    for (std::uint64_t seed = 1; seed <= 20; ++seed) probes.push_back(signs_probe("signs", {probed}, seed));
  }
  const auto envelopes = adjoint_envelopes(graph, narrow, probes, ieee(), Executions::kOwn);
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const Probe::Part& part = probes[i].parts[0];
    const GraphTap& tap = graph.taps[part.tap];
    const double measured = std::fabs(wide::dot_difference(
        part.weights.array(), WideArray::of(replayed_value(tap, narrow)), replayed_value(tap, wide)));
    EXPECT_LE(measured, envelopes[i].rho);
    EXPECT_GT(envelopes[i].rho, 0);
    EXPECT_LT(envelopes[i].rho, 1e-11) << "an estimate that says something";
  }
}

TEST(WideReplay, GivenValuesAreSeenByReadersAndEndTheCone) {
  Network n;
  auto leaves = leaf_values(n.b.graph);
  const Array none = Array::zeros({16, 32});
  const WideReplay wide = wide_replay(n.b.graph, leaves, {{n.positive, none}}, {n.positive, n.logits});
  ASSERT_TRUE(wide);
  for (std::int64_t i = 0; i < 160; ++i) EXPECT_EQ(wide.value(n.logits).data()[i], 0) << "nothing is active";
  EXPECT_EQ(wide.value(n.positive).data()[0], 0);
  double active = 0;
  for (std::int64_t i = 0; i < 512; ++i) active += static_cast<double>(wide.computed(n.positive).data()[i]);
  EXPECT_GT(active, 100) << "its own result is another";
  // What lies before a given value is not needed.
  for (LeafValue& leaf : leaves) leaf = LeafValue();
  leaves[2] = leaf_values(n.b.graph)[2];
  const WideCost whole = wide_cost(n.b.graph, {}, {n.gradient});
  const Overrides given = {{n.logits, Array::zeros({16, 10})}};
  const NodeId probabilities = n.logits + 1;
  EXPECT_LT(wide_cost(n.b.graph, given, {probabilities}).work, whole.work / 4);
  EXPECT_NEAR(item(wide_replay(n.b.graph, leaves, given, {probabilities}).value(probabilities)), -std::log(10), 1e-15);
  EXPECT_THROW(wide_replay(n.b.graph, leaves, {}, {probabilities}), std::runtime_error);
}

TEST(WideReplay, SharedDecisionsTakeTheSideOfTheReplay) {
  Cancelling c;
  const NodeId zero = c.b.op(kConstant, {}, {}), is_positive = c.b.op(kGreater, {c.back, zero}, {1}, Format::kBool);
  const NodeId chosen = c.b.op(kSelect, {is_positive, c.one, c.ratio}, {1});
  c.b.tap("chosen", TapKind::kValue, chosen, {0});
  const auto leaves = leaf_values(c.b.graph);
  const Replay narrow = replay(c.b.graph, leaves, Precision::kExact);
  EXPECT_EQ(item(wide_replay(c.b.graph, leaves, {}, {is_positive}).value(is_positive)), 1);
  const Overrides shared = shared_decisions(c.b.graph, narrow, {chosen});
  ASSERT_EQ(shared.size(), 1U);
  EXPECT_EQ(shared.begin()->first, is_positive);
  const WideReplay wide = wide_replay(c.b.graph, leaves, shared, {chosen});
  EXPECT_NEAR(item(wide.value(chosen)), 1, 1e-13);
  EXPECT_NE(item(wide.value(chosen)), 1) << "the side of the fp64 replay, in more bits";
}

TEST(WideReplay, LimitsAndProgress) {
  Network n;
  const auto leaves = leaf_values(n.b.graph);
  const WideCost cost = wide_cost(n.b.graph, {}, {n.gradient});
  const auto outcome = [&](WideLimits limits) {
    const WideReplay wide = wide_replay(n.b.graph, leaves, {}, {n.gradient}, limits);
    EXPECT_EQ(static_cast<bool>(wide.value(n.gradient)), static_cast<bool>(wide));
    EXPECT_EQ(wide.cost().work, cost.work);
    return wide.outcome();
  };
  EXPECT_EQ(outcome({cost.work, cost.bytes, {}}), WideReplay::Outcome::kDone);
  EXPECT_EQ(outcome({cost.work * 0.99, cost.bytes, {}}), WideReplay::Outcome::kTooLarge);
  EXPECT_EQ(outcome({cost.work, cost.bytes - 1, {}}), WideReplay::Outcome::kTooLarge);
  double last = 0;
  int calls = 0;
  const auto count_calls = [&](double share) {
    EXPECT_GE(share, last);
    last = share;
    ++calls;
    return true;
  };
  EXPECT_EQ(outcome({cost.work, cost.bytes, count_calls}), WideReplay::Outcome::kDone);
  EXPECT_EQ(calls, cost.nodes);
  EXPECT_GT(last, 0.5);
  EXPECT_EQ(outcome({cost.work, cost.bytes, [](double share) { return share < 0.3; }}), WideReplay::Outcome::kStopped);
}

TEST(WideReplay, ValuesAreFreedWhenTheirLastReaderIsDone) {
  GraphBuilder b;
  constexpr std::int64_t kCount = 10000, kBytes = kCount * 16;
  const NodeId x = b.leaf({kCount}, std::vector<double>(kCount, 1));
  NodeId last = x;
  for (int i = 0; i < 50; ++i) last = b.op(kMul, {last, x}, {kCount});
  EXPECT_LE(wide_cost(b.graph, {}, {last}).bytes, 3 * kBytes);
  EXPECT_GE(wide_cost(b.graph, {}, {last}).bytes, 3 * kBytes);
  // Windows and casts share what they read, and keep it.
  const NodeId row = b.op(kWindow, {last}, {300, kCount}, Format::kFloat32, seen({{300, kCount}, {0, 1}, 0}));
  const NodeId same = b.op(kCast, {row}, {300, kCount}, Format::kFloat64);
  EXPECT_LE(wide_cost(b.graph, {}, {same}).bytes, 4 * kBytes);
  const WideReplay wide = wide_replay(b.graph, leaf_values(b.graph), {}, {same});
  ASSERT_TRUE(wide);
  EXPECT_EQ(wide.value(same).count(), 300 * kCount);
  EXPECT_EQ(item(wide.value(same)), 1);
}

TEST(WideReplay, IntegersWrap) {
  GraphBuilder b;
  const NodeId x = b.leaf({2}, {2654435761.0, 12345}, Format::kInt64);
  const NodeId factor = b.op(kConstant, {}, {}, Format::kInt64, over({}, 2654435761.0));
  const NodeId once = b.op(kMul, {x, factor}, {2}, Format::kInt64);
  const NodeId twice = b.op(kMul, {once, factor}, {2}, Format::kInt64);
  const NodeId narrow = b.op(kCast, {twice}, {2}, Format::kInt32);
  const NodeId bytes =
      b.op(kSub, {b.leaf({1}, {3}, Format::kUInt8), b.leaf({1}, {5}, Format::kUInt8)}, {1}, Format::kUInt8);
  const WideReplay wide = wide_replay(b.graph, leaf_values(b.graph), {}, {twice, narrow, bytes});
  ASSERT_TRUE(wide);
  constexpr std::uint64_t kFactor = 2654435761;
  const std::uint64_t wanted[] = {kFactor * kFactor * kFactor, 12345 * kFactor * kFactor};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(static_cast<std::int64_t>(wide.value(twice).data()[i]), static_cast<std::int64_t>(wanted[i]));
    EXPECT_EQ(static_cast<std::int64_t>(wide.value(narrow).data()[i]), static_cast<std::int32_t>(wanted[i]));
  }
  EXPECT_EQ(item(wide.value(bytes)), 254);
}

TEST(WideReplay, TapsAreWeightedSumsOfTheirTerms) {
  Cancelling c;
  GraphTap tap = c.b.graph.taps[0];
  tap.shape = {};
  tap.terms = {{c.sum, 1, Format::kFloat64, {}}, {c.one, -1, Format::kFloat32, {}}};
  const WideReplay wide = wide_replay(c.b.graph, leaf_values(c.b.graph), {}, nodes_of(tap));
  EXPECT_EQ(replayed_value(tap, wide).shape(), Shape{});
  EXPECT_NEAR(item(replayed_value(tap, wide)), 1e-20, 1e-33);
}

}  // namespace
}  // namespace plumbline
