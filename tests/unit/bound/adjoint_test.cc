#include "server/bound/envelope/adjoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/sums.h"
#include "server/bound/envelope/events.h"
#include "server/bound/replay/arithmetic.h"
#include "server/bound/replay/taps.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;
using test::normal;

// loss = sum(softmax(f(x w1) w2) * t), f(h) = h sigmoid(g h) + tanh(h): a chain, with a number g a column.
NodeId small_network(GraphBuilder& b, std::mt19937& rng, Format format) {
  const NodeId x = b.leaf({5, 7}, normal(rng, 35), format), w1 = b.leaf({7, 6}, normal(rng, 42), format),
               w2 = b.leaf({6, 4}, normal(rng, 24), format), t = b.leaf({5, 4}, normal(rng, 20), format);
  const NodeId h = b.op(Primitive::kMatmul, {x, w1}, {5, 6}, format), g = b.leaf({6}, normal(rng, 6), format);
  const auto step = [&](Primitive primitive, const std::vector<NodeId>& of) {
    return b.op(primitive, of, {5, 6}, format);
  };
  const NodeId gate = step(Primitive::kSigmoid, {step(Primitive::kMul, {h, g})});
  const NodeId hidden = step(Primitive::kAdd, {step(Primitive::kMul, {h, gate}), step(Primitive::kTanh, {h})});
  const NodeId p = b.op(Primitive::kSoftmax, {b.op(Primitive::kMatmul, {hidden, w2}, {5, 4}, format)}, {5, 4}, format);
  return b.sum_all(b.op(Primitive::kMul, {p, t}, {5, 4}, format), format);
}

// One legal execution: every node off by up to its local error, given what it really saw.
double legal_execution(const Graph& graph, const Profile& profile, NodeId result, std::mt19937& rng, bool extreme) {
  std::uniform_real_distribution<double> draw(-1, 1);
  std::vector<Array> values(graph.nodes.size());
  const auto leaves = leaf_values(graph);
  for (const GraphLeaf& leaf : graph.leaves) values[leaf.node] = leaves[&leaf - graph.leaves.data()];
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.primitive == Primitive::kLeaf) continue;
    std::vector<Array> inputs;
    for (NodeId input : node.inputs) inputs.push_back(values[input]);
    Array out = traits(node.primitive).evaluate(node.attributes, node.shape, inputs).materialize();
    const Bound error =
        traits(node.primitive).local_error(node.attributes, {node.compute, node.result, &profile}, inputs, out);
    Array moved = Array::uninitialized(out.shape());
    for (std::int64_t i = 0; i < out.count(); ++i) {
      const double r = draw(rng), size = error ? error.values.materialize().data()[i] : 0;
      moved.data()[i] = out.data()[i] + size * (extreme ? (r > 0 ? 1 : -1) : r);
    }
    values[id] = moved;
  }
  return values[result].item();
}

TEST(Adjoint, EnvelopeHoldsOverLegalExecutionsAndIsNotIdle) {
  std::mt19937 rng(7);
  Profile profile;
  for (Format format : {Format::kFloat32, Format::kFloat64}) {
    GraphBuilder b;
    const NodeId loss = small_network(b, rng, format);
    b.tap("loss", TapKind::kLoss, loss, {0});
    const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
    const Array m = replayed_value(b.graph.taps[0], exact);
    const auto envelopes = adjoint_envelopes(b.graph, exact, {scalar_probe(probe_tap(0, b.graph.taps[0], m))}, profile);
    const double e = envelopes[0].error;
    ASSERT_GT(e, 0);
    double largest = 0;
    for (int i = 0; i < 3000; ++i)
      largest = std::fmax(largest, std::fabs(legal_execution(b.graph, profile, loss, rng, i % 2 == 0) - m.item()));
    EXPECT_LE(largest, e * (1 + 1e-3));  // first order
    EXPECT_GE(largest, e * 0.02);
    EXPECT_LE(envelopes[0].rho, e * (format == Format::kFloat32 ? 1e-7 : 2.1));
    double parts = 0;
    for (double part : envelopes[0].by_origin) parts += part;
    EXPECT_NEAR(parts, e, 1e-12 * e);
  }
}

