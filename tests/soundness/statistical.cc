#include "tests/soundness/statistical.h"

#include <cmath>

#include "server/bound/envelope/adjoint.h"
#include "server/bound/replay/taps.h"
#include "tests/soundness/arithmetics.h"
#include "tests/soundness/graph_execution.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline::soundness {
namespace {

using enum Primitive;
using test::GraphBuilder;

std::vector<double> draw(Random& random, std::int64_t n, double scale) {
  std::normal_distribution<double> normal;
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(scale * normal(random)));
  return values;
}

// Short names for what the graphs are made of, in fp32 and two dimensions.
class Network {
 public:
  explicit Network(Random& random) : random_(random) {}

  NodeId weights(std::int64_t rows, std::int64_t columns) {
    return b_.leaf({rows, columns}, draw(random_, rows * columns, 1 / std::sqrt(static_cast<double>(rows))));
  }
  NodeId data(std::int64_t rows, std::int64_t columns) {
    return b_.leaf({rows, columns}, draw(random_, rows * columns, 1));
  }
  NodeId leaf(Shape shape, const std::vector<double>& values) { return b_.leaf(std::move(shape), values); }
  NodeId constant(double value) {
    Attributes a;
    a.scalar = value;
    return b_.op(kConstant, {}, {1, 1}, Format::kFloat32, a);
  }
  NodeId apply(Primitive p, std::vector<NodeId> in) {
    Shape shape = shape_of(in[0]);
    for (const NodeId other : in) shape = broadcast(shape, shape_of(other));
    return b_.op(p, std::move(in), shape);
  }
  NodeId product(NodeId a, NodeId b) { return b_.op(kMatmul, {a, b}, {shape_of(a)[0], shape_of(b)[1]}); }
  NodeId product_onto(NodeId c, NodeId a, NodeId b) { return b_.op(kMatmul, {a, b, c}, shape_of(c)); }
  NodeId reduce(Primitive p, NodeId x, std::int64_t dim, double scalar = 0) {
    Attributes a;
    a.dims = {dim};
    a.scalar = scalar;
    Shape shape = shape_of(x);
    shape[static_cast<std::size_t>(dim)] = 1;
    return b_.op(p, {x}, shape, Format::kFloat32, a);
  }
  NodeId transposed(NodeId x) {
    const Shape shape = shape_of(x);
    Attributes a;
    a.view = {{shape[1], shape[0]}, {1, shape[1]}, 0};
    return b_.op(kWindow, {x}, a.view.sizes, Format::kFloat32, a);
  }
  // The mean of all, by a constant 1/n that fp32 does not hold.
  NodeId mean(NodeId x) {
    const double n = static_cast<double>(count(shape_of(x)));
    return apply(kMul, {reduce(kSum, reduce(kSum, x, 1), 0), constant(1 / n)});
  }
  NodeId normalized(NodeId x) {
    const NodeId width = constant(1 / static_cast<double>(shape_of(x)[1]));
    const NodeId centred = apply(kSub, {x, apply(kMul, {reduce(kSum, x, 1), width})});
    return apply(kMul, {centred, reduce(kVarianceRsqrt, x, 1, 1e-5)});
  }
  NodeId gelu(NodeId x) {
    const NodeId inner = apply(kErf, {apply(kMul, {x, constant(std::sqrt(0.5))})});
    return apply(kMul, {apply(kMul, {x, constant(0.5)}), apply(kAdd, {inner, constant(1)})});
  }
  const Shape& shape_of(NodeId id) const { return b_.graph.nodes[id].shape; }
  Graph finish(NodeId loss) {
    b_.tap("loss", TapKind::kLoss, loss, {0});
    return b_.graph;
  }

 private:
  Random& random_;
  GraphBuilder b_;
};

Graph mlp(Random& random) {
  Network n(random);
  const NodeId hidden = n.apply(kTanh, {n.product(n.data(32, 40), n.weights(40, 48))});
  const NodeId scaled = n.apply(kMul, {hidden, n.constant(0.1)});  // One error, of every element.
  const NodeId logs = n.reduce(kSum, n.apply(kMul, {n.product(scaled, n.weights(48, 10)), n.data(32, 10)}), 1);
  return n.finish(n.mean(n.apply(kMul, {logs, logs})));
}

