#include "server/bound/pair/missing_state.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "server/bound/match/paired_taps.h"
#include "server/bound/pair/kept.h"
#include "server/bound/pair/replays.h"

namespace plumbline {
namespace {

constexpr std::size_t kAlikeMax = 3;   // Of one size that move one parameter: an optimizer has no more.
constexpr double kCloseEnough = 1e-9;  // Far above the errors of two replays; no other order is tried.

// What state is told by before its content is known: how many elements it has, and the parameters that it moves.
using Place = std::pair<std::int64_t, std::set<std::string>>;

Place place_of(const Graph& graph, NodeId node) {
  const std::vector<bool> reached = reached_by({node}, graph);
  Place place{count(graph.nodes[node].shape), {}};
  for (const GraphTap& tap : graph.taps)
    if (tap.kind == TapKind::kUpdate &&
        std::ranges::any_of(tap.terms, [&](const GraphTap::Term& term) { return reached[term.node]; }))
      place.second.insert(tap.name);
  return place;
}

// The reference's state that `match` lacks. Nothing: something else is missing, or state that the step does not write.
std::optional<std::vector<KeptData>> missing_state(const Graph& reference, const Correspondence& match) {
  std::vector<KeptData> found;
  for (const std::string& name : match.missing) {
    const auto leaf = std::ranges::find(reference.leaves, name, &GraphLeaf::name);
    const auto left = std::ranges::find_if(
        reference.taps, [&](const GraphTap& tap) { return tap.kind == TapKind::kState && tap.name == name; });
    if (leaf == reference.leaves.end() || leaf->role != LeafRole::kState || left == reference.taps.end()) return {};
    found.push_back({static_cast<std::size_t>(leaf - reference.leaves.begin()), leaf->node, true, *left, {}});
  }
  return found;
}

struct Group {
  std::vector<KeptData> ours, theirs;  // As many, in the order in which each program has them.
};

// Nothing: not all of `theirs` have as many counterparts.
std::optional<std::vector<Group>> grouped(const BoundsInput& input, const Correspondence& match,
                                          const std::vector<KeptData>& theirs) {
  std::map<Place, Group> groups;
  for (const KeptData& one : theirs) groups[place_of(*input.reference, one.node)].theirs.push_back(one);
  for (const KeptData& one : kept_data(*input.target, match.target_values)) {
    const auto group = groups.find(place_of(*input.target, one.node));
    if (group != groups.end() && one.written) group->second.ours.push_back(one);
  }
  std::vector<Group> all;
  for (auto& [place, group] : groups) {
    if (place.second.empty() || group.ours.size() != group.theirs.size() || group.ours.size() > kAlikeMax) return {};
    all.push_back(std::move(group));
  }
  return all;
}

struct StandIns {
  Correspondence match;
  std::vector<KeptItem> items;
};

// `order`: the one of ours that stands for each of theirs, in groups of so many.
StandIns stand_in(const BoundsInput& input, const Correspondence& match, const std::vector<Group>& groups,
                  const std::vector<std::size_t>& order) {
  StandIns found{match, {}};
  found.match.missing.clear();
  for (const Group& group : groups) {
    std::vector<std::size_t> own = order;
    std::erase_if(own, [&](std::size_t i) { return i >= group.ours.size(); });
    for (std::size_t i = 0; i < own.size(); ++i) {
      const KeptData &ours = group.ours[own[i]], &theirs = group.theirs[i];
      found.items.push_back({ours.node, theirs.node, ours.left, theirs.left, 1, true});
      give(ours, theirs, 1, *input.reference, &found.match);
    }
  }
  return found;
}

// How far the programs are apart with these, infinite where what they leave tells that they are not one.
double apart_with(const BoundsInput& input, const Replay& target_exact, const StandIns& given) {
  Correspondence match = given.match;
  std::uint64_t shared = 0;
  const PairReplays replays = replay_pair(input, target_exact, {}, &match, &shared);
  if (!leave_alike(input, replays, given.items)) return HUGE_VAL;
  Bounds unused;
  const Gap gap(input, replays, pair_taps(*input.target, *input.reference, &unused));
  double most = 0;
  for (const PairedTap& pair : gap.pairs()) {
    const double by = gap.relative(pair);
    most = std::isnan(by) ? HUGE_VAL : std::fmax(most, by);
  }
  return most;
}

}  // namespace

std::optional<MatchedItem> stand_for_missing(const BoundsInput& input, const Replay& target_exact,
                                             Correspondence* match) {
  const std::optional<std::vector<KeptData>> theirs = missing_state(*input.reference, *match);
  if (!theirs) return {};
  const std::optional<std::vector<Group>> groups = grouped(input, *match, *theirs);
  if (!groups) return {};
  std::size_t most = 0;
  for (const Group& group : *groups) most = std::max(most, group.ours.size());
  std::vector<std::size_t> order(most);
  std::iota(order.begin(), order.end(), 0);
  std::optional<StandIns> best;
  double least = HUGE_VAL;
  do {
    StandIns found = stand_in(input, *match, *groups, order);
    const double apart = apart_with(input, target_exact, found);
    if (apart < least) {
      least = apart;
      best = std::move(found);
    }
  } while (least > kCloseEnough && std::ranges::next_permutation(order).found);
  if (!best) return {};
  *match = std::move(best->match);
  return MatchedItem{Evidence::kKept, false, best->items.front().target, best->items.front().reference};
}

}  // namespace plumbline
