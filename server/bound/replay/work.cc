#include "server/bound/replay/work.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {
namespace {

double work_of(const Graph& graph, const Node& node) {
  if (node.primitive == Primitive::kLeaf) return 0;
  const auto elements = static_cast<double>(count(node.shape));
  if (node.primitive != Primitive::kMatmul) return elements;
  return elements * static_cast<double>(graph.nodes[node.inputs[0]].shape.back());
}

bool fits(const Shape& operand, const Shape& result) {
  if (operand.size() > result.size()) return false;
  const std::size_t lead = result.size() - operand.size();
  for (std::size_t axis = 0; axis < operand.size(); ++axis)
    if (operand[axis] != 1 && operand[axis] != result[lead + axis]) return false;
  return true;
}

// A product of matrices a b = c takes sqrt(|a| |b| |c|) multiplications, where |.| counts elements.
double estimated_work(const Graph& graph, const OpaqueCall& call) {
  double elements = 0, made = 0;
  Shape result;
  for (const NodeId id : call.outputs) {
    made += static_cast<double>(count(graph.nodes[id].shape));
    if (count(graph.nodes[id].shape) >= count(result)) result = graph.nodes[id].shape;
  }
  std::vector<double> operands;
  bool elementwise = true;
  for (const NodeId id : call.inputs) {
    operands.push_back(static_cast<double>(count(graph.nodes[id].shape)));
    elements += operands.back();
    elementwise = elementwise && fits(graph.nodes[id].shape, result);
  }
  std::ranges::sort(operands, std::greater<>());
  const double product = elementwise || operands.size() < 2 ? 0 : std::sqrt(operands[0] * operands[1] * made);
  return std::max(product, elements + made);
}

}  // namespace

double replay_work(const Graph& graph) {
  const std::vector<bool> needed = needed_nodes(graph);
  double work = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (needed[id]) work += work_of(graph, graph.nodes[id]);
  return work;
}

CoveredWork covered_work(const Graph& graph, std::optional<TapKind> kind) {
  std::unordered_map<NodeId, std::size_t> made_by;
  for (std::size_t c = 0; c < graph.opaque.size(); ++c)
    for (const NodeId id : graph.opaque[c].outputs) made_by.emplace(id, c);
  std::vector<bool> seen(graph.nodes.size()), called(graph.opaque.size());
  std::vector<NodeId> ahead;
  const auto reach = [&](NodeId id) {
    if (!seen[id]) ahead.push_back(id);
    seen[id] = true;
  };
  for (const GraphTap& tap : graph.taps)
    if (!kind || tap.kind == *kind)
      for (const GraphTap::Term& term : tap.terms) reach(term.node);
  CoveredWork work;
  while (!ahead.empty()) {
    const NodeId id = ahead.back();
    ahead.pop_back();
    work.audited += work_of(graph, graph.nodes[id]);
    for (const NodeId input : graph.nodes[id].inputs) reach(input);
    const auto made = made_by.find(id);
    if (made == made_by.end() || called[made->second]) continue;
    called[made->second] = true;
    work.opaque += estimated_work(graph, graph.opaque[made->second]);
    for (const NodeId input : graph.opaque[made->second].inputs) reach(input);
  }
  return work;
}

}  // namespace plumbline
