#include "server/bound/findings/untrained.h"

#include <set>
#include <string>

#include "server/bound/match/readings.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

std::string_view behind_colon(std::string_view name) {
  const std::size_t colon = name.find(':');
  return colon == std::string_view::npos ? std::string_view() : name.substr(colon + 1);
}

bool zero(const Array& values) {
  const Array x = values.materialize().on_host();
  for (std::int64_t i = 0; i < x.count(); ++i)
    if (x.data()[i] != 0) return false;
  return true;
}

}  // namespace

std::vector<std::size_t> untrained(const Graph& graph) {
  std::set<std::string_view> parameters, changed;
  for (const GraphLeaf& leaf : graph.leaves)
    if (leaf.role == LeafRole::kParameter) parameters.insert(behind_colon(leaf.name));
  bool any = false;
  for (const GraphTap& tap : graph.taps) {
    if (!outlives_step(tap.kind)) continue;
    any = any || tap.kind == TapKind::kUpdate;
    changed.insert(behind_colon(tap.name));
  }
  std::vector<std::size_t> found;
  for (std::size_t i = 0; any && i < graph.taps.size(); ++i) {
    const GraphTap& tap = graph.taps[i];
    const std::string_view name = behind_colon(tap.name);
    if (tap.kind == TapKind::kGradient && !is_other_reading(tap.name) && parameters.contains(name) &&
        !changed.contains(name) && !zero(observed_value(tap)))
      found.push_back(i);
  }
  return found;
}

}  // namespace plumbline
