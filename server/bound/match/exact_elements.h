// Which elements of a value no rounding has moved. Sums and products of integers and of other short dyadic numbers are
// exact in whatever order they are taken: the number of a segment that is a running sum of ones, a label 1 - y, a
// position that a mask makes. So are quotients and roots that their format holds, where the device's profile promises
// it: 6 / 3, the distance of (0, 0) and (3, 4); what a clamp gives where its other operand lies well beyond it; and
// positions in an order where no two numbers lie nearly side by side.
// Whether two such elements are equal, and what integer one is rounded to, has one outcome: halves go where the
// program's own rule sends them. Which slope backward takes at a kink is a convention: that is certain only of what was
// given.
//
// A kernel gives its result, and need not form what our formula of it has on the way (a variance's mean): a quotient or
// root within an operation is exact only by a power of two.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "server/bound/match/margin.h"
#include "server/bound/replay/terms.h"

namespace plumbline {

// Which elements may be off. `all`: every one; otherwise `elements` (of the node's shape) that are not 0; empty: none.
struct Loose {
  bool all = false;
  Array elements;
  bool none() const { return !all && !elements; }
};

// Whether the node tells slopes apart at a kink, as of relu or abs: which one it takes there is a convention.
bool is_kink(const Graph& graph, NodeId id);

// Where halves go that no rounding made: where the program's own rule sends them; or by the rule of another program, of
// which nothing is known.
enum class Halves : std::uint8_t { kByOwnRule, kByAnyRule };

class ExactElements {
 public:
  // `freedoms`: of the items that the program has alone. `relative`: by node, how far values may be off, relative to
  // their size, where they are off. All are referred to.
  ExactElements(const MatchSide& side, const Freedoms& freedoms, const std::vector<double>& relative,
                Halves halves = Halves::kByOwnRule);

  // Works out what the node needs and no more, and keeps it. For a decision, the outcome is meant.
  const Loose& of(NodeId id);
  // Where the operands of an elementwise decision may be off, as far as its outcome goes.
  Loose of_operands(NodeId id);

 private:
  bool by_convention(NodeId id) const;  // Which way the decision falls at a tie.
  bool of_its_own(NodeId id) const;
  bool is_given(NodeId id) const;
  bool is_possible(NodeId id) const;
  // Nothing of what the node depends on need be known.
  bool settled(NodeId id) const;
  Loose loose(NodeId id) const;
  Loose any_operand(NodeId id) const;
  Loose decided(NodeId id) const;
  Loose ordered(NodeId id) const;
  Loose moved_or_summed(NodeId id) const;
  Loose product(NodeId id) const;
  bool rounds_nowhere(NodeId id, const Array& magnitudes, double grid) const;
  Loose calculated(NodeId id) const;
  Loose chosen(NodeId id) const;
  Loose norm(NodeId id) const;
  std::vector<bool> inner_results() const;
  // Whether the device gives results of the node that its format holds as they are.
  bool promised(NodeId id) const;
  double slack_of(NodeId operand) const;  // How far one of its elements that is loose may be off, but for its own size.

  const MatchSide& side_;
  const Freedoms& freedoms_;
  const std::vector<double>& relative_;
  const Halves halves_;
  // A node is given where it was only moved, selected or compared since both programs were given it.
  std::vector<bool> given_;
  std::vector<bool> inner_;     // Its own operation goes on to compute with the node.
  std::vector<bool> turns_;     // What the node depends on may jump, as a decision does.
  std::vector<bool> possible_;  // A node is possible where its operations do not forbid that some element is exact.
  std::map<NodeId, Loose> known_;
};

// Of nodes that round and that `wanted` depend on. What hangs on parameters or state is not looked at: these are long
// numbers.
Unmoved unmoved_elements(const MatchSide& side, const std::vector<NodeId>& wanted);

}  // namespace plumbline