// x - x is zero whatever x's error was: the adjoint of a shared value is summed before its absolute value is taken.
TEST(Adjoint, ASweepThatEndsEarlyHasPartsOfTheWhole) {
  std::mt19937 rng(11);
  const Profile profile;
  GraphBuilder b;
  const NodeId loss = small_network(b, rng, Format::kFloat32);
  b.tap("loss", TapKind::kLoss, loss, {0});
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const Probe probe = scalar_probe(probe_tap(0, b.graph.taps[0], replayed_value(b.graph.taps[0], exact)));
  const auto until = [&](double error) {
    const auto enough = [&](const Envelope& so_far) { return so_far.error >= error; };
    return adjoint_envelope_until(enough, b.graph, exact, probe, profile, Executions::kBoth, {});
  };
  const Envelope whole = adjoint_envelopes(b.graph, exact, {probe}, profile).front();
  EXPECT_EQ(until(HUGE_VAL).error, whole.error);
  EXPECT_EQ(until(HUGE_VAL).rho, whole.rho);
  EXPECT_EQ(until(0).error, 0);
  const Envelope part = until(whole.error / 2);
  EXPECT_GE(part.error, whole.error / 2);
  EXPECT_LT(part.error, whole.error);
  EXPECT_LT(part.rho, whole.rho);
  EXPECT_LT(statistical(part.noise, 6), statistical(whole.noise, 6));
}

TEST(Adjoint, SharedErrorsCancel) {
  GraphBuilder b;
  const NodeId x = b.leaf({4}, {1, 2, 3, 4});
  const NodeId e = b.op(Primitive::kExp, {x}, {4});
  const NodeId difference = b.op(Primitive::kSub, {e, e}, {4});
  b.tap("loss", TapKind::kLoss, b.sum_all(difference), {0});
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const auto envelopes = adjoint_envelopes(
      b.graph, exact, {scalar_probe(probe_tap(0, b.graph.taps[0], replayed_value(b.graph.taps[0], exact)))}, Profile());
  EXPECT_EQ(envelopes[0].error, 0);
}

// A network whose activations are computed in many elementwise steps; `apart`: with a copy behind each, so that no
// step is swept together with another.
GraphBuilder activations(bool apart, Format format) {
  std::mt19937 rng(5);
  GraphBuilder b;
  const Shape shape = {150, 250};
  const std::int64_t n = count(shape);
  const auto op = [&](Primitive primitive, const std::vector<NodeId>& inputs) {
    const NodeId result = b.op(primitive, inputs, shape, format);
    Attributes copied;
    copied.view = {shape, row_major_strides(shape), 0};
    return apart ? b.op(Primitive::kWindow, {result}, shape, format, copied) : result;
  };
  const NodeId x = b.leaf(shape, normal(rng, n), format), row = b.leaf({shape[0], 1}, normal(rng, shape[0]), format),
               column = b.leaf({shape[1]}, normal(rng, shape[1]), format), t = b.leaf(shape, normal(rng, n), format);
  const NodeId scale = b.op(Primitive::kExp, {row}, {shape[0], 1}, format),
               gain = b.op(Primitive::kTanh, {column}, {shape[1]}, format),
               constant = b.op(Primitive::kSigmoid, {b.leaf({1}, {0.3}, format)}, {1}, format);
  const NodeId normed = op(Primitive::kMul, {op(Primitive::kMul, {x, scale}), gain});
  const NodeId gated =
      op(Primitive::kMul, {normed, op(Primitive::kSigmoid, {op(Primitive::kMul, {normed, constant})})});
  const NodeId again = op(Primitive::kAdd, {gated, x}), bent = op(Primitive::kErf, {again});
  const NodeId stepped = op(Primitive::kMul, {op(Primitive::kFloor, {again}), again});
  const NodeId end = op(Primitive::kSub, {op(Primitive::kDiv, {bent, op(Primitive::kExp, {gated})}), stepped});
  b.tap("loss", TapKind::kLoss, b.sum_all(op(Primitive::kMul, {end, t}), format), {0});
  b.tap("gated", TapKind::kValue, gated, normal(rng, n));
  b.tap("scale", TapKind::kValue, scale, normal(rng, shape[0]));
  return b;
}

