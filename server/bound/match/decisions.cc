#include "server/bound/match/decisions.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "kernels/cpu/parallel.h"
#include "kernels/operations.h"
#include "server/bound/match/exact_elements.h"
#include "server/bound/match/margin.h"
#include "server/bound/match/transplant.h"

namespace plumbline {
namespace {

// Beyond the freedom of items: what it grows to on its way to a decision.
constexpr double kGrowth = 16;
// A jump counts as often as the other outcome may change what it is divided by.
constexpr double kJump = 2;
constexpr double kRowsNearby = 4;  // Beyond that a row taken by an open number may be any.

struct Decision {
  NodeId node = 0;
  const GraphDecision::Choice* choice = nullptr;
  double relative = 0;  // How far operands may be off...
  Array loose;          // ... where this is not 0; empty: everywhere.
  std::int64_t elements = 0;
  bool open = false;    // Some element may come out otherwise.
  bool rounds = false;  // To an integer: whether the other program does is asked in any case (grids.h).

  Margins margins(const MatchSide& side) const { return Margins(side, node, choice, relative, loose); }
};

double relative_size(const Array& freedom, const Array& value) {
  const Array f = freedom.on_host(), x = value.on_host();
  double most = 0, squares = 0, total = 0;
  for (std::int64_t i = 0; i < f.count(); ++i) {
    if (x.data()[i] != 0 && std::isfinite(x.data()[i])) most = std::fmax(most, f.data()[i] / std::fabs(x.data()[i]));
    squares += f.data()[i] * f.data()[i];
    total += x.data()[i] * x.data()[i];
  }
  return std::fmax(most, total > 0 ? std::sqrt(squares / total) : 0);
}

// Tells of each node how far its value may be off, relative to its size: by the replays' own error, and by more as far
// as items are free.
std::vector<double> looseness(const MatchSide& side, const Freedoms& freedoms, double error) {
  std::vector<double> loose(side.graph.nodes.size(), error);
  for (NodeId id = 0; id < side.graph.nodes.size(); ++id) {
    if (const auto free = freedoms.find(id); free != freedoms.end() && side.replay.has(id))
      loose[id] = std::fmax(loose[id], kGrowth * relative_size(free->second, side.replay.value(id)));
    for (NodeId input : side.graph.nodes[id].inputs) loose[id] = std::fmax(loose[id], loose[input]);
  }
  return loose;
}

std::vector<Decision> decisions_of(const MatchSide& side, const Freedoms& freedoms, double error, Halves halves) {
  std::map<NodeId, const GraphDecision::Choice*> choices;
  for (const GraphDecision& decision : side.graph.decisions)
    if (decision.choice) choices[decision.node] = &*decision.choice;
  const std::vector<double> loose = looseness(side, freedoms, error);
  ExactElements exact(side, freedoms, loose, halves);
  const std::vector<bool> used = used_by_taps(side.graph);
  std::vector<Decision> decisions;
  for (NodeId id = 0; id < side.graph.nodes.size(); ++id) {
    if (!used[id] || !side.replay.has(id) || !Margins::decides(side.graph, id)) continue;
    const auto choice = choices.find(id);
    Decision decision;
    decision.node = id;
    decision.choice = choice == choices.end() ? nullptr : choice->second;
    decision.relative = loose[id];
    decision.elements = count(side.graph.nodes[id].shape);
    const Primitive primitive = side.graph.nodes[id].primitive;
    decision.rounds = primitive >= Primitive::kFloor && primitive <= Primitive::kTrunc;
    decision.open = decision.choice != nullptr || decision.margins(side).open();
    if (decision.open) {
      const Loose outcome = exact.of(id);
      if (outcome.none())
        decision.relative = 0;
      else if (decision.choice == nullptr)
        decision.loose = exact.of_operands(id).elements;
      decision.open = decision.choice != nullptr || !outcome.none();
    }
    decisions.push_back(decision);
  }
  return decisions;
}

// Outcomes that say the opposite, as x <= 0 does of x > 0.
bool yes_or_no(const Graph& graph, NodeId id) { return graph.nodes[id].result == Format::kBool; }

struct Agreed {
  std::uint64_t differing = 0;
  bool negated = false;
};

// Whether each program's outcome is legal in the other everywhere, or else certain there, and the other follows it.
std::optional<Agreed> agree(const Margins& ours, const Margins& theirs, bool negated) {
  const Array &t = ours.outcomes(), &r = theirs.outcomes();
  Agreed agreed{0, negated};
  for (std::int64_t i = 0; i < t.count(); ++i) {
    const double mine = negated ? 1 - t.data()[i] : t.data()[i], other = r.data()[i];
    if (mine == other) continue;
    const bool theirs_may = theirs.legal(i, mine), ours_may = ours.legal(i, negated ? 1 - other : other);
    if (!(theirs_may || (ours_may && theirs.certain(i))) || !(ours_may || (theirs_may && ours.certain(i))))
      return std::nullopt;
    ++agreed.differing;
  }
  return agreed;
}

class Sharing {
 public:
  Sharing(const MatchSide& target, const Freedoms& target_freedoms, const MatchSide& reference,
          const Freedoms& reference_freedoms, double error)
      : target_(target), reference_(reference) {
    cpu::both([&] { ours_ = decisions_of(target, target_freedoms, error, halves_beside(reference)); },
              [&] { theirs_ = decisions_of(reference, reference_freedoms, error, halves_beside(target)); });
    matched_.assign(ours_.size(), false);
  }

