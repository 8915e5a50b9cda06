#include "server/bound/findings/grid_hazards.h"

#include <cmath>
#include <optional>

namespace plumbline {
namespace {

// A thousandth of the elements, and a tenth of all steps: what is worth saying.
constexpr double kSaturationMin = 1e-3;
constexpr double kLostMin = 0.1;

// What lies before movement and casts.
NodeId source_of(const Graph& graph, NodeId id) {
  while (graph.nodes[id].primitive == Primitive::kWindow || graph.nodes[id].primitive == Primitive::kCast)
    id = graph.nodes[id].inputs[0];
  return id;
}

bool grid_node(const Graph& graph, NodeId id) {
  const Primitive primitive = graph.nodes[id].primitive;
  return primitive == Primitive::kRound || primitive == Primitive::kFloor || primitive == Primitive::kTrunc ||
         primitive == Primitive::kCeil;
}

std::optional<HazardFinding> find_saturation(const Graph& graph, const Replay& values) {
  std::vector<bool> on_grid(graph.nodes.size(), false);
  std::optional<HazardFinding> worst;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    const bool clamp = node.primitive == Primitive::kMax || node.primitive == Primitive::kMin;
    on_grid[id] = grid_node(graph, id);
    if (node.inputs.empty() || !values.has(id)) continue;
    // A grid's values stay on it while limits are taken and formats change.
    if (clamp || node.primitive == Primitive::kCast) on_grid[id] = on_grid[id] || on_grid[node.inputs[0]];
    if (!clamp || !on_grid[node.inputs[0]] || count(graph.nodes[node.inputs[1]].shape) != 1) continue;
    const Array before = values.value(node.inputs[0]).on_host(), after = values.value(id).on_host();
    double cut = 0, lost = 0, total = 0;
    for (std::int64_t i = 0; i < after.count(); ++i) {
      const double difference = before.data()[i] - after.data()[i];
      cut += difference != 0;
      lost += std::fabs(difference);
      total += std::fabs(before.data()[i]);
    }
    const double share = after.count() == 0 ? 0 : cut / static_cast<double>(after.count());
    if (share > kSaturationMin && (!worst || share > worst->share))
      worst = HazardFinding{HazardKind::kSaturation, id, share, lost / total, {}, {}};
  }
  return worst;
}

// A weight w on the grid, w + step scaled to integers and rounded to nearest: where that gives w's integer again, the
// step is lost. Rounded stochastically it is not, on average.
std::optional<HazardFinding> find_stagnation(const Graph& graph, const Replay& values) {
  double lost_elements = 0, elements = 0, lost = 0, total = 0, most = 0;
  NodeId worst = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.primitive != Primitive::kRound || !values.has(id)) continue;
    const Node& scaling = graph.nodes[node.inputs[0]];
    if (scaling.primitive != Primitive::kMul || count(graph.nodes[scaling.inputs[1]].shape) != 1) continue;
    const Node& update = graph.nodes[scaling.inputs[0]];
    if (update.primitive != Primitive::kAdd && update.primitive != Primitive::kSub) continue;
    const NodeId weight = source_of(graph, update.inputs[0]);
    bool parameter = false;
    for (const GraphLeaf& leaf : graph.leaves)
      parameter = parameter || (leaf.node == weight && leaf.role == LeafRole::kParameter);
    if (!parameter) continue;
    const double scale = values.value(scaling.inputs[1]).item();
    const Array w = values.value(update.inputs[0]).on_host(), sum = values.value(scaling.inputs[0]).on_host();
    double here = 0;
    for (std::int64_t i = 0; i < w.count() && w.count() == sum.count(); ++i) {
      const double before = w.data()[i] * scale, after = sum.data()[i] * scale;
      if (before == after) continue;
      ++elements;
      total += std::fabs(after - before);
      if (before != std::nearbyint(before) || std::nearbyint(after) != before) continue;
      ++here;
      lost += std::fabs(after - before);
    }
    lost_elements += here;
    if (here > most) {
      most = here;
      worst = id;
    }
  }
  if (!(lost > kLostMin * total)) return std::nullopt;
  return HazardFinding{HazardKind::kStagnation, worst, lost_elements / elements, lost / total, {}, {}};
}

}  // namespace

void find_grid_hazards(const Graph& graph, const Replay& values, std::vector<HazardFinding>* findings) {
  for (const auto& found : {find_saturation(graph, values), find_stagnation(graph, values)})
    if (found) findings->push_back(*found);
}

}  // namespace plumbline