// What lies between the steps of a chain takes no memory; the envelopes are the same.
TEST(Adjoint, RunsOfElementwiseNodesAreSweptAsOne) {
  Profile flushing = ieee();
  flushing.flush_subnormals = true;
  for (const Format format : {Format::kFloat32, Format::kBFloat16, Format::kFloat64})
    for (const Profile& profile : {ieee(), flushing}) {
      const auto envelopes = [&](bool apart) {
        const GraphBuilder b = activations(apart, format);
        const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
        std::vector<ProbeTap> taps;
        for (std::size_t i = 0; i < b.graph.taps.size(); ++i)
          taps.push_back(probe_tap(i, b.graph.taps[i], replayed_value(b.graph.taps[i], exact)));
        const std::vector<Probe> probes = {scalar_probe(taps[0]), signs_probe("taps", {taps[1], taps[2]}, 7)};
        return adjoint_envelopes(b.graph, exact, probes, profile, Executions::kBoth, {}, true);
      };
      const std::vector<Envelope> together = envelopes(false), apart = envelopes(true);
      for (std::size_t p = 0; p < apart.size(); ++p) {
        ASSERT_GT(apart[p].error, 0);
        EXPECT_NEAR(together[p].error, apart[p].error, 1e-5 * apart[p].error);
        EXPECT_NEAR(together[p].rho, apart[p].rho, 1e-5 * apart[p].rho);
        EXPECT_NEAR(together[p].noise.bias, apart[p].noise.bias, 1e-5 * apart[p].error);
        EXPECT_NEAR(together[p].own_noise.bias, apart[p].own_noise.bias, 1e-5 * apart[p].rho);
        // Events are drawn where they matter, to which the number of nodes counts.
        EXPECT_NEAR(together[p].noise.squares, apart[p].noise.squares, 0.1 * apart[p].noise.squares);
        EXPECT_NEAR(together[p].own_noise.squares, apart[p].own_noise.squares, 0.1 * apart[p].own_noise.squares);
      }
    }
}

// The loss's envelope of a graph, in worst case and in chance.
Envelope envelope_of(const GraphBuilder& b, const Profile& profile) {
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const Array m = replayed_value(b.graph.taps[0], exact);
  return adjoint_envelopes(b.graph, exact, {scalar_probe(probe_tap(0, b.graph.taps[0], m))}, profile)[0];
}

TEST(Statistical, IndependentRoundingsAddInSquares) {
  std::mt19937 rng(11);
  Profile profile = ieee();
  GraphBuilder b;
  const std::int64_t n = 10000;
  const NodeId x = b.leaf({n}, normal(rng, n)), y = b.leaf({n}, normal(rng, n)), w = b.leaf({n}, normal(rng, n));
  const NodeId sum = b.op(Primitive::kAdd, {x, y}, {n});
  b.tap("loss", TapKind::kLoss, b.sum_all(b.op(Primitive::kMul, {sum, w}, {n}, Format::kFloat64), Format::kFloat64),
        {0});
  const Envelope envelope = envelope_of(b, profile);
  EXPECT_EQ(envelope.noise.bias, 0);
  const double chance = statistical(envelope.noise, hoeffding_lambda(1, 1e-3));
  EXPECT_LT(chance, envelope.error / 10);
  // 400 executions whose additions are off by up to half an ulp either way.
  std::uniform_real_distribution<double> draw(-1, 1);
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  double largest = 0;
  for (int trial = 0; trial < 400; ++trial) {
    double moved = 0;
    for (std::int64_t i = 0; i < n; ++i)
      moved += 0x1p-24 * std::fabs(exact.value(sum).data()[i]) * draw(rng) * exact.value(w).data()[i];
    largest = std::fmax(largest, std::fabs(moved));
  }
  EXPECT_LE(largest, chance);
  EXPECT_GE(largest, chance / 10);
}

TEST(Statistical, AConstantsErrorIsOneEventHoweverManyElementsItMeets) {
  Profile profile = ieee();
  GraphBuilder b;
  const std::int64_t n = 100000;
  const NodeId x = b.leaf({n}, std::vector<double>(n, 1.0));
  Attributes tenth;
  tenth.scalar = 0.1;
  const NodeId c = b.op(Primitive::kConstant, {}, {}, Format::kFloat32, tenth);
  const NodeId scaled = b.op(Primitive::kMul, {x, c}, {n}, Format::kFloat64);
  b.tap("loss", TapKind::kLoss, b.sum_all(scaled, Format::kFloat64), {0});
  const double off = n * std::fabs(static_cast<double>(0.1F) - 0.1);
  EXPECT_GE(statistical(envelope_of(b, profile).noise, hoeffding_lambda(1, 1e-3)), off);
}

TEST(Statistical, EqualOperandsRoundAlike) {
  Profile profile = ieee();
  GraphBuilder b;
  const std::int64_t n = 100000;  // All alike: every product is off by the same.
  const NodeId x = b.leaf({n}, std::vector<double>(n, 1.0F + 0x1p-12F + 0x1p-23F));
  b.tap("loss", TapKind::kLoss, b.sum_all(b.op(Primitive::kMul, {x, x}, {n}), Format::kFloat64), {0});
  const float v = 1.0F + 0x1p-12F + 0x1p-23F;
  const double off = n * std::fabs(static_cast<double>(v * v) - static_cast<double>(v) * v);
  ASSERT_GT(off, 0);
  EXPECT_GE(statistical(envelope_of(b, profile).noise, hoeffding_lambda(1, 1e-3)), off);
}

