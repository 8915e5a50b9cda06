#include "server/bound/paired_taps.h"

#include <algorithm>
#include <map>
#include <set>

#include "server/bound/range.h"

namespace plumbline {
namespace {

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

std::vector<PairedTap> by_name(const Graph& target, const Graph& reference, Bounds* bounds) {
  std::map<std::string, std::size_t> named;
  for (std::size_t i = 0; i < reference.taps.size(); ++i) named[reference.taps[i].name] = i;
  std::vector<PairedTap> pairs;
  std::set<std::string> paired;
  for (std::size_t i = 0; i < target.taps.size(); ++i) {
    auto found = named.find(target.taps[i].name);
    // What one rank of several got differently is still what the reference got, unless it is of that rank's data alone.
    const bool shared = target.taps[i].kind != TapKind::kLoss && target.taps[i].kind != TapKind::kValue;
    if (found == named.end() && shared) found = named.find(std::string(unranked(target.taps[i].name)));
    if (found == named.end()) {
      bounds->unpaired_taps.push_back("'" + target.taps[i].name + "' (target only)");
      continue;
    }
    const GraphTap& other = reference.taps[found->second];
    if (other.shape != target.taps[i].shape)
      bounds->shape_conflicts.push_back("tap '" + other.name + "': target " + text_of(target.taps[i].shape) +
                                        ", reference " + text_of(other.shape));
    else
      pairs.push_back({i, found->second});
    paired.insert(found->first);
  }
  for (const auto& [name, index] : named)
    if (paired.count(name) == 0) bounds->unpaired_taps.push_back("'" + name + "' (reference only)");
  return pairs;
}

// Whether the tap is what the step began with: a leaf, handed on.
bool untouched(const Graph& graph, const GraphTap& tap) {
  for (const GraphTap::Term& term : tap.terms) {
    NodeId id = term.node;
    while (graph.nodes[id].primitive == Primitive::kWindow) id = graph.nodes[id].inputs[0];
    if (graph.nodes[id].primitive != Primitive::kLeaf) return false;
  }
  return true;
}

// A side that found an overflow skips its update, legally; exact arithmetic, which never overflows, would not. What the
// other side then updated and this one left is no difference of mathematics.
void leave_out_skipped_updates(const Graph& target, const Graph& reference, std::vector<PairedTap>* pairs,
                               Bounds* bounds) {
  const bool target_skips = overflow_was_found(target), reference_skips = overflow_was_found(reference);
  if (target_skips == reference_skips) return;
  std::erase_if(*pairs, [&](const PairedTap& pair) {
    const GraphTap &ours = target.taps[pair.target], &theirs = reference.taps[pair.reference];
    const bool skipped = target_skips ? untouched(target, ours) && !untouched(reference, theirs)
                                      : untouched(reference, theirs) && !untouched(target, ours);
    if (skipped) bounds->skipped_taps.push_back(ours.name);
    return skipped;
  });
}

}  // namespace

std::vector<PairedTap> pair_taps(const Graph& target, const Graph& reference, Bounds* bounds) {
  std::vector<PairedTap> pairs = by_name(target, reference, bounds);
  leave_out_skipped_updates(target, reference, &pairs, bounds);
  return pairs;
}

}  // namespace plumbline
