#include "server/lower/kept.h"

#include <unordered_map>

namespace plumbline {
namespace {

// Tells of each node whether such a tap depends on it.
std::vector<bool> behind(const Graph& graph, bool outlives) {
  std::vector<bool> found(graph.nodes.size(), false);
  for (const GraphTap& tap : graph.taps)
    if (outlives_step(tap.kind) == outlives)
      for (const GraphTap::Term& term : tap.terms) found[term.node] = true;
  for (std::size_t id = found.size(); id-- > 0;)
    if (found[id])
      for (NodeId input : graph.nodes[id].inputs) found[input] = true;
  return found;
}

}  // namespace

void note_kept(const Trace& trace, Storage* storage, Graph* graph) {
  std::unordered_map<ValueId, std::size_t> leaf_of;  // Of every version of a leaf's storage.
  for (std::size_t i = 0; i < trace.leaves.size(); ++i)
    if (const TraceLeaf& leaf = trace.leaves[i];
        leaf.role == LeafRole::kData && is_float(leaf.format) && leaf.count > 1)
      leaf_of[leaf.value] = i;
  std::vector<ValueId> last(trace.leaves.size(), 0);
  for (const TraceOp& op : trace.ops)
    for (const TraceResult& result : op.results)
      if (const auto written = leaf_of.find(result.base); written != leaf_of.end()) {
        const std::size_t leaf = written->second;
        last[leaf] = result.tensor.value;
        leaf_of[result.tensor.value] = leaf;
      }
  // Not of all: to put memory together from a thousand writes takes its time.
  const std::vector<bool> in_step = behind(*graph, false), after = behind(*graph, true);
  for (std::size_t i = 0; i < last.size(); ++i) {
    if (last[i] == 0) continue;
    const TraceLeaf& leaf = trace.leaves[i];
    const View all{.sizes = {leaf.count}, .strides = {1}};
    const TensorRef left{last[i], leaf.format, all};
    try {
      const NodeId found = storage->read({leaf.value, leaf.format, all}).id;
      if (in_step[found] || !after[found] || storage->missing(left) != nullptr) continue;
      GraphTap tap;
      tap.kind = TapKind::kCarried;
      tap.shape = all.sizes;
      tap.terms.push_back({storage->read(left).id, 1, leaf.format, nullptr});
      graph->kept.push_back({found, std::move(tap)});
    } catch (const LowerError&) {
      continue;  // Of a type that is not known.
    }
  }
}

}  // namespace plumbline