// A pass over many elements draws some as it charges them, or looks at all where these do not say enough. Squares are
// no smaller than those of the events and not much larger, also where all of the weight lies where the pass does not
// expect it.
TEST(Statistical, WhatAPassDrawsTellsOfSharedEvents) {
  std::mt19937 rng(5);
  const Profile profile = ieee();
  const std::int64_t n = 100003;
  for (const std::int64_t first : {std::int64_t{0}, n - 3000})
    for (const std::int64_t distinct : {std::int64_t{1}, std::int64_t{40}, std::int64_t{5000}, n}) {
      std::vector<double> values = normal(rng, distinct), weights = normal(rng, n);
      for (std::int64_t i = distinct; i < n; ++i)
        values.push_back(values[rng() % static_cast<std::uint64_t>(distinct)]);
      for (std::int64_t i = 0; i < n; ++i) weights[i] = i < first ? 0 : std::fabs(weights[i]);
      GraphBuilder b;
      const NodeId x = b.leaf({n}, values), a = b.leaf({n}, weights), y = b.op(Primitive::kSigmoid, {x}, {n});
      const NodeId product = b.op(Primitive::kMul, {y, a}, {n}, Format::kFloat64);
      b.tap("loss", TapKind::kLoss, b.sum_all(product, Format::kFloat64), {0});
      const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
      const std::vector<Array> inputs = {exact.value(x)};
      const Array value = exact.value(y), cotangent = exact.value(a);
      const Array merged = merge_shared(cotangent, shared_events({b.graph, y, inputs, value}));
      const Arithmetic arithmetic = arithmetic_of(b.graph, b.graph.nodes[y], profile);
      const PrimitiveTraits& sigmoid = traits(Primitive::kSigmoid);
      const Bound error = sigmoid.local_error({}, arithmetic, inputs, value);
      const double squares =
          sigmoid.charges({}, arithmetic, inputs, value, error, {&merged, 1}).get().front().noise.squares;
      const double charged = envelope_of(b, profile).noise.squares;
      EXPECT_GE(charged, squares * (1 - 1e-9)) << distinct << " values, weights from " << first;
      EXPECT_LE(charged, squares * 4) << distinct << " values, weights from " << first;
    }
}

// The same where our own replay alone is asked, whose roundings count twice.
TEST(Statistical, WhatAPassDrawsTellsOfOurOwnSharedEvents) {
  std::mt19937 rng(5);
  const Profile profile = ieee();
  const std::int64_t n = 100003;
  for (const std::int64_t distinct : {std::int64_t{1}, std::int64_t{40}, std::int64_t{5000}, n}) {
    std::vector<double> values = normal(rng, distinct);
    for (std::int64_t i = distinct; i < n; ++i) values.push_back(values[rng() % static_cast<std::uint64_t>(distinct)]);
    GraphBuilder b;
    const NodeId x = b.leaf({n}, values), y = b.op(Primitive::kSigmoid, {x}, {n}, Format::kFloat64);
    b.tap("y", TapKind::kValue, y, std::vector<double>(n, 0));
    const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
    const std::vector<Array> inputs = {exact.value(x)};
    const Array value = exact.value(y);
    const Array merged = merge_shared(Array::full({n}, 1).materialize(), shared_events({b.graph, y, inputs, value}));
    const PrimitiveTraits& sigmoid = traits(Primitive::kSigmoid);
    const Bound error = sigmoid.local_error({}, replay_arithmetic(), inputs, value);
    const double squares =
        4 * sigmoid.charges({}, replay_arithmetic(), inputs, value, error, {&merged, 1}).get().front().noise.squares;
    Probe sum;
    sum.parts = {{0, n, dense_weights(Array::full({n}, 1).materialize(), {n})}};
    const double charged = adjoint_envelopes(b.graph, exact, {sum}, profile, Executions::kOwn)[0].own_noise.squares;
    EXPECT_GE(charged, squares * (1 - 1e-9)) << distinct << " values";
    EXPECT_LE(charged, squares * 4) << distinct << " values";
  }
}

