#include "server/bound/pair/shared_items.h"

#include <algorithm>
#include <cmath>

#include "server/bound/envelope/sweep.h"
#include "server/bound/match/correspondence.h"
#include "server/bound/pair/half_known.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr std::size_t kItemsMax = 256;  // Of programs that hold more, none is taken for a rounding.

// One content, and the leaves of either program that hold it.
struct Item {
  LeafValue content;
  Array freedom;  // In one dimension.
  std::vector<NodeId> target, reference;
};

bool may_be_rounded(const GraphLeaf& leaf, const LeafValue& content) {
  return (leaf.role == LeafRole::kData || leaf.role == LeafRole::kBuffer) && !leaf.anchor && content &&
         is_float(leaf.format);
}

std::vector<Item> shared_items(bool only_half_known, const BoundsInput& input, const PairReplays& replays) {
  std::vector<Item> items;
  for (std::size_t i = 0; i < input.target->leaves.size(); ++i) {
    const GraphLeaf& leaf = input.target->leaves[i];
    const LeafValue& content = replays.target_leaves[i];
    if (!may_be_rounded(leaf, content)) continue;
    const auto same = [&](const Item& item) { return bitwise_equal(item.content, content); };
    auto item = std::ranges::find_if(items, same);
    if (item == items.end()) {
      Array freedom;
      if (only_half_known)
        freedom = half_known(leaf.format, static_cast<Array>(content).materialize().on_host(), false);
      if (!freedom) freedom = freedom_of(leaf.format, content);
      if (!freedom) continue;
      if (items.size() == kItemsMax) return {};
      item = items.insert(items.end(), {content, freedom, {}, {}});
    }
    item->target.push_back(leaf.node);
  }
  for (std::size_t i = 0; i < input.reference->leaves.size(); ++i) {
    const GraphLeaf& leaf = input.reference->leaves[i];
    if (!may_be_rounded(leaf, replays.reference_leaves[i])) continue;
    for (Item& item : items)
      if (bitwise_equal(item.content, replays.reference_leaves[i])) item.reference.push_back(leaf.node);
  }
  std::erase_if(items, [](const Item& item) { return item.reference.empty(); });
  return items;
}

// The leaves of one program, and functionals' derivatives by each.
struct Side {
  std::vector<NodeId> leaves;
  std::vector<std::vector<Array>> cotangents;  // By functional.

  // The derivative by what these leaves hold, in one dimension.
  Array by_item(std::size_t functional, const std::vector<NodeId>& of, std::int64_t elements) const {
    Array sum = Array::zeros({elements}).materialize().on_host();
    for (NodeId leaf : of) {
      const auto at = static_cast<std::size_t>(std::ranges::find(leaves, leaf) - leaves.begin());
      const Array& cotangent = cotangents[functional][at];
      if (!cotangent) continue;
      const Array by_element = cotangent.materialize().on_host();
      for (std::int64_t i = 0; i < elements; ++i) sum.data()[i] += by_element.data()[i];
    }
    return sum;
  }
};

}  // namespace

std::vector<Moved> moved_by_shared_items(const SharedItems& asked, const BoundsInput& input, const PairReplays& replays,
                                         const std::vector<Probe>& target, const std::vector<Probe>& reference) {
  std::vector<Moved> moved(target.size());
  const std::vector<Item> items = shared_items(asked.half_known, input, replays);
  if (items.empty()) return moved;
  Side ours, theirs;
  for (const Item& item : items) {
    ours.leaves.insert(ours.leaves.end(), item.target.begin(), item.target.end());
    theirs.leaves.insert(theirs.leaves.end(), item.reference.begin(), item.reference.end());
  }
  ours.cotangents = cotangents_at(ours.leaves, *input.target, replays.target, target);
  theirs.cotangents = cotangents_at(theirs.leaves, *input.reference, replays.reference, reference);
  for (std::size_t p = 0; p < target.size(); ++p)
    for (const Item& item : items) {
      const std::int64_t elements = item.freedom.count();
      const Array t = ours.by_item(p, item.target, elements), r = theirs.by_item(p, item.reference, elements);
      double apart = 0, both = 0;
      for (std::int64_t i = 0; i < elements; ++i) {
        const double free = item.freedom.data()[i];
        if (free == 0) continue;
        apart += free * std::fabs(t.data()[i] - r.data()[i]);
        both += free * (std::fabs(t.data()[i]) + std::fabs(r.data()[i]));
      }
      if (apart < asked.share * both) continue;
      moved[p].by += apart;
      if (apart <= moved[p].most) continue;
      moved[p].most = apart;
      moved[p].most_by = item.target.front();
    }
  return moved;
}

}  // namespace plumbline
