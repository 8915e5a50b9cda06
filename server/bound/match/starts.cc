#include "server/bound/match/starts.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace plumbline {
namespace {

constexpr double kOneMatrix = 1e-3;  // Of the values: far above what roundings leave apart.

bool alike(const Graph& target, const Start& ours, const Graph& reference, const Start& theirs) {
  const auto same_shape = [&](NodeId a, NodeId b) { return target.nodes[a].shape == reference.nodes[b].shape; };
  if (ours.values.empty() || target.origins[ours.origin].op != reference.origins[theirs.origin].op ||
      !std::ranges::equal(ours.factors, theirs.factors, same_shape) || ours.values.size() != theirs.values.size())
    return false;
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < ours.values.size(); ++i) {
    apart += std::fabs(ours.values[i] - theirs.values[i]);
    size += std::fabs(ours.values[i]);
  }
  return apart <= kOneMatrix * size;
}

std::map<NodeId, std::size_t> leaves_of(const Graph& graph) {
  std::map<NodeId, std::size_t> leaves;
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) leaves[graph.leaves[i].node] = i;
  return leaves;
}

}  // namespace

void share_starts(const Graph& target, const std::vector<LeafValue>& target_values, const Graph& reference,
                  std::vector<LeafValue>* reference_values) {
  if (target.starts.empty() || reference.starts.empty()) return;
  const std::map<NodeId, std::size_t> ours = leaves_of(target), theirs = leaves_of(reference);
  std::vector<bool> taken(target.starts.size(), false);
  for (const Start& start : reference.starts) {
    for (std::size_t i = 0; i < target.starts.size(); ++i) {
      const Start& one = target.starts[i];
      if (taken[i] || !alike(target, one, reference, start)) continue;
      taken[i] = true;
      for (std::size_t k = 0; k < start.factors.size(); ++k)
        (*reference_values)[theirs.at(start.factors[k])] = target_values[ours.at(one.factors[k])];
      break;
    }
  }
}

}  // namespace plumbline