TEST(Statistical, ASumThatStagnatesIsBias) {
  Profile profile = ieee();
  GraphBuilder b;
  const std::int64_t n = 4097;  // 1, then 4096 addends of half its ulp: none of them moves it.
  std::vector<double> values(n, 0x1p-24);
  values[0] = 1;
  b.tap("loss", TapKind::kLoss, b.sum_all(b.leaf({n}, values), Format::kFloat32), {0});
  const Envelope envelope = envelope_of(b, profile);
  EXPECT_GE(envelope.noise.bias, 4096 * 0x1p-24);
  EXPECT_LE(envelope.noise.bias, envelope.error);
}

TEST(Statistical, CountsAreExact) {
  Profile profile = ieee();
  GraphBuilder b;
  b.tap("loss", TapKind::kLoss, b.sum_all(b.leaf({1000}, std::vector<double>(1000, 1.0)), Format::kFloat32), {0});
  const Envelope envelope = envelope_of(b, profile);
  EXPECT_EQ(envelope.error, 0);
  EXPECT_EQ(envelope.noise.bias + envelope.noise.squares, 0);
}

// f = (x - 1)^2 at x = 1 + rounding: all of the deviation is of second order.
TEST(Adjoint, RemainderSeesWhatTheFirstOrderCannot) {
  GraphBuilder b;
  const NodeId x = b.leaf({1}, {2.0F / 3.0F}), y = b.leaf({1}, {1.5});
  const NodeId product = b.op(Primitive::kMul, {x, y}, {1}, Format::kFloat16);
  const NodeId shifted = b.op(Primitive::kSub, {product, b.leaf({1}, {1.0})}, {1}, Format::kFloat64);
  const NodeId square = b.op(Primitive::kMul, {shifted, shifted}, {1}, Format::kFloat64);
  b.tap("loss", TapKind::kLoss, square, {0});
  const auto leaves = leaf_values(b.graph);
  const Replay exact = replay(b.graph, leaves, Precision::kExact);
  Overrides nudged;  // A legal result of the product, an eighth of an ulp away.
  nudged[product] = Array::full({1}, exact.value(product).item() + 0x1p-13);
  const Replay moved = replay(b.graph, leaves, Precision::kExact, nudged, &exact);
  const std::vector<Probe> probes = {scalar_probe({0, "loss", {}, 1})};
  const Profile profile = ieee();
  const double deviation = std::fabs(moved.value(square).item() - exact.value(square).item());
  EXPECT_LT(adjoint_envelopes(b.graph, exact, probes, profile)[0].error, deviation);
  EXPECT_GE(second_order_remainders(b.graph, exact, moved, probes, profile)[0], deviation);
}

TEST(SharedEvents, MergesRowsOfASoftmaxAndElementsOfOthers) {
  GraphBuilder b;
  const NodeId x = b.leaf({3, 2}, {1, 2, 5, 7, 1, 2});
  const NodeId p = b.op(Primitive::kSoftmax, {x}, {3, 2}), e = b.op(Primitive::kExp, {x}, {3, 2});
  b.tap("loss", TapKind::kLoss, b.sum_all(b.op(Primitive::kMul, {p, e}, {3, 2})), {0});
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const SharedEvents rows = shared_events({b.graph, p, {exact.value(x)}, exact.value(p)});
  ASSERT_EQ(rows.count, 1U);
  Array cotangent = Array::uninitialized({3, 2});
  for (int i = 0; i < 6; ++i) cotangent.data()[i] = i + 1;
  const Array merged = merge_shared(cotangent, rows);
  const double wanted[] = {1 + 5, 2 + 6, 3, 4, 0, 0};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(merged.data()[i], wanted[i]) << i;
  EXPECT_EQ(shared_events({b.graph, e, {exact.value(x)}, exact.value(e)}).count, 2U);
}

// exp(0) is 1, and nothing is rounded; but not in the middle of another function.
TEST(SharedEvents, WhatIsNotRoundedIsNone) {
  GraphBuilder b;
  Attributes fused;
  fused.scalar = 1;
  const NodeId x = b.leaf({6}, {0, 0, 1, 1, 2, -0.0});
  const NodeId e = b.op(Primitive::kExp, {x}, {6}), within = b.op(Primitive::kExp, {x}, {6}, Format::kFloat32, fused);
  b.tap("loss", TapKind::kLoss, b.sum_all(b.op(Primitive::kMul, {e, within}, {6})), {0});
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  EXPECT_EQ(shared_events({b.graph, e, {exact.value(x)}, exact.value(e)}).count, 1U);
  EXPECT_EQ(shared_events({b.graph, within, {exact.value(x)}, exact.value(within)}).count, 2U);
  Array cotangent = Array::uninitialized({6});
  for (int i = 0; i < 6; ++i) cotangent.data()[i] = i + 1;
  for (const NodeId node : {e, within}) {  // As a device finds them.
    const EventKeys keys(b.graph, node, {exact.value(x)}, exact.value(node));
    const Array merged = merge_shared(cotangent, shared_events(keys)), ordered = merge_events(keys.order(), cotangent);
    double of_host = 0, of_device = 0;
    for (int i = 0; i < 6; ++i) {
      of_host += std::pow(merged.data()[i], 2);
      of_device += std::pow(ordered.data()[i], 2);
    }
    EXPECT_NEAR(of_device, of_host, 1e-9 * of_host);
  }
}

