// What the rounding of one node adds to functionals that see its result with some cotangent.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "kernels/pullback.h"
#include "server/bound/envelope/events.h"
#include "server/bound/replay/replay.h"

namespace plumbline {

// A functional at a node.
struct Functional {
  std::size_t probe = 0;
  Array cotangent;             // At the node, in its shape.
  bool target = false;         // Whether it asks of the target's rounding too,
  bool own_by_chance = false;  // of our own not only whole.
  double squares = 0;          // The squares of its noise, as far as they are known.
};

// What a node was computed from, and what the replay got.
struct Operands {
  std::vector<Array> inputs;
  Array value;
};

// Elements of a node that share an event, found when they are needed.
class SharedRoundings {
 public:
  // The audited execution is one side, and our own replay the other.
  struct Side {
    const Arithmetic* arithmetic = nullptr;  // Null: not asked for.
    Bound error;                             // It holds all elements. An empty one is worked out where it is needed.
  };
  // `operands`: called when they are needed. Off a device, the target's error is known, or ours if only that is asked
  // for.
  SharedRoundings(const Graph& graph, NodeId id, Side target, Side own, std::function<Operands()> operands);

  struct Charged {
    const Functional& functional;
    std::optional<EventWeights> weights;  // Its elements have these, where they are known.
    Charges* charges;
  };
  // Enlarges what functionals are charged by chance by what elements that share an event may add to it.
  void charge(std::vector<Charged> all);

 private:
  const Operands& operands();
  // The functional's cotangent, summed over elements that share an event, where these are not charged otherwise.
  std::optional<Array> merged(Charged* one);
  // Charges by chance those who ask for the side.
  void charge_merged(const std::vector<Charged>& all, const std::vector<Array>& merged);

  const Graph& graph_;
  const NodeId id_;
  const Side target_, own_;
  const std::function<Operands()> find_operands_;
  Array errors_;  // For draws: row-major.
  std::optional<Operands> operands_;
  std::optional<EventKeys> keys_;
  std::optional<SharedEvents> events_;
  std::optional<EventOrder> order_;  // On a device, in their place.
};

// A pass that draws elements in proportion to their weights as it charges them (kernels/pullback.h) needs none of them
// afterwards. `nodes`: how many the graph has; `n`: the elements.
//
// The weight from one draw to the next, for as many draws as say enough where the charges are about these. 0: none do.
double draw_every(const Functional& functional, std::size_t nodes, const Charges& about, std::int64_t n);
// Enlarges what the functional is charged by chance, the target's rounding included, by what elements that share an
// event may add to it. False: what was drawn does not say enough, and what was settled of the charges stays so.
bool charge_by_draws(const Functional& functional, std::size_t nodes, const Drawn& drawn, double every, std::int64_t n,
                     Charges* charges);

class NodeRounding {
 public:
  // An arithmetic that is null is not asked for.
  NodeRounding(const Graph& graph, NodeId id, Operands operands, const Arithmetic* target, const Arithmetic* own);

  // Whether it rounds at all.
  bool of_target() const { return static_cast<bool>(target_error_); }
  bool of_own() const { return static_cast<bool>(own_error_); }

  std::vector<Charges> charges(std::vector<Functional> functionals) const;

 private:
  const Graph& graph_;
  const NodeId id_;
  const Operands operands_;
  const Arithmetic *const target_, *const own_;
  Bound target_error_, own_error_;
};

}  // namespace plumbline
