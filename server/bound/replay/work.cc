#include "server/bound/replay/work.h"

#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

double replay_work(const Graph& graph) {
  const std::vector<bool> needed = needed_nodes(graph);
  double work = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (!needed[id] || node.primitive == Primitive::kLeaf) continue;
    const auto elements = static_cast<double>(count(node.shape));
    const bool product = node.primitive == Primitive::kMatmul;
    work += product ? elements * static_cast<double>(graph.nodes[node.inputs[0]].shape.back()) : elements;
  }
  return work;
}

}  // namespace plumbline