// The same where a pass draws: half of all weight is on exponentials of 0.
TEST(Statistical, WhatIsNotRoundedIsNoSharedEvent) {
  std::mt19937 rng(7);
  const std::int64_t n = 100003;
  std::vector<double> values = normal(rng, n);
  for (std::int64_t i = 0; i < n; i += 2) values[i] = 0;
  for (const double inside : {0.0, 1.0}) {
    GraphBuilder b;
    Attributes attributes;
    attributes.scalar = inside;
    const NodeId x = b.leaf({n}, values), a = b.leaf({n}, std::vector<double>(n, 1.0));
    const NodeId y = b.op(Primitive::kExp, {x}, {n}, Format::kFloat32, attributes);
    const NodeId product = b.op(Primitive::kMul, {y, a}, {n}, Format::kFloat64);
    b.tap("loss", TapKind::kLoss, b.sum_all(product, Format::kFloat64), {0});
    double squares = 0;  // Of events that are all apart.
    for (double v : values) squares += std::pow(0x1p-24 * std::exp(v), 2);
    const double charged = envelope_of(b, ieee()).noise.squares;
    EXPECT_GE(charged, squares);
    if (inside == 0) {
      EXPECT_LE(charged, 4 * squares);
    } else {
      EXPECT_GE(charged, 1000 * squares);
    }
  }
}

// Where mathematics alone asks, our replay's roundings are charged whole: no less than what both models say of them.
TEST(AdjointEnvelopes, OfMathematicsAloneAreWhole) {
  GraphBuilder b;
  std::mt19937 rng(6);
  b.tap("loss", TapKind::kLoss, small_network(b, rng, Format::kFloat32), {0});
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const Probe asked = scalar_probe({0, "loss", {}, 1});
  Probe of_mathematics = asked;
  of_mathematics.of_mathematics = true;
  const Envelope by_chance = adjoint_envelopes(b.graph, exact, {asked}, ieee(), Executions::kOwn)[0],
                 whole = adjoint_envelopes(b.graph, exact, {of_mathematics}, ieee(), Executions::kOwn)[0];
  EXPECT_EQ(whole.rho, by_chance.rho);
  EXPECT_NEAR(whole.own_noise.bias, whole.rho, 1e-12 * whole.rho);
  EXPECT_EQ(whole.own_noise.squares, 0);
  EXPECT_GT(by_chance.own_noise.squares, 0);
  EXPECT_LE(by_chance.own_noise.bias, whole.own_noise.bias);
}

// So they are at tensors, unless the target computes in fp64 as we do.
TEST(AdjointEnvelopes, OfTensorsAreWholeBesideRoundingsToFp32) {
  for (const Format format : {Format::kFloat32, Format::kFloat64}) {
    GraphBuilder b;
    std::mt19937 rng(7);
    const NodeId e = b.op(Primitive::kExp, {b.leaf({4}, normal(rng, 4), format)}, {4}, format);
    b.tap("e", TapKind::kGradient, e, {0, 0, 0, 0});
    const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
    const Probe probe = signs_probe("signs", {{0, "e", {4}, 1}}, 1);
    const Envelope found = adjoint_envelopes(b.graph, exact, {probe}, ieee(), Executions::kBoth)[0];
    EXPECT_GT(found.noise.squares, 0);
    EXPECT_EQ(found.own_noise.squares > 0, format == Format::kFloat64);
    EXPECT_GT(found.own_noise.bias + found.own_noise.squares, 0);
  }
}

