// How far an operand would have to move for a decision to come out in another way.
#pragma once

#include "server/bound/match/computed.h"
#include "server/bound/replay/decided.h"

namespace plumbline {

// The decision of one node, element by element.
class Margins {
 public:
  // Whether the node's outcome is discrete though its operands are not.
  static bool decides(const Graph& graph, NodeId id);

  // `choice`: of an index, what was chosen from; null: not known. `relative`: how far operands may be off, relative to
  // their size; 0: they are exact, and no other outcome is legal. `loose`: 0 where they are exact; empty: nowhere.
  Margins(const MatchSide& side, NodeId id, const GraphDecision::Choice* choice, double relative,
          const Array& loose = {});

  const Array& outcomes() const { return outcomes_; }
  // Whether `outcome` is legal at the element, as far as operands may be off.
  bool legal(std::int64_t element, double outcome) const;
  // Whether no operand is off there.
  bool certain(std::int64_t element) const;
  // Whether some element may legally come out otherwise; choices are not looked at.
  bool open() const;
  // How far from the outcome another legal one lies; 0: none is legal.
  double jump(std::int64_t element) const;

 private:
  bool turns() const;
  double margin(std::int64_t element, double outcome) const;  // Infinite: it cannot come out so.
  double slack(std::int64_t element) const;
  double choice_margin(std::int64_t element, double outcome) const;

  Primitive primitive_;
  bool to_bool_ = false;
  bool selects_ = false;  // Which element the largest of a row is: it is one of them whatever is rounded.
  Array outcomes_, a_, b_, terms_;
  Array loose_;
  Array table_, position_;  // A choice has them.
  std::int64_t stride_ = 0;
  double relative_ = 0, size_ = 0;
};

}  // namespace plumbline
