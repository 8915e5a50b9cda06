// The local audit holds every node whose result was observed against the function of its observed operands
// (kernels/README.md, "Local audits and transplants").
//
// Elements are held against enclosures, those of elementwise nodes tile by tile. Large products whose operands were
// observed are first asked what costs much less than a product of our own: row projections, and all elements of a few
// rows. What fails there, and every product where that is asked for, is looked at element by element; so what is told
// is PROVEN either way, and what may be missed is a single element that is off by less than its row's roundings.
#pragma once

#include "server/bound/enclose/interval.h"
#include "server/bound/input.h"

namespace plumbline {

class ObservedNodes {
 public:
  // `anchors`: what consumers see in place of what was computed; among them everything observed. Refers to all.
  ObservedNodes(const BoundsInput& input, const Overrides& anchors);

  // Nodes whose enclosures `check` takes.
  const std::vector<NodeId>& wanted() const { return wanted_; }
  // Sets illegal_values, in the order in which they were computed, unjudged and products_by_rows.
  void check(const Replay& anchored, Enclosures* enclosures, Bounds* bounds) const;

 private:
  bool large_product(NodeId id, const Enclosures& enclosures) const;
  bool suspicious(NodeId id, const Replay& anchored) const;  // Deserves a look at every element.
  bool is_legal_product(NodeId id, const Replay& anchored) const;
  bool in_16_bits(NodeId id, const Replay& anchored) const;  // What is read of the node.
  IllegalValue check_whole(NodeId id, const Replay& anchored, Enclosures* enclosures, Bounds* bounds) const;
  std::vector<IllegalValue> check_chain(const ChainGroup& group, Enclosures* enclosures, Bounds* bounds) const;
  void leave_unjudged(NodeId id, Bounds* bounds) const;

  const BoundsInput& input_;
  const Graph& graph_;
  const Overrides& anchors_;
  std::vector<NodeId> nodes_;
  std::vector<ChainGroup> groups_;  // Members are indices of `nodes_`.
  std::vector<NodeId> wanted_;
};

}  // namespace plumbline