// The envelope of the taps' weights as vectors is that of their elements.
void expect_equal_by_elements(const Graph& graph, const std::vector<ProbeTap>& taps) {
  const Replay exact = replay(graph, leaf_values(graph), Precision::kExact);
  const Probe as_vectors = signs_probe("s", taps, 3);
  Probe by_elements = as_vectors;
  for (Probe::Part& part : by_elements.parts)
    part.weights = {Array::full({1}, 1), part.weights.array().reshape({part.elements}), part.weights.shape};
  const std::vector<Envelope> e = adjoint_envelopes(graph, exact, {as_vectors, by_elements}, ieee());
  EXPECT_GT(e[0].error, 0);
  EXPECT_NEAR(e[0].error, e[1].error, 1e-12 * e[1].error);
  EXPECT_NEAR(e[0].rho, e[1].rho, 1e-12 * e[1].rho);
  EXPECT_NEAR(e[0].noise.squares, e[1].noise.squares, 1e-12 * e[1].noise.squares);
}

// Weights that stay an outer product behind transposition, reshaping and a product say what their elements say.
TEST(AdjointEnvelopes, OfWeightsAsVectorsAndElementByElementAreEqual) {
  GraphBuilder b;
  std::mt19937 rng(5);
  const NodeId x = b.op(Primitive::kExp, {b.leaf({2, 2, 3}, normal(rng, 12))}, {2, 2, 3}),
               y = b.op(Primitive::kSin, {b.leaf({4, 5}, normal(rng, 20))}, {4, 5});
  Attributes rows, transposed;
  rows.view = {{3, 4}, {1, 3}, 0};  // x's elements as a matrix of 4 rows, read by columns.
  transposed.view = {{5, 3}, {1, 5}, 0};
  const NodeId columns = b.op(Primitive::kWindow, {x}, {3, 4}, Format::kFloat32, rows);
  const NodeId product = b.op(Primitive::kMatmul, {columns, y}, {3, 5});
  b.tap("gradient", TapKind::kGradient, b.op(Primitive::kWindow, {product}, {5, 3}, Format::kFloat32, transposed), {0});
  b.tap("others", TapKind::kValue, b.op(Primitive::kNeg, {x}, {2, 2, 3}), {0});
  const std::vector<ProbeTap> taps{{0, "gradient", {5, 3}, 1}, {1, "others", {2, 2, 3}, 1}};
  expect_equal_by_elements(b.graph, {taps[0]});
  expect_equal_by_elements(b.graph, taps);
}

// So do weights of a gradient that was accumulated, and weights that are added to more than such a sum.
TEST(AdjointEnvelopes, OfWeightsOfSumsAsVectorsAndElementByElementAreEqual) {
  for (const bool narrow : {false, true})
    for (const bool read_elsewhere : {false, true}) {
      GraphBuilder b;
      std::mt19937 rng(7);
      const auto product = [&](std::int64_t terms) {
        const NodeId x = b.op(Primitive::kExp, {b.leaf({3, terms}, normal(rng, 3 * terms))}, {3, terms}),
                     y = b.op(Primitive::kSin, {b.leaf({terms, 5}, normal(rng, 5 * terms))}, {terms, 5});
        return b.op(Primitive::kMatmul, {x, y}, {3, 5});
      };
      const Format format = narrow ? Format::kBFloat16 : Format::kFloat32;
      const NodeId first = product(4), second = product(6), row = b.leaf({1, 5}, normal(rng, 5));
      const NodeId twice = b.op(Primitive::kAdd, {first, b.op(Primitive::kAdd, {second, first}, {3, 5})}, {3, 5});
      const NodeId sum = b.op(Primitive::kCast, {twice}, {3, 5}, format);
      const NodeId broadcast = b.op(Primitive::kAdd, {second, row}, {3, 5});
      b.tap("gradient", TapKind::kGradient, sum, {0});
      b.tap("broadcast", TapKind::kGradient, broadcast, {0});
      if (read_elsewhere) b.tap("others", TapKind::kValue, b.op(Primitive::kExp, {twice}, {3, 5}), {0});
      std::vector<ProbeTap> taps;
      for (std::size_t i = 0; i < b.graph.taps.size(); ++i) taps.push_back({i, b.graph.taps[i].name, {3, 5}, 1});
      expect_equal_by_elements(b.graph, taps);
    }
}

