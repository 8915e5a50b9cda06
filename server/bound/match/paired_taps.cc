#include "server/bound/match/paired_taps.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "kernels/checks.h"
#include "kernels/sums.h"
#include "server/bound/match/readings.h"
#include "server/bound/replay/range.h"
#include "server/bound/replay/taps.h"
#include "server/lower/shape_text.h"

namespace plumbline {
namespace {

using Names = std::map<std::string, std::size_t>;

Names names_of(const Graph& graph) {
  Names names;
  for (std::size_t i = 0; i < graph.taps.size(); ++i) names[graph.taps[i].name] = i;
  return names;
}

// The taps that read what this tap reads, itself first.
std::vector<std::size_t> readings(const Graph& graph, const Names& names, std::size_t tap) {
  std::vector<std::size_t> found = {tap};
  for (const std::string& other : all_readings(graph.taps[tap].name))
    if (const auto at = names.find(other); at != names.end() && at->second != tap) found.push_back(at->second);
  return found;
}

// How far what was observed lies apart; below 0: it is equal bit by bit.
double distance(const GraphTap& target, const GraphTap& reference) {
  if (target.shape != reference.shape || !is_observed(target) || !is_observed(reference)) return HUGE_VAL;
  const Array ours = observed_value(target), theirs = observed_value(reference);
  if (bitwise_equal(ours, theirs)) return -1;
  const double relative = apart(ours, theirs).get().relative();
  return std::isnan(relative) ? HUGE_VAL : relative;
}

// Of several readings on either side the two that are closest; the first ones, if no two are closer.
PairedTap closest(const Graph& target, const Graph& reference, const std::vector<std::size_t>& ours,
                  const std::vector<std::size_t>& theirs) {
  PairedTap best{ours[0], theirs[0]};
  if (ours.size() == 1 && theirs.size() == 1) return best;
  double least = HUGE_VAL;
  for (std::size_t t : ours)
    for (std::size_t r : theirs)
      if (const double apart = distance(target.taps[t], reference.taps[r]); apart < least) {
        least = apart;
        best = {t, r};
      }
  return best;
}

std::vector<PairedTap> by_name(const Graph& target, const Graph& reference, Bounds* bounds) {
  const Names own = names_of(target), named = names_of(reference);
  std::vector<PairedTap> pairs;
  std::set<std::string> paired;
  for (std::size_t i = 0; i < target.taps.size(); ++i) {
    const GraphTap& tap = target.taps[i];
    const std::vector<std::size_t> ours = readings(target, own, i);
    if (is_other_reading(tap.name) && own.contains(first_reading(tap.name))) continue;
    auto found = named.find(tap.name);
    // What one rank of several got differently is still what the reference got, unless it is of that rank's data alone.
    const bool shared = tap.kind != TapKind::kLoss && tap.kind != TapKind::kValue;
    if (found == named.end() && shared) found = named.find(std::string(unranked(tap.name)));
    if (found == named.end()) {
      bounds->unpaired_taps.push_back("'" + tap.name + "' (target only)");
      continue;
    }
    const std::vector<std::size_t> theirs = readings(reference, named, found->second);
    const PairedTap pair = closest(target, reference, ours, theirs);
    const GraphTap& other = reference.taps[pair.reference];
    if (other.shape != tap.shape)
      bounds->shape_conflicts.push_back("tap '" + other.name + "': target " + text_of(tap.shape) + ", reference " +
                                        text_of(other.shape));
    else
      pairs.push_back(pair);
    for (std::size_t r : theirs) paired.insert(reference.taps[r].name);
  }
  for (const auto& [name, index] : named)
    if (paired.count(name) == 0) bounds->unpaired_taps.push_back("'" + name + "' (reference only)");
  std::ranges::sort(pairs, {}, &PairedTap::target);
  return pairs;
}

// The parameter that a tap is of; empty: of none.
std::string parameter_of(const Graph& graph, const GraphTap& tap) {
  const std::string name = tap.name.substr(std::min(tap.name.find(':'), tap.name.size() - 1) + 1);
  if (tap.kind == TapKind::kUpdate) return name;
  if (tap.kind == TapKind::kGradient) return name.substr(0, name.find('#'));  // A later backward's is named "grad:w#1".
  if (tap.kind != TapKind::kState) return {};
  std::string best;  // "state:NAME.KEY", where names have points too.
  for (const GraphLeaf& leaf : graph.leaves) {
    if (leaf.role != LeafRole::kParameter) continue;
    const std::string parameter = leaf.name.substr(leaf.name.find(':') + 1);
    if (name.starts_with(parameter + ".") && parameter.size() > best.size()) best = parameter;
  }
  return best;
}

bool has_parameter(const Graph& graph, const std::string& name) {
  return std::ranges::any_of(graph.leaves,
                             [&](const GraphLeaf& leaf) {
                               return leaf.role == LeafRole::kParameter && leaf.name == "param:" + name;
                             }) ||
         std::ranges::any_of(graph.taps, [&](const GraphTap& tap) {
           return (tap.kind == TapKind::kGradient || tap.kind == TapKind::kUpdate) && tap.name.ends_with(":" + name);
         });
}

bool carries(const Graph& graph, const std::string& parameter) {
  return std::ranges::any_of(graph.leaves, [&](const GraphLeaf& leaf) {
    return carried_gradient(leaf.role, leaf.name) && leaf.name == "state:" + parameter + ".grad";
  });
}

// The first operation that takes the parameter; nothing: none does.
std::optional<NodeId> first_use(const Graph& graph, const std::string& parameter) {
  const auto leaf = std::ranges::find(graph.leaves, "param:" + parameter, &GraphLeaf::name);
  if (leaf == graph.leaves.end()) return std::nullopt;
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (std::ranges::find(graph.nodes[id].inputs, leaf->node) != graph.nodes[id].inputs.end()) return id;
  return std::nullopt;
}

// What is before a tap's parameter and behind it: "grad", "update", "state .exp_avg".
std::string sort_of(const GraphTap& tap, const std::string& parameter) {
  const std::size_t at = tap.name.find(':');
  return tap.name.substr(0, at) + tap.name.substr(std::min(tap.name.size(), at + 1 + parameter.size()));
}

bool zero(const GraphTap& tap) {
  const Array value = observed_value(tap).on_host();
  for (std::int64_t i = 0; i < value.count(); ++i)
    if (value.data()[i] != 0) return false;
  return true;
}

LeafValue content(const Graph& graph, const std::string& leaf) {
  const auto found = std::ranges::find(graph.leaves, leaf, &GraphLeaf::name);
  if (found == graph.leaves.end() || !found->bytes) return {};
  return {found->format, found->bytes, graph.nodes[found->node].shape};
}

// Whether `graph` changes what the tap is of, a leaf of this name, and the other program, which holds it, leaves it
// alone.
bool changes_alone(const Graph& graph, const GraphTap& tap, const std::string& leaf, const Graph& other) {
  const auto held = std::ranges::find(other.leaves, leaf, &GraphLeaf::name);
  if (held == other.leaves.end() || !persistent(held->role)) return false;
  if (count(other.nodes[held->node].shape) != count(tap.shape)) return false;
  const LeafValue own = content(graph, leaf), before = own ? own : content(other, leaf);
  return before && !bitwise_equal(static_cast<Array>(before.reshape(tap.shape)), observed_value(tap));
}

// Whether Python may have branched on a number of the step before `graph` changed what the tap is of: the other program
// read numbers too, other roundings may be, and where a threshold lies between them both are legal. Whole numbers are
// no roundings.
bool python_may_decide(const Graph& graph, const GraphTap& tap, const Graph& other) {
  const auto rounded = [](const NumberRead& read) { return read.value != std::trunc(read.value); };
  const std::uint32_t changed = graph.nodes[tap.terms.front().node].origin;
  return std::ranges::any_of(other.reads, rounded) && std::ranges::any_of(graph.reads, [&](const NumberRead& read) {
           return read.origin < changed && rounded(read);
         });
}

// The parameters that either program moves, or changes the state of. Nothing where one of them moves no parameter,
// since its optimizer may then be out of sight, or its learning rate be zero in this step.
std::optional<std::set<std::string>> trained(const Graph& graph, const Graph& other) {
  std::set<std::string> found;
  for (const Graph* program : {&graph, &other}) {
    bool moves = false;
    for (const GraphTap& tap : program->taps) {
      if (!outlives_step(tap.kind) || (tap.kind == TapKind::kUpdate && is_observed(tap) && zero(tap))) continue;
      moves = moves || tap.kind == TapKind::kUpdate;
      const std::string_view name = unranked(tap.name);  // "param:NAME": what it was has no part in what it becomes.
      found.insert(name.starts_with("param:") ? std::string(name.substr(6)) : parameter_of(*program, tap));
    }
    if (!moves) return std::nullopt;
  }
  return found;
}

// Whether the program moves the parameter: its optimizer had a gradient of it, if only one of a kind that is no tap, as
// sparse ones.
bool moves_parameter(const Graph& graph, const std::string& parameter) {
  const LeafValue before = content(graph, "param:" + parameter);
  return before && std::ranges::any_of(graph.taps, [&](const GraphTap& tap) {
           return tap.kind == TapKind::kUpdate && parameter_of(graph, tap) == parameter && is_observed(tap) &&
                  !bitwise_equal(static_cast<Array>(before.reshape(tap.shape)), observed_value(tap));
         });
}

// Taps of `graph` that the other program should have: of a parameter that it has, and of a sort that it gives of
// others; of state that it holds as well.
// `skips`: one of them skips its update, legally.
void find_missing(const Graph& graph, const Graph& other, bool in_reference, bool skips, Bounds* bounds) {
  std::set<std::string> names, sorts;
  std::optional<std::optional<std::set<std::string>>> known;  // Of `trained`, once it was asked.
  for (const GraphTap& tap : other.taps) {
    names.insert(tap.name);
    names.insert(std::string(unranked(tap.name)));
    if (const std::string parameter = parameter_of(other, tap); !parameter.empty())
      sorts.insert(sort_of(tap, parameter));
  }
  const auto note_told_otherwise = [bounds](const std::string& name) {
    if (std::ranges::find(bounds->told_otherwise, name) == bounds->told_otherwise.end())
      bounds->told_otherwise.push_back(name);
  };
  const auto updates = [](const GraphTap& tap) { return tap.kind == TapKind::kUpdate; };
  const bool moves = std::ranges::any_of(graph.taps, updates) || std::ranges::any_of(other.taps, updates);
  for (const GraphTap& tap : graph.taps) {
    const std::string parameter = parameter_of(graph, tap);
    if (is_other_reading(tap.name)) continue;  // Only a program that changes a gradient gives it.
    if (names.count(tap.name) != 0 || names.count(std::string(unranked(tap.name))) != 0) continue;
    const auto told_as = [&](std::string_view one, std::string_view another) {
      return tap.name.starts_with(one) && names.count(std::string(another) + tap.name.substr(one.size())) != 0;
    };
    if (told_as("param:", "update:") || told_as("update:", "param:")) {
      note_told_otherwise(tap.name.substr(tap.name.find(':') + 1));
      continue;
    }
    if (tap.kind == TapKind::kState && !parameter.empty() && !moves) {
      note_told_otherwise(parameter);
      continue;
    }
    if (parameter.empty()) {
      if (tap.kind == TapKind::kState && changes_alone(graph, tap, tap.name, other))
        bounds->missing_taps.push_back({tap.name, tap.terms.front().node, in_reference, false, true});
      continue;
    }
    if (tap.kind == TapKind::kUpdate && sorts.count(sort_of(tap, parameter)) == 0 && !skips &&
        changes_alone(graph, tap, "param:" + parameter, other))
      bounds->unmoved.push_back(
          {tap.name, tap.terms.front().node, in_reference, false, true, python_may_decide(graph, tap, other)});
    if (sorts.count(sort_of(tap, parameter)) == 0 || !has_parameter(other, parameter) || zero(tap)) continue;
    // An optimizer may keep nothing where it needs nothing, as without momentum: what both make of the parameter tells.
    if (tap.kind == TapKind::kState && names.count("update:" + parameter) != 0) {
      note_told_otherwise(tap.name);
      continue;
    }
    if (tap.kind == TapKind::kGradient) {
      if (carries(other, parameter)) continue;  // It takes what earlier steps left.
      if (moves_parameter(other, parameter)) continue;
      if (!known) known = trained(graph, other);
      if (*known && !(*known)->contains(parameter)) continue;  // A gradient that trains nothing.
    }
    // Where the other program never takes the parameter, the first that does is the place.
    const std::optional<NodeId> use = first_use(other, parameter) ? std::nullopt : first_use(graph, parameter);
    bounds->missing_taps.push_back({tap.name, use.value_or(tap.terms.front().node), in_reference, use.has_value()});
  }
}

// How far exact values lie apart.
double distance(const MatchSide& target, std::size_t t, const MatchSide& reference, std::size_t r) {
  const GraphTap &ours = target.graph.taps[t], &theirs = reference.graph.taps[r];
  if (ours.shape != theirs.shape || !is_observed(ours) || !is_observed(theirs)) return HUGE_VAL;
  const double relative =
      apart(replayed_value(ours, target.replay), replayed_value(theirs, reference.replay)).get().relative();
  return std::isnan(relative) ? HUGE_VAL : relative;
}

// Whether the tap is what the step began with: a leaf, handed on.
bool untouched(const Graph& graph, const GraphTap& tap) {
  for (const GraphTap::Term& term : tap.terms) {
    NodeId id = term.node;
    while (graph.nodes[id].primitive == Primitive::kWindow) id = graph.nodes[id].inputs[0];
    if (graph.nodes[id].primitive != Primitive::kLeaf) return false;
  }
  return true;
}

// A side whose format overflowed skips its update, legally; exact arithmetic, which never overflows, would not. What
// the other side then updated and this one left is no difference of mathematics.
void leave_out_skipped_updates(const Graph& target, const Graph& reference, bool target_skips,
                               std::vector<PairedTap>* pairs, Bounds* bounds) {
  std::erase_if(*pairs, [&](const PairedTap& pair) {
    const GraphTap &ours = target.taps[pair.target], &theirs = reference.taps[pair.reference];
    const bool skipped = target_skips ? untouched(target, ours) && !untouched(reference, theirs)
                                      : untouched(reference, theirs) && !untouched(target, ours);
    if (skipped) bounds->skipped_taps.push_back(ours.name);
    return skipped;
  });
}

}  // namespace

void settle_readings(const MatchSide& target, const MatchSide& reference, std::vector<PairedTap>* pairs) {
  constexpr double kAlike = 0x1p-40;  // Far above the errors of two replays.
  const Names own = names_of(target.graph), named = names_of(reference.graph);
  for (PairedTap& pair : *pairs) {
    const std::vector<std::size_t> ours = readings(target.graph, own, pair.target),
                                   theirs = readings(reference.graph, named, pair.reference);
    if (ours.size() == 1 && theirs.size() == 1) continue;
    double least = HUGE_VAL;
    PairedTap same = pair, best = pair;
    double of_same = HUGE_VAL;
    for (const std::size_t t : ours)
      for (const std::size_t r : theirs) {
        const double apart = distance(target, t, reference, r);
        if (apart < least) {
          least = apart;
          best = {t, r};
        }
        if (unranked(target.graph.taps[t].name) == unranked(reference.graph.taps[r].name) && apart < of_same) {
          of_same = apart;
          same = {t, r};
        }
      }
    pair = of_same <= least + kAlike ? same : best;
  }
  std::ranges::sort(*pairs, {}, &PairedTap::target);
}

PairedTap first_readings(const Graph& target, const Graph& reference, const PairedTap& pair) {
  const auto first = [](const Graph& graph, std::size_t tap) {
    const auto found = std::ranges::find(graph.taps, first_reading(graph.taps[tap].name), &GraphTap::name);
    return found == graph.taps.end() ? tap : static_cast<std::size_t>(found - graph.taps.begin());
  };
  return {first(target, pair.target), first(reference, pair.reference)};
}

std::optional<double> leave_out_scaled_losses(const MatchSide& target, const MatchSide& reference,
                                              std::vector<PairedTap>* pairs) {
  constexpr double kReplayNoise = 1e-9;  // Far above the errors of two replays.
  constexpr double kMeant = 1e-3;        // Pairs that lie closer are judged for what they are, apart from the loss.
  using Values = std::pair<Array, Array>;
  const auto values = [&](const PairedTap& pair) {
    return Values(replayed_value(target.graph.taps[pair.target], target.replay).materialize(),
                  replayed_value(reference.graph.taps[pair.reference], reference.replay).materialize());
  };
  const auto left = [&](const PairedTap& pair) { return values(first_readings(target.graph, reference.graph, pair)); };
  std::vector<PairedTap> losses, gradients;
  for (const PairedTap& pair : *pairs) {
    const GraphTap& tap = target.graph.taps[pair.target];
    if (tap.kind == TapKind::kGradient) gradients.push_back(pair);
    if (tap.kind == TapKind::kLoss && count(tap.shape) == 1 &&
        distance(target, pair.target, reference, pair.reference) > kReplayNoise)
      losses.push_back(pair);
  }
  if (losses.empty()) return {};
  double largest = 0, scale = 1;
  for (const PairedTap& pair : gradients) {
    const auto [ours, theirs] = left(pair);
    if (const double squares = dot(theirs, theirs).get(); squares > largest) {
      largest = squares;
      scale = dot(theirs, ours).get() / squares;
    }
  }
  const auto is_apart = [&](const Values& both, double factor, double most) {
    const Apart by = apart(both.first, weighted(both.second, factor)).get();
    // What is zero but for rounding, as before a normalisation, is no multiple of anything.
    return !(by.difference <= most * std::fmax(by.norm, std::fabs(factor) * std::sqrt(largest)));
  };
  if (std::ranges::any_of(gradients, [&](const auto& pair) {
        return is_apart(values(pair), 1, kMeant) || is_apart(left(pair), scale, kReplayNoise);
      }))
    return {};
  std::erase_if(losses, [&](const PairedTap& pair) {
    const auto [ours, theirs] = left(pair);
    return !(std::fabs(ours.item() / (scale * theirs.item()) - 1) <= kReplayNoise);
  });
  std::erase_if(*pairs, [&](const PairedTap& pair) {
    return std::ranges::find(losses, pair.target, &PairedTap::target) != losses.end();
  });
  return losses.empty() ? std::nullopt : std::optional(scale);
}

std::vector<PairedTap> pair_taps(const Graph& target, const Graph& reference, Bounds* bounds) {
  std::vector<PairedTap> pairs = by_name(target, reference, bounds);
  std::erase_if(pairs, [&](const PairedTap& pair) {
    const bool both = is_observed(target.taps[pair.target]) && is_observed(reference.taps[pair.reference]);
    if (!both) bounds->unpaired_taps.push_back(target.taps[pair.target].name + " (its content was not sent)");
    return !both;
  });
  const bool target_skips = left_its_range(target, bounds->match.target_values);
  const bool skips = target_skips != left_its_range(reference, bounds->match.reference_values);
  if (skips) leave_out_skipped_updates(target, reference, target_skips, &pairs, bounds);
  find_missing(target, reference, false, skips, bounds);
  find_missing(reference, target, true, skips, bounds);
  return pairs;
}

}  // namespace plumbline
