// What values an integer node can take: from the contents of the leaves, through the operations.
#pragma once

#include <optional>
#include <vector>

#include "server/lower/graph.h"

namespace plumbline {

// Up to it fp64, in which nodes are evaluated, holds every integer.
constexpr double kExactMax = 0x1p53;

struct IntegerRange {
  double low = 0, high = 0;
  // Numbers that were converted from floats, or whose content the trace does not tell, are taken not to overflow.
  bool assumed = false;

  bool within(double least, double most) const { return low >= least && high <= most; }
  bool exact() const { return within(-kExactMax, kExactMax); }
};

// The numbers that an integer format holds.
IntegerRange range_of(Format format);
// Its bits; 0: none, or a boolean's.
int width_of(Format format);

class IntegerRanges {
 public:
  explicit IntegerRanges(const Graph& graph) : graph_(graph) {}

  // The node must hold integers.
  IntegerRange of(NodeId id);
  // Says what is known of a node by how it was made.
  void set(NodeId id, IntegerRange range);
  // Nodes from `first` on are other ones now.
  void forget(NodeId first);

 private:
  IntegerRange compute(NodeId id);  // From what is known of its operands.
  IntegerRange of_leaf(NodeId id) const;
  // What is assumed not to overflow lies within its format.
  static IntegerRange within_format(IntegerRange range, Format format);

  const Graph& graph_;
  std::vector<std::optional<IntegerRange>> known_;
};

}  // namespace plumbline