// A value that consumers saw in place of a node's own brings its own roundings, though nothing in the graph leads
// there.
TEST(AdjointEnvelopes, OfAPassedValueAreThoseOfWhereItCameFrom) {
  GraphBuilder b;
  std::mt19937 rng(8);
  const NodeId earlier = b.op(Primitive::kExp, {b.leaf({4}, normal(rng, 4))}, {4});
  const NodeId later = b.op(Primitive::kSin, {b.leaf({4}, normal(rng, 4))}, {4});
  b.tap("value", TapKind::kValue, b.op(Primitive::kNeg, {later}, {4}), {0});
  b.tap("earlier", TapKind::kValue, earlier, {0});
  b.tap("later", TapKind::kValue, later, {0});
  const std::vector<LeafValue> leaves = leaf_values(b.graph);
  const Replay exact = replay(b.graph, leaves, Precision::kExact);
  const Replay passed = replay(b.graph, leaves, Precision::kExact, {}, &exact, {.passes = {{later, earlier}}});
  const auto error = [&](std::size_t tap, const Replay& by) {
    const Probe probe{"s", {{tap, 4, dense_weights(Array::full({4}, 1).materialize(), {4})}}};
    return adjoint_envelopes(b.graph, by, {probe}, ieee())[0].error;
  };
  EXPECT_GT(error(1, exact), 0);
  EXPECT_NEAR(error(0, passed), error(1, exact) + error(2, exact), 1e-12 * error(0, passed));
}

// A depthwise convolution and the gradient of its weight, as they are lowered: their patches stay in the image, unless
// they are copied once more. What flows back through either is the same, and so is what other nodes are charged.
TEST(Adjoint, PatchesAreSweptStraightToTheirImage) {
  struct Swept {
    Graph graph;
    Envelope envelope;
    std::vector<NodeId> upstream;
    NodeId product;
  };
  const auto swept = [](bool transposed, bool copied, bool free) {
    std::mt19937 rng(11);
    GraphBuilder b;
    const auto squared = [&](const Shape& shape) {
      const NodeId x = b.leaf(shape, normal(rng, count(shape)));
      return b.op(Primitive::kMul, {x, x}, shape);
    };
    const auto window = [&](NodeId x, const View& view) {
      Attributes attributes;
      attributes.view = view;
      return b.op(Primitive::kWindow, {x}, view.sizes, Format::kFloat32, attributes);
    };
    const NodeId image = squared({2, 3, 6, 6});
    const NodeId rows = squared(transposed ? Shape{3, 1, 32} : Shape{3, 1, 9});
    NodeId patches = window(image, transposed ? View{{3, 3, 3, 2, 4, 4}, {36, 6, 1, 108, 6, 1}, 0}
                                              : View{{2, 3, 3, 3, 4, 4}, {108, 36, 6, 1, 6, 1}, 0});
    const NodeId seen = patches;
    patches =
        window(patches, transposed ? View{{3, 32, 9}, {288, 1, 32}, 0} : View{{2, 3, 9, 16}, {432, 144, 16, 1}, 0});
    if (copied)
      patches = window(patches, {b.graph.nodes[patches].shape, row_major_strides(b.graph.nodes[patches].shape), 0});
    const Shape shape = transposed ? Shape{3, 1, 9} : Shape{2, 3, 1, 16};
    const NodeId product = b.op(Primitive::kMatmul, {rows, patches}, shape);
    const NodeId weighted = b.op(Primitive::kMul, {product, b.leaf(shape, normal(rng, count(shape)))}, shape);
    b.tap("loss", TapKind::kLoss, b.sum_all(weighted), {0});
    const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
    EXPECT_EQ(exact.patches(product).has_value(), !copied);
    const Array m = replayed_value(b.graph.taps[0], exact);
    Slack slack;
    if (free) slack.freedoms.emplace(seen, Array::full(b.graph.nodes[seen].shape, 1e-3));
    const auto envelopes = adjoint_envelopes(b.graph, exact, {scalar_probe(probe_tap(0, b.graph.taps[0], m))}, ieee(),
                                             Executions::kBoth, slack);
    return Swept{b.graph, envelopes[0], {image, rows, weighted}, product};
  };
  for (const bool transposed : {false, true})
    for (const bool free : {false, true}) {
      const Swept read = swept(transposed, false, free), apart = swept(transposed, true, free);
      const auto charge = [](const Swept& of, NodeId id) { return of.envelope.by_origin[of.graph.nodes[id].origin]; };
      for (std::size_t i = 0; i < read.upstream.size(); ++i) {
        const double expected = charge(apart, apart.upstream[i]);
        EXPECT_GT(expected, 0);
        EXPECT_NEAR(charge(read, read.upstream[i]), expected, 1e-9 * expected) << i;
      }
      EXPECT_GT(charge(read, read.product), 0);
      EXPECT_LE(charge(read, read.product), charge(apart, apart.product) * (1 + 1e-9));
      EXPECT_EQ(apart.envelope.freedom > 0, free);
      EXPECT_NEAR(read.envelope.freedom, apart.envelope.freedom, 1e-9 * apart.envelope.freedom);
    }
}

}  // namespace
}  // namespace plumbline
