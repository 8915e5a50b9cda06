// Small networks in primitives, of which legal executions are drawn, and the same mathematics in other formulas.
#pragma once

#include "server/lower/graph.h"
#include "tests/soundness/random.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline::soundness {

// How a formula is written. kUsual: as a framework's kernels compute it. kTakenApart: variances in one pass, softmax
// without its row's maximum, divisions as products by a reciprocal, biases and constants in operations of their own.
enum class Formula { kUsual, kTakenApart };

// Short names for what the graphs are made of, in fp32 and two dimensions.
class Network {
 public:
  Network(Random& random, Formula formula = Formula::kUsual) : random_(random), formula_(formula) {}

  NodeId weights(std::int64_t rows, std::int64_t columns);
  NodeId data(std::int64_t rows, std::int64_t columns);
  NodeId leaf(Shape shape, const std::vector<double>& values) { return b_.leaf(std::move(shape), values); }
  NodeId constant(double value);
  NodeId apply(Primitive p, std::vector<NodeId> in);
  NodeId product(NodeId a, NodeId b);
  NodeId product_onto(NodeId c, NodeId a, NodeId b);
  NodeId reduce(Primitive p, NodeId x, std::int64_t dim, double scalar = 0);
  NodeId transposed(NodeId x);
  NodeId over(NodeId a, NodeId b);  // a / b
  NodeId scaled(NodeId x, double factor);
  NodeId softmax(NodeId x);
  NodeId log_softmax(NodeId x);
  NodeId mean(NodeId x);  // The mean of all, by a constant 1/n that fp32 does not hold.
  NodeId normalized(NodeId x, double eps = 1e-5);
  NodeId gelu(NodeId x);
  const Shape& shape_of(NodeId id) const { return b_.graph.nodes[id].shape; }
  void tap(const std::string& name, NodeId node);
  Graph finish(NodeId loss);

 private:
  Random& random_;
  const Formula formula_;
  test::GraphBuilder b_;
};

std::vector<double> draw(Random& random, std::int64_t n, double scale);

// A bug: how far a constant of the network is off.
struct Bug {
  double eps = 0, scale = 0;
};
Graph mlp(Random& random, Formula formula = Formula::kUsual, Bug bug = {});
Graph transformer(Random& random, Formula formula = Formula::kUsual, Bug bug = {});
Graph biased(Random& random);      // A bias far larger than the product whose sum it may begin.
Graph stagnating(Random& random);  // Equal small terms: a chain stops growing, and every error has one sign.

}  // namespace plumbline::soundness
