#include "tests/unit/bound/graph_builder.h"

namespace plumbline::test {

std::vector<double> normal(std::mt19937& rng, std::int64_t n) {
  std::normal_distribution<double> draw;
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(draw(rng)));
  return values;
}

Bytes encoded(Format format, const std::vector<double>& values) {
  auto bytes =
      std::make_shared<std::vector<std::uint8_t>>(values.size() * static_cast<std::size_t>(traits(format).bytes));
  encode(format, values.data(), static_cast<std::int64_t>(values.size()), bytes->data());
  return bytes;
}

GraphBuilder::GraphBuilder() { graph.origins.push_back({"leaf", "", "", Phase::kUnknown}); }

NodeId GraphBuilder::leaf(Shape shape, const std::vector<double>& values, Format format, const std::string& name,
                          LeafRole role) {
  Node node;
  node.shape = std::move(shape);
  node.result = node.compute = format;
  graph.nodes.push_back(node);
  const NodeId id = static_cast<NodeId>(graph.nodes.size() - 1);
  graph.leaves.push_back({id, role, name, false, format, encoded(format, values)});
  return id;
}

NodeId GraphBuilder::op(Primitive primitive, std::vector<NodeId> inputs, Shape shape, Format format,
                        Attributes attributes) {
  Node node;
  node.primitive = primitive;
  node.inputs = std::move(inputs);
  node.shape = std::move(shape);
  node.result = node.compute = format;
  node.attributes = std::move(attributes);
  node.origin = static_cast<std::uint32_t>(graph.origins.size());
  graph.origins.push_back(
      {"op:" + std::string(traits(primitive).name), "test.py:" + std::to_string(node.origin), "", Phase::kForward});
  graph.nodes.push_back(std::move(node));
  ++graph.coverage.operations;
  return static_cast<NodeId>(graph.nodes.size() - 1);
}

NodeId GraphBuilder::sum_all(NodeId input, Format format) {
  Attributes attributes;
  Shape ones;
  for (std::size_t i = 0; i < graph.nodes[input].shape.size(); ++i) {
    attributes.dims.push_back(static_cast<std::int64_t>(i));
    ones.push_back(1);
  }
  return op(Primitive::kSum, {input}, ones, format, attributes);
}

void GraphBuilder::tap(const std::string& name, TapKind kind, NodeId node, const std::vector<double>& observed) {
  GraphTap tap;
  tap.name = name;
  tap.kind = kind;
  tap.shape = graph.nodes[node].shape;
  tap.terms.push_back({node, 1, graph.nodes[node].result, encoded(graph.nodes[node].result, observed)});
  graph.taps.push_back(tap);
}

}  // namespace plumbline::test
