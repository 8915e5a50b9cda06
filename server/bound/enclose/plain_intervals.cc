#include "server/bound/enclose/plain_intervals.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "server/bound/enclose/interval.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr std::int64_t kComparedMax = 1 << 22;  // Elements of a step.

}  // namespace

void add_plain_intervals(const Graph& graph, const Replay& replay, const Profile& profile, Bounds* bounds) {
  std::int64_t elements = 0;
  const std::vector<bool> needed = needed_nodes(graph);
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (needed[id]) elements += count(graph.nodes[id].shape);
  if (elements > kComparedMax) return;
  const auto compared = [&](const Finding& finding) {
    return finding.elements == 1 && finding.taps.size() == 1 &&
           std::ranges::all_of(nodes_of(graph.taps[finding.taps[0]]), [&](NodeId node) { return replay.has(node); });
  };
  std::vector<NodeId> scalars;
  for (const Finding& finding : bounds->findings)
    if (compared(finding))
      for (const GraphTap::Term& term : graph.taps[finding.taps[0]].terms) scalars.push_back(term.node);
  const Overrides none;
  Enclosures plain(graph, replay, scalars, &profile, none);
  for (Finding& finding : bounds->findings) {
    if (!compared(finding)) continue;
    finding.interval_radius = 0;
    for (const GraphTap::Term& term : graph.taps[finding.taps[0]].terms) {
      const Enclosure enclosure = plain.take(term.node);
      const double radius = enclosure.radius ? enclosure.radius.values.item() : 0;
      finding.interval_radius += enclosure.exploded ? HUGE_VAL : std::fabs(term.weight) * radius;
    }
  }
}

}  // namespace plumbline
