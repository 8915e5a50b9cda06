#include "tests/soundness/networks.h"

#include <cmath>

namespace plumbline::soundness {

using enum Primitive;

std::vector<double> draw(Random& random, std::int64_t n, double scale) {
  std::normal_distribution<double> normal;
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(scale * normal(random)));
  return values;
}

NodeId Network::weights(std::int64_t rows, std::int64_t columns) {
  return b_.leaf({rows, columns}, draw(random_, rows * columns, 1 / std::sqrt(static_cast<double>(rows))));
}

NodeId Network::data(std::int64_t rows, std::int64_t columns) {
  return b_.leaf({rows, columns}, draw(random_, rows * columns, 1));
}

NodeId Network::constant(double value) {
  Attributes a;
  a.scalar = value;
  return b_.op(kConstant, {}, {1, 1}, Format::kFloat32, a);
}

NodeId Network::apply(Primitive p, std::vector<NodeId> in) {
  Shape shape = shape_of(in[0]);
  for (const NodeId other : in) shape = broadcast(shape, shape_of(other));
  return b_.op(p, std::move(in), shape);
}

NodeId Network::product(NodeId a, NodeId b) { return b_.op(kMatmul, {a, b}, {shape_of(a)[0], shape_of(b)[1]}); }

NodeId Network::product_onto(NodeId c, NodeId a, NodeId b) { return b_.op(kMatmul, {a, b, c}, shape_of(c)); }

NodeId Network::reduce(Primitive p, NodeId x, std::int64_t dim, double scalar) {
  Attributes a;
  a.dims = {dim};
  a.scalar = scalar;
  Shape shape = shape_of(x);
  shape[static_cast<std::size_t>(dim)] = 1;
  return b_.op(p, {x}, shape, Format::kFloat32, a);
}

NodeId Network::transposed(NodeId x) {
  const Shape shape = shape_of(x);
  Attributes a;
  a.view = {{shape[1], shape[0]}, {1, shape[1]}, 0};
  return b_.op(kWindow, {x}, a.view.sizes, Format::kFloat32, a);
}

NodeId Network::over(NodeId a, NodeId b) {
  return formula_ == Formula::kUsual ? apply(kDiv, {a, b}) : apply(kMul, {a, apply(kReciprocal, {b})});
}

NodeId Network::scaled(NodeId x, double factor) {
  if (formula_ == Formula::kUsual) return apply(kMul, {x, constant(factor)});
  return over(apply(kMul, {x, constant(3)}), constant(3 / factor));
}

NodeId Network::softmax(NodeId x) {
  if (formula_ == Formula::kUsual) return apply(kSoftmax, {x});
  const NodeId exponentials = apply(kExp, {x});
  return over(exponentials, reduce(kSum, exponentials, 1));
}

NodeId Network::log_softmax(NodeId x) {
  if (formula_ == Formula::kUsual) return apply(kLogSoftmax, {x});
  return apply(kSub, {x, apply(kLog, {reduce(kSum, apply(kExp, {x}), 1)})});
}

NodeId Network::mean(NodeId x) {
  const double n = static_cast<double>(count(shape_of(x)));
  if (formula_ == Formula::kUsual) return apply(kMul, {reduce(kSum, reduce(kSum, x, 1), 0), constant(1 / n)});
  return over(reduce(kSum, reduce(kSum, x, 0), 1), constant(n));
}

NodeId Network::normalized(NodeId x, double eps) {
  const double n = static_cast<double>(shape_of(x)[1]);
  const NodeId mean = apply(kMul, {reduce(kSum, x, 1), constant(1 / n)});
  if (formula_ == Formula::kUsual) return apply(kMul, {apply(kSub, {x, mean}), reduce(kVarianceRsqrt, x, 1, eps)});
  const NodeId squares = apply(kMul, {reduce(kSum, apply(kMul, {x, x}), 1), constant(1 / n)});
  const NodeId variance = apply(kSub, {squares, apply(kMul, {mean, mean})});
  return over(apply(kSub, {x, mean}), apply(kSqrt, {apply(kAdd, {variance, constant(eps)})}));
}

NodeId Network::gelu(NodeId x) {
  const NodeId inner = apply(kErf, {scaled(x, std::sqrt(0.5))});
  return apply(kMul, {apply(kMul, {x, constant(0.5)}), apply(kAdd, {inner, constant(1)})});
}

void Network::tap(const std::string& name, NodeId node) {
  b_.tap(name, TapKind::kValue, node, std::vector<double>(static_cast<std::size_t>(count(shape_of(node))), 0));
}

Graph Network::finish(NodeId loss) {
  b_.tap("loss", TapKind::kLoss, loss, {0});
  return b_.graph;
}

Graph mlp(Random& random, Formula formula, Bug bug) {
  Network n(random, formula);
  const NodeId x = n.data(32, 40), first = n.weights(40, 48);
  const NodeId hidden = n.apply(kTanh, {n.product(x, first)});
  const NodeId scaled = n.scaled(hidden, 0.1 * (1 + bug.scale));  // One error, of every element.
  const NodeId last = n.weights(48, 10), labels = n.data(32, 10);
  const NodeId logs = n.reduce(kSum, n.apply(kMul, {n.product(scaled, last), labels}), 1);
  return n.finish(n.mean(n.apply(kMul, {logs, logs})));
}

Graph transformer(Random& random, Formula formula, Bug bug) {
  constexpr std::int64_t kTokens = 24, kWidth = 32;
  Network n(random, formula);
  const NodeId x = n.data(kTokens, kWidth), y = n.normalized(x, 1e-5 + bug.eps);
  const NodeId of_q = n.weights(kWidth, kWidth), of_k = n.weights(kWidth, kWidth), of_v = n.weights(kWidth, kWidth);
  const NodeId q = n.product(y, of_q), k = n.product(y, of_k);
  const NodeId scores = n.scaled(n.product(q, n.transposed(k)), (1 + bug.scale) / std::sqrt(32.0));
  const NodeId attended = n.product(n.softmax(scores), n.product(y, of_v));
  const NodeId residual = n.apply(kAdd, {x, attended});
  const NodeId up = n.weights(kWidth, 2 * kWidth), down = n.weights(2 * kWidth, kWidth), head = n.weights(kWidth, 16);
  const NodeId wide = n.gelu(n.product(n.normalized(residual), up));
  const NodeId out = n.apply(kAdd, {residual, n.product(wide, down)});
  n.tap("out", out);
  const NodeId logs = n.log_softmax(n.product(out, head)), labels = n.data(kTokens, 16);
  return n.finish(n.mean(n.apply(kMul, {logs, labels})));
}

Graph biased(Random& random) {
  constexpr std::int64_t kTerms = 400;
  Network n(random);
  const NodeId bias = n.leaf({1, 1}, draw(random, 1, 100)), x = n.data(1, kTerms);
  return n.finish(n.product_onto(bias, x, n.weights(kTerms, 1)));
}

Graph stagnating(Random& random) {
  constexpr std::int64_t kTerms = 2000;
  Network n(random);
  std::vector<double> terms(kTerms, static_cast<float>(1e-8 * uniform(random, 1, 5)));
  terms[0] = 1;
  return n.finish(n.reduce(kSum, n.leaf({1, kTerms}, terms), 1));
}

}  // namespace plumbline::soundness
