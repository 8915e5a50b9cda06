#include "server/bound/findings/compensation.h"

#include <set>

#include "kernels/sums.h"

namespace plumbline {
namespace {

constexpr double kWorse = 4;       // Times the other program's error.
constexpr double kZero = 0x1p-40;  // What is below this share of the terms is zero by mathematics.

// The first difference or sum of floats that is zero in exact arithmetic though its terms are not.
std::optional<NodeId> zero_by_mathematics(const CompensatedSide& side) {
  std::vector<NodeId> taps;
  for (const GraphTap& tap : side.graph.taps)
    for (const GraphTap::Term& term : tap.terms) taps.push_back(term.node);
  const std::vector<bool> used = ancestors(side.graph, taps);
  for (NodeId id = 0; id < side.graph.nodes.size(); ++id) {
    const Node& node = side.graph.nodes[id];
    const bool adds = node.primitive == Primitive::kSub || node.primitive == Primitive::kAdd;
    if (!adds || !used[id] || !is_float(node.result) || !side.exact.has(id)) continue;
    const double terms = norm2(side.exact.value(node.inputs[0])) + norm2(side.exact.value(node.inputs[1]));
    if (terms > 0 && norm2(side.exact.value(id)) <= kZero * terms) return id;
  }
  return std::nullopt;
}

// In which values are held: programs of other formats have other errors anyway.
std::set<Format> formats_of(const Graph& graph) {
  std::set<Format> formats;
  for (const Node& node : graph.nodes)
    if (is_float(node.result)) formats.insert(node.result);
  return formats;
}

}  // namespace

std::optional<HazardFinding> find_compensation(const CompensatedSide& target, const CompensatedSide& reference) {
  if (!(target.error > kWorse * reference.error) || reference.error == 0) return std::nullopt;
  if (formats_of(target.graph) != formats_of(reference.graph)) return std::nullopt;
  const std::optional<NodeId> node = zero_by_mathematics(target);
  if (!node || !zero_by_mathematics(reference)) return std::nullopt;
  return HazardFinding{HazardKind::kCompensation, *node, 1, target.error / reference.error, {}, {}};
}

}  // namespace plumbline
