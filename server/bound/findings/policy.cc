#include "server/bound/findings/policy.h"

#include <algorithm>
#include <cmath>

#include "kernels/sums.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr std::size_t kCandidatesMax = 8;  // Places with the largest parts of the envelopes.
constexpr std::size_t kCastsMax = 4;
constexpr std::int64_t kElementsMax = 1 << 22;  // All nodes together may have so many.

bool narrow(const Node& node) {
  return is_float(node.result) && unit_roundoff(node.result) > unit_roundoff(Format::kFloat32) &&
         node.primitive != Primitive::kLeaf && !(traits(node.primitive).bitwise && node.primitive != Primitive::kCast);
}

using TapPair = std::pair<std::size_t, std::size_t>;  // Indices into the target's and the reference's taps.

std::vector<TapPair> shared_taps(const Graph& target, const Graph& reference) {
  std::vector<TapPair> pairs;
  for (std::size_t i = 0; i < target.taps.size(); ++i)
    for (std::size_t j = 0; j < reference.taps.size(); ++j)
      if (target.taps[i].name == reference.taps[j].name && target.taps[i].shape == reference.taps[j].shape)
        pairs.push_back({i, j});
  return pairs;
}

// Places that round into a narrow format, by their parts of the envelopes, largest first: each the nodes of one
// operation at one line.
std::vector<std::vector<NodeId>> candidates(const Graph& graph, const Bounds& bounds) {
  std::map<std::pair<std::string, std::string>, std::pair<double, std::vector<NodeId>>> places;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!narrow(graph.nodes[id])) continue;
    const Origin& origin = graph.origins[graph.nodes[id].origin];
    auto& [part, nodes] = places[{origin.op, origin.source}];
    const bool counted = !nodes.empty() && graph.nodes[nodes.back()].origin == graph.nodes[id].origin;
    nodes.push_back(id);
    for (const Finding& finding : bounds.findings) {
      if (counted || graph.nodes[id].origin >= finding.by_origin.size()) continue;
      double total = 0;
      for (double share : finding.by_origin) total += share;
      if (total > 0) part += finding.by_origin[graph.nodes[id].origin] / total;
    }
  }
  std::vector<std::pair<double, std::vector<NodeId>>> ranked;
  ranked.reserve(places.size());
  for (const auto& [place, entry] : places) ranked.push_back(entry);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::vector<NodeId>> result;
  for (std::size_t i = 0; i < std::min(ranked.size(), kCandidatesMax); ++i) result.push_back(ranked[i].second);
  return result;
}

}  // namespace

void attribute_casts(const BoundsInput& input, const std::vector<LeafValue>& target_leaves, const Overrides& decisions,
                     Bounds* bounds) {
  const Graph &target = *input.target, &reference = *input.reference;
  std::int64_t elements = 0;
  bool any = false;
  for (const Graph* graph : {&target, &reference})
    for (const Node& node : graph->nodes) {
      elements += count(node.shape);
      any = any || (graph == &target && narrow(node));
    }
  if (!any || elements > kElementsMax) return;

  const std::vector<TapPair> pairs = shared_taps(target, reference);
  const Replay theirs = replay(reference, bounds->match.reference_values, Precision::kRounded);
  Replay ours = replay(target, target_leaves, Precision::kRounded, decisions);
  // Relative to each tap's size, in squares.
  const auto distance = [&](const Replay& execution) {
    double sum = 0;
    for (const auto& [t, r] : pairs) {
      const Array expected = replayed_value(reference.taps[r], theirs);
      const double norm = norm2(expected);
      if (norm > 0) sum += std::pow(norm2_difference(replayed_value(target.taps[t], execution), expected) / norm, 2);
    }
    return std::sqrt(sum);
  };
  double observed = 0;
  for (const auto& [t, r] : pairs) {
    const Array expected = observed_value(reference.taps[r]);
    const double norm = norm2(expected);
    if (norm > 0) observed += std::pow(norm2_difference(observed_value(target.taps[t]), expected) / norm, 2);
  }
  const double whole = distance(ours);
  const bool drifted = !bounds->match.drifted.empty();  // T and R then differ by their own leaves as well.
  if (!(whole > 0) || !std::isfinite(whole) || (!drifted && !(whole >= 0.5 * std::sqrt(observed)))) return;

  std::vector<std::vector<NodeId>> left = candidates(target, *bounds);
  std::vector<bool> exact(target.nodes.size(), false);
  std::vector<NodeId> owners;
  double distance_left = whole;
  while (distance_left > 0.125 * whole && owners.size() < kCastsMax && !left.empty()) {
    double nearest = distance_left;
    std::size_t best = left.size();
    for (std::size_t i = 0; i < left.size(); ++i) {
      std::vector<bool> tried = exact;
      for (NodeId id : left[i]) tried[id] = true;
      const double found =
          distance(replay(target, target_leaves, Precision::kRounded, decisions, &ours, {.unrounded = &tried}));
      if (!(found < nearest)) continue;
      nearest = found;
      best = i;
    }
    if (best == left.size()) return;
    for (NodeId id : left[best]) exact[id] = true;
    owners.push_back(left[best].back());
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
    distance_left = nearest;
  }
  if (distance_left <= 0.125 * whole) bounds->policy_casts = owners;
}

}  // namespace plumbline
