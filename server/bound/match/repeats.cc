#include "server/bound/match/repeats.h"

#include <cmath>
#include <string_view>
#include <utility>

namespace plumbline {
namespace {

constexpr double kBitsMin = 40;  // Fewer may be equal by chance.

std::string_view text(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes->data()), bytes->size()}; }

// How much a draw's numbers tell of its generator, in bits: log2 of the orders in which these numbers may come, to
// Stirling's first term.
double bits_told(const GraphLeaf& leaf) {
  const std::size_t width = traits(leaf.format).bytes;
  std::map<std::string_view, double> times;
  for (std::size_t at = 0; at + width <= leaf.bytes->size(); at += width) ++times[text(leaf.bytes).substr(at, width)];
  double elements = 0, bits = 0;
  for (const auto& [number, n] : times) {
    elements += n;
    bits -= n * std::log2(n);
  }
  return elements == 0 ? 0 : bits + elements * std::log2(elements);
}

}  // namespace

Repeats::Contents Repeats::contents_of(const Graph& graph) {
  std::map<NodeId, const GraphLeaf*> leaves;
  for (const GraphLeaf& leaf : graph.leaves) leaves[leaf.node] = &leaf;
  std::map<std::pair<Format, std::string_view>, Content> seen;
  Contents contents;
  for (const Draw& draw : graph.draws) {
    const auto leaf = leaves.find(draw.leaf);
    if (leaf == leaves.end() || !leaf->second->bytes) continue;
    const auto [content, is_new] =
        seen.try_emplace({leaf->second->format, text(leaf->second->bytes)}, Content{seen.size(), false});
    if (is_new) content->second.tells = bits_told(*leaf->second) >= kBitsMin;
    contents[draw.leaf] = content->second;
  }
  return contents;
}

Repeats::Repeats(const Graph& target, const Graph& reference)
    : ours_(contents_of(target)), theirs_(contents_of(reference)) {}

void Repeats::add(NodeId ours, NodeId theirs) {
  const auto a = ours_.find(ours), b = theirs_.find(theirs);
  if (a == ours_.end() || b == theirs_.end()) return;
  their_content_[a->second.which] = b->second.which;
  our_content_[b->second.which] = a->second.which;
  added_[b->second.which] = {ours, theirs};
}

bool Repeats::fit(NodeId ours, NodeId theirs) const {
  const auto a = ours_.find(ours), b = theirs_.find(theirs);
  if (a == ours_.end() || b == theirs_.end() || !a->second.tells || !b->second.tells) return true;
  const auto their = their_content_.find(a->second.which), our = our_content_.find(b->second.which);
  return (their == their_content_.end() || their->second == b->second.which) &&
         (our == our_content_.end() || our->second == a->second.which);
}

std::optional<std::pair<NodeId, NodeId>> Repeats::added_with(NodeId theirs) const {
  const auto content = theirs_.find(theirs);
  if (content == theirs_.end()) return std::nullopt;
  const auto same = added_.find(content->second.which);
  return same == added_.end() ? std::nullopt : std::optional(same->second);
}

}  // namespace plumbline