  SharedDecisions run() {
    std::map<NodeId, Array> our_open, their_open;
    found_.target_settled.assign(target_.graph.nodes.size(), false);
    found_.reference_settled.assign(reference_.graph.nodes.size(), false);
    for (std::size_t r = 0; r < theirs_.size(); ++r) {
      const Decision& theirs = theirs_[r];
      if (!theirs.open && !theirs.rounds && !has_open_counterpart(theirs)) continue;
      if (share(r))
        found_.reference_settled[theirs.node] = true;
      else if (theirs.open)
        note_open(theirs, reference_, &their_open);
    }
    for (std::size_t t = 0; t < ours_.size(); ++t) {
      if (matched_[t] || repeats(t))
        found_.target_settled[ours_[t].node] = true;
      else if (ours_[t].open)
        note_open(ours_[t], target_, &our_open);
    }
    found_.target_jumps = jumps(target_, our_open);
    found_.reference_jumps = jumps(reference_, their_open);
    found_.target_turned = turned(target_, our_open);
    found_.reference_turned = turned(reference_, their_open);
    return std::move(found_);
  }

 private:
  // Without a trace of the other program nobody knows its rule.
  static Halves halves_beside(const MatchSide& other) {
    return other.graph.nodes.empty() ? Halves::kByAnyRule : Halves::kByOwnRule;
  }

  bool has_open_counterpart(const Decision& theirs) const {
    return std::ranges::any_of(ours_,
                               [&](const Decision& ours) { return ours.open && ours.elements == theirs.elements; });
  }

  // Whether the target decides once more what the reference decides once: it comes out alike everywhere.
  bool repeats(std::size_t t) const {
    const Decision& ours = ours_[t];
    if (!ours.open && !ours.rounds) return false;
    const Margins margins = ours.margins(target_);
    return std::ranges::any_of(theirs_, [&](const Decision& theirs) {
      if (ours.elements != theirs.elements) return false;
      const std::optional<Agreed> agreed = agree(margins, theirs.margins(reference_), false);
      return agreed && agreed->differing == 0;
    });
  }

  // The target's decision that the reference's is: of those that agree, one that has no counterpart yet before others,
  // and the first.
  bool share(std::size_t r) {
    const Decision& theirs = theirs_[r];
    const Margins their_margins = theirs.margins(reference_);
    const Primitive primitive = reference_.graph.nodes[theirs.node].primitive;
    std::optional<std::size_t> best;
    Agreed how;
    // One that comes out alike everywhere; otherwise one of the same primitive, as near a tie many agree; of these the
    // fewest elements that came out otherwise; of equals one without a counterpart, of the same primitive, the first.
    const auto rank = [&](std::size_t t, const Agreed& agreed) {
      const bool another = target_.graph.nodes[ours_[t].node].primitive != primitive;
      return std::tuple(agreed.differing > 0 && another, agreed.differing, bool{matched_[t]}, another);
    };
    for (std::size_t t = 0; t < ours_.size(); ++t) {
      if (ours_[t].elements != theirs.elements) continue;
      const Margins our_margins = ours_[t].margins(target_);
      std::optional<Agreed> agreed = agree(our_margins, their_margins, false);
      if (!agreed && yes_or_no(target_.graph, ours_[t].node) && yes_or_no(reference_.graph, theirs.node))
        agreed = agree(our_margins, their_margins, true);
      if (!agreed || (best && !(rank(t, *agreed) < rank(*best, how)))) continue;
      best = t;
      how = *agreed;
      if (rank(t, how) == std::tuple(false, std::uint64_t{0}, false, false)) break;
    }
    // Slopes that differ at a kink are one of many each: neither is the other's.
    const bool kinks = best && (is_kink(target_.graph, ours_[*best].node) || is_kink(reference_.graph, theirs.node));
    if (!best || (how.differing > 0 && kinks)) return false;
    matched_[*best] = true;
    if (how.differing == 0) return true;
    found_.shared += how.differing;
    follow(ours_[*best], theirs, their_margins, how.negated);
    return true;
  }

  void follow(const Decision& ours, const Decision& theirs, const Margins& their_margins, bool negated) {
    const Array t = target_.replay.value(ours.node).on_host(), r = their_margins.outcomes();
    Array target = Array::uninitialized(target_.graph.nodes[ours.node].shape);
    Array reference = Array::uninitialized(reference_.graph.nodes[theirs.node].shape);
    bool target_follows = false;
    for (std::int64_t i = 0; i < t.count(); ++i) {
      const double mine = negated ? 1 - t.data()[i] : t.data()[i];
      const bool theirs_holds = mine != r.data()[i] && their_margins.certain(i);
      target_follows = target_follows || theirs_holds;
      reference.data()[i] = theirs_holds ? r.data()[i] : mine;
      target.data()[i] = negated ? 1 - reference.data()[i] : reference.data()[i];
    }
    found_.reference[theirs.node] = reference;
    if (target_follows) found_.target[ours.node] = target;
  }

