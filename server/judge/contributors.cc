#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "server/judge/judge.h"
#include "server/lower/shape_text.h"

namespace plumbline {
namespace {

constexpr std::size_t kContributorsMax = 16;

// Format in which the last node is held that an origin computed: what the user sees as the operation's result. A result
// that is not modelled, as a seed, tells only of an operation that is not.
std::vector<Format> formats_by_origin(const Graph& graph) {
  std::vector<Format> formats(graph.origins.size(), Format::kUnknown);
  for (const Node& node : graph.nodes) {
    Format& format = formats[node.origin];
    if (node.primitive != Primitive::kLeaf || format == Format::kUnknown) format = node.result;
  }
  return formats;
}

struct Reader {
  std::uint32_t origin = 0;  // 0: there is none.
  Shape operand;             // As it reads the leaf, whose own elements lie in one row.
};

// The operation that first reads a leaf, or a window on it.
Reader first_reader(const Graph& graph, NodeId leaf) {
  std::set<NodeId> moved{leaf};
  for (NodeId id = leaf + 1; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    const auto read = std::ranges::find_if(node.inputs, [&](NodeId input) { return moved.count(input) != 0; });
    if (read == node.inputs.end()) continue;
    if (node.origin != 0) {
      const Shape& held = graph.nodes[*read].shape;
      const bool shaped = node.primitive == Primitive::kWindow && count(node.shape) == count(held);
      return {node.origin, shaped ? node.shape : held};
    }
    moved.insert(id);
  }
  return {0, graph.nodes[leaf].shape};
}

}  // namespace

Place place_of(const Graph& graph, NodeId node) {
  // A tap's window on a result belongs to no operation.
  while (graph.nodes[node].origin == 0 && graph.nodes[node].inputs.size() == 1) node = graph.nodes[node].inputs[0];
  const std::uint32_t index = graph.nodes[node].origin;
  const Origin& origin = graph.origins[index];
  Place place{origin.op, origin.source, origin.module, std::string(traits(graph.nodes[node].result).name),
              static_cast<std::int64_t>(index) - 1};
  if (graph.nodes[node].primitive == Primitive::kLeaf && index == 0)
    for (const GraphLeaf& leaf : graph.leaves)
      if (leaf.node == node) {
        const auto [reader, operand] = first_reader(graph, node);
        place.op = "leaf " + (leaf.name.empty()
                                  ? "of data (" + std::string(traits(leaf.format).name) + " " + text_of(operand) + ")"
                                  : leaf.name);
        place.source = graph.origins[reader].source;
        place.module = graph.origins[reader].module;
      }
  return place;
}

std::vector<Contributor> contributors(const Graph& graph, const Finding& finding) {
  double total = 0;
  for (double part : finding.by_origin) total += part;
  if (!(total > 0)) return {};
  const std::vector<Format> formats = formats_by_origin(graph);
  using Key = std::tuple<std::string, std::string, std::string>;
  std::map<Key, Contributor> by_place;
  for (std::size_t i = 0; i < finding.by_origin.size(); ++i) {
    if (finding.by_origin[i] == 0) continue;
    const Origin& origin = graph.origins[i];
    const std::string format(traits(formats[i]).name);
    Contributor& contributor = by_place[{origin.op, origin.source, format}];
    contributor.place = {origin.op, origin.source, origin.module, format};
    contributor.share += finding.by_origin[i] / total;
    ++contributor.count;
  }
  std::vector<Contributor> result;
  result.reserve(by_place.size());
  for (auto& [key, contributor] : by_place) result.push_back(contributor);
  std::sort(result.begin(), result.end(), [](const Contributor& a, const Contributor& b) { return a.share > b.share; });
  if (result.size() > kContributorsMax) result.resize(kContributorsMax);
  return result;
}

}  // namespace plumbline
