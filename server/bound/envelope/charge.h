// What the rounding of one node adds to functionals that see its result with some cotangent.
#pragma once

#include <functional>
#include <optional>
#include <span>
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

// What functionals are charged at a node, told what is known of their noise when it is asked (Functional::squares).
// Work of a device was put into its queue before: nobody waits for it until then.
using OpenCharges = std::function<std::vector<Charges>(std::span<const double> squares)>;

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
  // On the host: enlarges what functionals are charged by chance by what elements that share an event may add to it.
  void charge(std::vector<Charged> all);
  // On a device, which sorts faster than the host draws and is not waited for: the same of functionals whose charges
  // are to come.
  OpenCharges open(const std::vector<Functional>& all, std::vector<Later<Charges>> charges);

 private:
  struct Merged {
    std::optional<Later<Charge>> target, own;  // Where they are asked for.
  };

  const Operands& operands();
  bool asks_target(const Functional& functional) const { return functional.target && target_.arithmetic != nullptr; }
  bool asks_own(const Functional& functional) const { return functional.own_by_chance && own_.arithmetic != nullptr; }
  bool distinct();
  // The functional's cotangent, summed over elements that share an event, where these are not charged otherwise.
  std::optional<Array> merged(Charged* one);
  // What those who ask for a side are charged there with these cotangents.
  std::vector<Merged> charge_merged(const std::vector<Functional>& all, const std::vector<Array>& merged);

  const Graph& graph_;
  const NodeId id_;
  const Side target_, own_;
  const std::function<Operands()> find_operands_;
  Array errors_;  // For draws: row-major.
  std::optional<Operands> operands_;
  std::optional<bool> distinct_;  // Whether it is plain that no elements share an event (distinct.h).
  std::optional<EventKeys> keys_;
  std::optional<SharedEvents> events_;
};

// A pass that draws elements in proportion to their weights as it charges them (kernels/pullback.h) needs none of them
// afterwards. `nodes`: how many the graph has; `n`: the elements.
//
// The weight from one draw to the next, for as many draws as say enough where the charges are about these. 0: none do.
double draw_every(const Functional& functional, std::size_t nodes, const Charges& about, std::int64_t n);
// Enlarges what the functional is charged by chance by what elements that share an event may add to it. False: what was
// drawn does not say enough, and what was settled of the charges stays so.
bool charge_by_draws(const Functional& functional, std::size_t nodes, const Drawn& drawn, double every, std::int64_t n,
                     Charges* charges);

class NodeRounding {
 public:
  // An arithmetic that is null is not asked for.
  NodeRounding(const Graph& graph, NodeId id, Operands operands, const Arithmetic* target, const Arithmetic* own);

  // Whether it rounds at all.
  bool of_target() const { return static_cast<bool>(target_error_); }
  bool of_own() const { return own_share_ || own_error_; }

  // On the host, to be asked as long as this is there.
  OpenCharges charges(std::vector<Functional> functionals) const;

 private:
  const Graph& graph_;
  const NodeId id_;
  const Operands operands_;
  const Arithmetic *const target_, *const own_;
  Bound target_error_, own_error_;
  std::optional<double> own_share_;  // Our own errors are at most this share of the target's; then they are not held.
};

}  // namespace plumbline
