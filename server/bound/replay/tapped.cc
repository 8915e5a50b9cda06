#include "server/bound/replay/tapped.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/bound/replay/replay.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr std::int64_t kElementsMin = 1 << 14;  // What is smaller is computed as soon as it is asked for.

bool cheap(Primitive primitive) {
  return is_elementwise(primitive) || primitive == Primitive::kWindow || primitive == Primitive::kAssemble;
}

// Needed nodes that only taps read, whatever cheap nodes lie between.
std::vector<bool> read_by_taps_alone(const Graph& graph) {
  const std::vector<bool> needed = needed_nodes(graph);
  std::vector<bool> alone = needed;
  for (NodeId id : asked_by_program(graph)) alone[id] = false;
  for (const auto& [node, observation] : graph.observed) alone[node] = false;
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    if (!needed[id] || (alone[id] && cheap(graph.nodes[id].primitive))) continue;
    for (NodeId input : graph.nodes[id].inputs) alone[input] = false;
  }
  return alone;
}

// The product that a tap of this shape shows, whose rows and columns are the tap's first dimension and all others.
std::optional<std::pair<NodeId, bool>> product_of(const Graph& graph, NodeId id, const Shape& shape) {
  Shape matrix = {shape[0], count(shape) / std::max<std::int64_t>(1, shape[0])};
  bool transposed = false;
  while (graph.nodes[id].primitive == Primitive::kWindow) {
    const Node& node = graph.nodes[id];
    if (!reshapes(graph, node)) {
      if (node.shape != matrix || !transposes(graph, node)) return std::nullopt;
      std::swap(matrix[0], matrix[1]);
      transposed = !transposed;
    }
    id = node.inputs[0];
  }
  const Node& node = graph.nodes[id];
  if (node.primitive != Primitive::kMatmul || node.inputs.size() != 2 || node.shape != matrix) return std::nullopt;
  return std::pair(id, transposed);
}

}  // namespace

Array TappedProduct::observed(const Graph& graph, const Node& product) const {
  const Array values = observed_value(graph.taps[tap]);
  const std::int64_t m = product.shape[0], n = product.shape[1];
  return transposed ? values.reshape({n, m}).window({{m, n}, {1, m}, 0}) : values.reshape({m, n});
}

TappedProducts tapped_products(const Graph& graph) {
  TappedProducts products;
  const std::vector<bool> alone = read_by_taps_alone(graph);
  for (std::size_t i = 0; i < graph.taps.size(); ++i) {
    const GraphTap& tap = graph.taps[i];
    if (tap.kind != TapKind::kGradient || tap.terms.size() != 1 || tap.terms[0].weight != 1 || !is_observed(tap) ||
        tap.shape.size() < 2 || count(tap.shape) < kElementsMin)
      continue;
    const auto found = product_of(graph, tap.terms[0].node, tap.shape);
    if (!found || !alone[found->first]) continue;
    const Node& node = graph.nodes[found->first];
    if (!is_float(node.compute) || node.compute == Format::kFloat64 || node.result != node.compute ||
        tap.terms[0].format != node.result)
      continue;
    products.emplace(found->first, TappedProduct{i, found->second});
  }
  return products;
}

TappedProducts not_asked(const Graph& graph, TappedProducts products, const std::vector<std::size_t>& asked) {
  std::vector<bool> leads(graph.nodes.size(), false);  // Something that is asked depends on it.
  std::vector<bool> own(graph.taps.size(), false);
  for (const auto& [id, product] : products) own[product.tap] = true;
  for (std::size_t index : asked)
    if (!own[index])
      for (NodeId node : nodes_of(graph.taps[index])) leads[node] = true;
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;)
    if (leads[id])
      for (NodeId input : graph.nodes[id].inputs) leads[input] = true;
  std::erase_if(products, [&](const auto& one) { return leads[one.first]; });
  return products;
}

}  // namespace plumbline
