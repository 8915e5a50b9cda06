// Readings of two programs under which they agree: an accusation must survive the most favourable one.
#pragma once

#include <optional>
#include <vector>

#include "server/bound/pair/asked.h"
#include "server/bound/pair/pairing.h"

namespace plumbline {

// Another correspondence that the programs may have, under which everything agrees: an accusation must survive the most
// favourable reading.
bool reconcile(const BoundsInput& input, const Replay& target_exact, const std::vector<LeafValue>& target_leaves,
               const std::vector<LeafValue>& own_reference_leaves, const MatchedReference& matched, const Asked& before,
               Bounds* bounds);

// Takes what both programs hold for roundings: of items that they exchange, by which they agree; then of all, which
// decides nothing, and nothing either where roundings move much.
bool round_shared_items(const BoundsInput& input, const MatchedReference& matched, const Asked& before, Bounds* bounds);

// An item that would explain the accusation if it, and others like it, were no more than half known: one that one
// program alone holds, or one of which the programs make different use. What says nothing then is no accusation either.
std::optional<MatchedItem> doubted_item(const BoundsInput& input, const MatchedReference& matched, const Asked& before,
                                        const Bounds& bounds);

}  // namespace plumbline
