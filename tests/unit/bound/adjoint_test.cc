#include "server/bound/adjoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/cpu/sums.h"
#include "server/bound/taps.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

std::vector<double> normal(std::mt19937& rng, std::int64_t n) {
  std::normal_distribution<double> draw;
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(draw(rng)));
  return values;
}

// loss = sum(softmax(tanh(x w1) w2) * t)
NodeId small_network(GraphBuilder& b, std::mt19937& rng, Format format) {
  const NodeId x = b.leaf({5, 7}, normal(rng, 35), format), w1 = b.leaf({7, 6}, normal(rng, 42), format),
               w2 = b.leaf({6, 4}, normal(rng, 24), format), t = b.leaf({5, 4}, normal(rng, 20), format);
  const NodeId hidden = b.op(Primitive::kTanh, {b.op(Primitive::kMatmul, {x, w1}, {5, 6}, format)}, {5, 6}, format);
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
    const auto envelopes = adjoint_envelopes(b.graph, exact, {scalar_probe({0, "loss", m, 0})}, profile);
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
TEST(Adjoint, SharedErrorsCancel) {
  GraphBuilder b;
  const NodeId x = b.leaf({4}, {1, 2, 3, 4});
  const NodeId e = b.op(Primitive::kExp, {x}, {4});
  const NodeId difference = b.op(Primitive::kSub, {e, e}, {4});
  b.tap("loss", TapKind::kLoss, b.sum_all(difference), {0});
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const auto envelopes = adjoint_envelopes(
      b.graph, exact, {scalar_probe({0, "loss", replayed_value(b.graph.taps[0], exact), 0})}, Profile());
  EXPECT_EQ(envelopes[0].error, 0);
}

TEST(Adjoint, NothingIsCarriedThroughAnchors) {
  GraphBuilder b;
  const NodeId x = b.leaf({2}, {0.3, 0.7});
  const NodeId noisy = b.op(Primitive::kExp, {x}, {2});
  const NodeId scaled = b.op(Primitive::kMul, {noisy, x}, {2});
  b.tap("loss", TapKind::kLoss, b.sum_all(scaled), {0});
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const Probe probe = scalar_probe({0, "loss", replayed_value(b.graph.taps[0], exact), 0});
  const auto free = adjoint_envelopes(b.graph, exact, {probe}, Profile());
  const auto anchored = adjoint_envelopes(b.graph, exact, {probe}, Profile(), {{noisy, exact.values[noisy]}});
  EXPECT_LT(anchored[0].error, free[0].error);
  EXPECT_EQ(anchored[0].by_origin[b.graph.nodes[noisy].origin], 0);
}

TEST(Probe, ScaleProbeReadsAnErrorOfScaleAndSignsAreReproducible) {
  std::mt19937 rng(3);
  Array m = Array::uninitialized({50});
  for (int i = 0; i < 50; ++i) m.data()[i] = std::normal_distribution<double>()(rng);
  const Probe probe = scale_probe("scale", {{0, "g", m, 0}});
  EXPECT_NEAR(cpu::dot(probe.parts[0].weights, m), 1.0, 1e-14);
  const Probe a = signs_probe("s", {{0, "g", m, 0}}, 5), b = signs_probe("s", {{0, "g", m, 0}}, 5),
              c = signs_probe("s", {{0, "g", m, 0}}, 6);
  EXPECT_TRUE(bitwise_equal(a.parts[0].weights, b.parts[0].weights));
  EXPECT_FALSE(bitwise_equal(a.parts[0].weights, c.parts[0].weights));
}

}  // namespace
}  // namespace plumbline