Graph transformer(Random& random) {
  constexpr std::int64_t kTokens = 24, kWidth = 32;
  Network n(random);
  const NodeId x = n.data(kTokens, kWidth), y = n.normalized(x);
  const NodeId q = n.product(y, n.weights(kWidth, kWidth)), k = n.product(y, n.weights(kWidth, kWidth));
  const NodeId scores = n.apply(kMul, {n.product(q, n.transposed(k)), n.constant(1 / std::sqrt(32.0))});
  const NodeId probabilities = n.apply(kSoftmax, {scores});
  const NodeId attended = n.product(probabilities, n.product(y, n.weights(kWidth, kWidth)));
  const NodeId residual = n.apply(kAdd, {x, attended});
  const NodeId wide = n.gelu(n.product(n.normalized(residual), n.weights(kWidth, 2 * kWidth)));
  const NodeId out = n.apply(kAdd, {residual, n.product(wide, n.weights(2 * kWidth, kWidth))});
  const NodeId logs = n.apply(kLogSoftmax, {n.product(out, n.weights(kWidth, 16))});
  return n.finish(n.mean(n.apply(kMul, {logs, n.data(kTokens, 16)})));
}

// A bias far larger than the product whose sum it may begin.
Graph biased(Random& random) {
  constexpr std::int64_t kTerms = 400;
  Network n(random);
  const NodeId bias = n.leaf({1, 1}, draw(random, 1, 100));
  return n.finish(n.product_onto(bias, n.data(1, kTerms), n.weights(kTerms, 1)));
}

// Equal small terms: a chain stops growing, and every error has one sign.
Graph stagnating(Random& random) {
  constexpr std::int64_t kTerms = 2000;
  Network n(random);
  std::vector<double> terms(kTerms, static_cast<float>(1e-8 * uniform(random, 1, 5)));
  terms[0] = 1;
  return n.finish(n.reduce(kSum, n.leaf({1, kTerms}, terms), 1));
}

StatisticalOutcome outcome(const std::string& name, Graph (*make)(Random&), const Profile& profile, int executions,
                           double alpha, Random& random) {
  StatisticalOutcome result{name + ", " + profile.name, 0, 0, 0, 0, profile.name == "correctly-rounded"};
  constexpr int kEach = 50;  // Of one draw of the data.
  while (result.executions < executions) {
    const Graph graph = make(random);
    const Replay exact = replay(graph, leaf_values(graph), Precision::kExact);
    const Array m = replayed_value(graph.taps[0], exact);
    const Envelope envelope =
        adjoint_envelopes(graph, exact, {scalar_probe(probe_tap(0, graph.taps[0], m))}, profile)[0];
    const double e = std::min(envelope.error, statistical(envelope.noise, hoeffding_lambda(1, alpha)));
    const NodeId loss = graph.taps[0].terms[0].node;
    for (int i = 0; i < std::min(kEach, executions); ++i, ++result.executions) {
      const double deviation = std::fabs(execute_graph(graph, profile, loss, random).item() - m.item());
      result.violations += deviation <= e ? 0 : 1;
      result.largest = std::max(result.largest, deviation / e);
    }
  }
  result.expected = alpha * result.executions;
  return result;
}

}  // namespace

std::vector<StatisticalOutcome> statistical_outcomes(int executions, double alpha, Random& random) {
  constexpr std::pair<const char*, Graph (*)(Random&)> kGraphs[] = {
      {"mlp", mlp}, {"transformer", transformer}, {"biased product", biased}, {"stagnating sum", stagnating}};
  std::vector<StatisticalOutcome> outcomes;
  const auto seed = random();
  for (const Profile& profile : all_profiles()) {
    const bool wanted = profile.name == "correctly-rounded" || profile.name == "ieee" || profile.name == "toward-zero";
    if (!wanted) continue;
    for (const auto& [name, make] : kGraphs) {
      Random own(seed);  // Of each: one more graph draws no other numbers for the rest.
      outcomes.push_back(outcome(name, make, profile, executions, alpha, own));
    }
    outcomes.back().nearest = false;  // Its errors are bias, charged whole.
  }
  return outcomes;
}

}  // namespace plumbline::soundness
