#include "tests/soundness/graph_execution.h"

#include <stdexcept>

#include "server/bound/replay/arithmetic.h"
#include "server/bound/replay/replay.h"
#include "tests/soundness/legal.h"

namespace plumbline::soundness {
namespace {

bool is_function(Primitive primitive) { return class_of(primitive) == PrimitiveClass::kElementwise; }

}  // namespace

Array execute_graph(const Graph& graph, const Profile& profile, NodeId result, Random& random) {
  std::vector<Array> values(graph.nodes.size());
  const std::vector<LeafValue> leaves = leaf_values(graph);
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) values[graph.leaves[i].node] = leaves[i];
  for (NodeId id = 0; id <= result; ++id) {
    const Node& node = graph.nodes[id];
    if (node.primitive == Primitive::kLeaf) continue;
    Problem problem{node.primitive, node.attributes, node.shape, {}, {}};
    for (const NodeId input : node.inputs) {
      const Array& value = values[input];
      problem.inputs.push_back((is_function(node.primitive) ? value.expand(node.shape) : value).materialize());
    }
    const Arithmetic arithmetic = arithmetic_of(graph, node, profile);
    const std::vector<Exact> truth =
        is_function(node.primitive) ? exact(problem) : std::vector<Exact>();  // Only functions start from it.
    const auto execution = legal_executions(problem, truth, arithmetic);
    if (!execution) throw std::runtime_error("no executions of " + std::string(traits(node.primitive).name));
    Array out = Array::uninitialized(node.shape);
    execution->run(random, out.data());
    for (std::int64_t i = 0; i < out.count(); ++i) out.data()[i] = round_to(node.result, out.data()[i]);
    values[id] = out;
  }
  return values[result];
}

}  // namespace plumbline::soundness
