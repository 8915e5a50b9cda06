#include "server/bound/pair/policy_of_leaves.h"

#include <algorithm>
#include <set>
#include <string>

#include "server/bound/pair/replays.h"
#include "server/bound/replay/taps.h"

namespace plumbline {

WidePair with_master_copies(const BoundsInput& input, const Correspondence& match,
                            const std::vector<LeafValue>& own_reference_leaves) {
  const Graph &target = *input.target, &reference = *input.reference;
  WidePair wide;
  Correspondence found = match;
  std::set<std::string> told;
  for (const RoundedLeaf& copy : master_copies(target, match.target_values)) {
    wide.format = copy.format;
    const GraphLeaf& narrow = target.leaves[copy.target_leaf];
    const LeafValue& whole = match.target_values[copy.reference_leaf];
    found.target_values[copy.target_leaf] = whole.reshape(target.nodes[narrow.node].shape);
    for (std::size_t i = 0; i < reference.leaves.size(); ++i)
      if (reference.leaves[i].name == narrow.name && found.reference_values[i].count() == whole.count()) {
        found.reference_values[i] = whole.reshape(reference.nodes[reference.leaves[i].node].shape);
        if (bitwise_equal(own_reference_leaves[i], whole)) told.insert(narrow.name);
      }
  }
  if (wide.format == Format::kUnknown) return wide;
  wide.tells_all_drift =
      std::ranges::all_of(match.drifted, [&](const std::string& name) { return told.count(name) != 0; });
  std::uint64_t shared = 0;
  wide.replays = replay_pair(input, replay(target, found.target_values, Precision::kExact), {}, &found, &shared);
  return wide;
}

}  // namespace plumbline
