// Traces by hand, and the numbers of their graphs.
#pragma once

#include <string>
#include <vector>

#include "server/lower/lower.h"

namespace plumbline::testing {

// Row-major view of a shape.
View dense(const Shape& shape);

class TraceBuilder {
 public:
  // A tensor over a leaf of its own.
  TensorRef leaf(const Shape& shape, const std::vector<double>& values, Format format = Format::kFloat64,
                 LeafRole role = LeafRole::kData, const std::string& name = "");
  // A parameter whose content is not in the trace.
  TensorRef hollow(const Shape& shape, const std::string& name, Format format = Format::kFloat64);

  // An operation that returns fresh row-major tensors.
  std::vector<TensorRef> op(const std::string& name, std::vector<TraceArgument> arguments,
                            const std::vector<Shape>& results, Format format = Format::kFloat64);
  TensorRef op1(const std::string& name, std::vector<TraceArgument> arguments, const Shape& result,
                Format format = Format::kFloat64);
  // An operation that writes tensors of its arguments: (argument name, tensor before). Returns them after.
  std::vector<TensorRef> write(const std::string& name, std::vector<TraceArgument> arguments,
                               const std::vector<std::pair<std::string, TensorRef>>& written);

  void tap(const std::string& name, const TensorRef& tensor);
  // Observes result `i` of the last operation.
  void observe(std::size_t i, const std::vector<double>& values);
  void decide(const std::vector<double>& sides);
  PayloadId payload(Format format, const std::vector<double>& values);

  Trace trace;

 private:
  ValueId next_value_ = 1;
  PayloadId next_payload_ = 1;
  std::map<ValueId, std::int64_t> counts_;
};

// Every node's value in fp64, by node id.
std::vector<Array> evaluate(const Graph& graph);
// Row-major elements of the tap's first term.
std::vector<double> tap_values(const Graph& graph, const std::string& name);
// Lowers, evaluates, and gives the tap's elements.
std::vector<double> run(const Trace& trace, const std::string& name);

std::vector<double> elements(const Array& array);

}  // namespace plumbline::testing
