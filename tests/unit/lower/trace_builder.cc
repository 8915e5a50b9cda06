#include "tests/unit/lower/trace_builder.h"

#include <stdexcept>

namespace plumbline::testing {

View dense(const Shape& shape) { return {shape, row_major_strides(shape), 0}; }

PayloadId TraceBuilder::payload(Format format, const std::vector<double>& values) {
  auto bytes =
      std::make_shared<std::vector<std::uint8_t>>(values.size() * static_cast<std::size_t>(traits(format).bytes));
  encode(format, values.data(), static_cast<std::int64_t>(values.size()), bytes->data());
  trace.payloads[next_payload_] = std::move(bytes);
  return next_payload_++;
}

TensorRef TraceBuilder::leaf(const Shape& shape, const std::vector<double>& values, Format format, LeafRole role,
                             const std::string& name) {
  const ValueId value = next_value_++;
  const std::int64_t elements = count(shape);
  const PayloadId content = values.empty() ? 0 : payload(format, values);
  trace.leaves.push_back({value, format, elements, role, name, content});
  counts_[value] = elements;
  return {value, format, dense(shape)};
}

TensorRef TraceBuilder::hollow(const Shape& shape, const std::string& name, Format format) {
  return leaf(shape, {}, format, LeafRole::kParameter, name);
}

std::vector<TensorRef> TraceBuilder::op(const std::string& name, std::vector<TraceArgument> arguments,
                                        const std::vector<Shape>& results, Format format) {
  TraceOp made;
  made.name = name;
  made.arguments = std::move(arguments);
  std::vector<TensorRef> tensors;
  for (const Shape& shape : results) {
    const TensorRef tensor{next_value_++, format, dense(shape)};
    counts_[tensor.value] = count(shape);
    made.results.push_back({tensor, count(shape), 0, "", 0});
    tensors.push_back(tensor);
  }
  trace.ops.push_back(std::move(made));
  return tensors;
}

TensorRef TraceBuilder::op1(const std::string& name, std::vector<TraceArgument> arguments, const Shape& result,
                            Format format) {
  return op(name, std::move(arguments), {result}, format)[0];
}

std::vector<TensorRef> TraceBuilder::write(const std::string& name, std::vector<TraceArgument> arguments,
                                           const std::vector<std::pair<std::string, TensorRef>>& written) {
  TraceOp made;
  made.name = name;
  made.arguments = std::move(arguments);
  std::vector<TensorRef> tensors;
  for (const auto& [argument, before] : written) {
    TensorRef after = before;
    after.value = next_value_++;
    counts_[after.value] = counts_.at(before.value);
    made.results.push_back({after, counts_.at(before.value), before.value, argument, 0});
    tensors.push_back(after);
  }
  trace.ops.push_back(std::move(made));
  return tensors;
}

void TraceBuilder::tap(const std::string& name, const TensorRef& tensor) {
  TraceTap made;
  made.name = name;
  const std::vector<double> nothing(static_cast<std::size_t>(count(tensor.view.sizes)), 0.0);
  made.terms.push_back({tensor, 1, payload(tensor.format, nothing)});
  trace.taps.push_back(std::move(made));
}

void TraceBuilder::observe(std::size_t i, const std::vector<double>& values) {
  TraceResult& result = trace.ops.back().results.at(i);
  result.observed = payload(result.tensor.format, values);
}

void TraceBuilder::decide(const std::vector<double>& sides) {
  trace.ops.back().decision = payload(Format::kBool, sides);
}

std::vector<Array> evaluate(const Graph& graph) {
  std::vector<Array> values(graph.nodes.size());
  for (const GraphLeaf& leaf : graph.leaves) {
    if (!leaf.bytes) continue;
    Array array = Array::uninitialized(graph.nodes[leaf.node].shape);
    decode(leaf.format, leaf.bytes->data(), array.count(), array.data());
    values[leaf.node] = array;
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.primitive == Primitive::kLeaf) continue;
    std::vector<Array> inputs;
    for (NodeId input : node.inputs) {
      if (input >= i) throw std::runtime_error("a node comes before its input");
      inputs.push_back(values[input]);
    }
    values[i] = traits(node.primitive).evaluate(node.attributes, node.shape, inputs);
    if (values[i].shape() != node.shape) throw std::runtime_error("a node's value has another shape");
  }
  return values;
}

std::vector<double> elements(const Array& array) {
  const Array flat = array.materialize();
  return {flat.data(), flat.data() + flat.count()};
}

std::vector<double> tap_values(const Graph& graph, const std::string& name) {
  const std::vector<Array> values = evaluate(graph);
  for (const GraphTap& tap : graph.taps)
    if (tap.name == name) return elements(values[tap.terms[0].node]);
  throw std::runtime_error("no tap " + name);
}

std::vector<double> run(const Trace& trace, const std::string& name) { return tap_values(lower(trace), name); }

}  // namespace plumbline::testing
