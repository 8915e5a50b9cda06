// Whether values of an exact replay are finite, told from the ranges of what they are computed from: an optimizer's
// results need not be computed for it.
#pragma once

#include <optional>
#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

class FiniteRanges {
 public:
  // Refers to both. `replay` is on the host.
  FiniteRanges(const Graph& graph, const Replay& replay)
      : graph_(graph), replay_(replay), ranges_(graph.nodes.size()) {}

  // All values that the replay computes lie within. Nothing: some may be infinite or NaN.
  struct Range {
    double low, high;
  };
  // Of elementwise nodes, and others that are not at hand, by what lies before them, where it tells.
  std::optional<Range> of(NodeId id);

 private:
  std::optional<Range> of_values(NodeId id) const;
  struct Scaled {
    NodeId node = 0;
    bool negative = false;
  };
  Scaled scaled(NodeId id) const;
  std::optional<Range> of_operands(const Node& node) const;

  const Graph& graph_;
  const Replay& replay_;
  struct Known {
    bool known = false;
    std::optional<Range> range;
  };
  std::vector<Known> ranges_;
};

}  // namespace plumbline