  void note_open(const Decision& decision, const MatchSide& side, std::map<NodeId, Array>* open) {
    const Margins margins = decision.margins(side);
    Array jumps = Array::uninitialized(side.graph.nodes[decision.node].shape);
    std::uint64_t elements = 0;
    for (std::int64_t i = 0; i < jumps.count(); ++i) {
      jumps.data()[i] = margins.jump(i);
      elements += jumps.data()[i] > 0;
    }
    if (elements == 0) return;
    found_.open += elements;
    (*open)[decision.node] = jumps;
  }

  static std::vector<NodeId> turned(const MatchSide& side, std::map<NodeId, Array> open) {
    std::erase_if(open, [&](const auto& decision) { return is_kink(side.graph, decision.first); });
    std::vector<NodeId> nodes;
    for (const auto& [node, width] : jumps(side, open)) nodes.push_back(node);
    return nodes;
  }

  // Rows may be taken by numbers that are open by a few; this is how far the nearby rows lie from those that were
  // taken.
  static Bound rows_nearby(const Node& node, const std::vector<Array>& centres, const std::vector<Bound>& radii) {
    const Array index = centres[1].on_host(), off = radii[1].values.expand(centres[1].shape()).on_host();
    const auto rows = static_cast<double>(centres[0].shape()[0]);
    const auto taken = [&](const Array& of, double shift) {
      Array at = Array::uninitialized(index.shape());
      for (std::int64_t i = 0; i < at.count(); ++i) {
        const double reach = std::fmin(std::fabs(shift), off.data()[i]);
        at.data()[i] = std::clamp(index.data()[i] + std::copysign(reach, shift), 0.0, rows - 1);
      }
      return traits(Primitive::kGatherRows).evaluate(node.attributes, node.shape, std::vector{of, at}).on_host();
    };
    double farthest = 0;
    for (std::int64_t i = 0; i < off.count(); ++i) farthest = std::fmax(farthest, std::ceil(off.data()[i]));
    if (!(farthest <= kRowsNearby)) return {Array::full(node.shape, HUGE_VAL)};
    const Array own = taken(centres[0], 0);
    Array most = Array::zeros(node.shape);
    for (double shift = -farthest; shift <= farthest; ++shift) {
      const Array other = taken(centres[0], shift);
      const Array radius = radii[0] ? taken(radii[0].values.materialize(), shift) : Array();
      for (std::int64_t i = 0; i < most.count(); ++i) {
        const double apart = std::fabs(other.data()[i] - own.data()[i]) + (radius ? radius.data()[i] : 0);
        most.data()[i] = std::fmax(most.data()[i], apart);
      }
    }
    return {most};
  }

  // How far numbers jump that are made of open outcomes. What is made of them alone, and is no number, is open too.
  static Freedoms jumps(const MatchSide& side, const std::map<NodeId, Array>& open) {
    Freedoms freedoms;
    std::vector<Bound> loose(side.graph.nodes.size());
    for (NodeId id = 0; id < side.graph.nodes.size(); ++id) {
      const Node& node = side.graph.nodes[id];
      if (const auto found = open.find(id); found != open.end()) {
        loose[id] = Bound{found->second};
      } else {
        const bool moved = std::ranges::any_of(node.inputs, [&](NodeId input) { return bool{loose[input]}; });
        if (!moved || !side.replay.has(id)) continue;
        std::vector<Array> centres;
        std::vector<Bound> radii;
        for (NodeId input : node.inputs) {
          centres.push_back(side.replay.value(input));
          radii.push_back(loose[input]);
        }
        loose[id] = node.primitive == Primitive::kGatherRows && loose[node.inputs[1]]
                        ? rows_nearby(node, centres, radii)
                        : traits(node.primitive).radius(node.attributes, centres, radii, side.replay.computed(id));
      }
      if (!loose[id] || !is_float(node.result)) continue;
      Array jump = Array::uninitialized(node.shape);
      current_operations().scale(jump, kJump, loose[id].values.materialize());
      freedoms[id] = jump;
      loose[id] = Bound();
    }
    return freedoms;
  }

  const MatchSide &target_, &reference_;
  std::vector<Decision> ours_, theirs_;
  std::vector<bool> matched_;  // Whether each of our decisions has a counterpart.
  SharedDecisions found_;
};

}  // namespace

SharedDecisions share_decisions(const MatchSide& target, const Freedoms& target_freedoms, const MatchSide& reference,
                                const Freedoms& reference_freedoms, double error) {
  return Sharing(target, target_freedoms, reference, reference_freedoms, error).run();
}

}  // namespace plumbline
