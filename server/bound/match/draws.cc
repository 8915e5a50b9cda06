#include "server/bound/match/draws.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "server/bound/match/repeats.h"

namespace plumbline {
namespace {

// A draw's parameter, by element of the draw; empty: it is a tensor of another size.
Array parameter_of(const MatchSide& side, const Draw& draw, std::size_t which) {
  const std::int64_t elements = count(side.graph.nodes[draw.leaf].shape);
  const Draw::Parameter& parameter = draw.place[which];
  const Array x = parameter.node ? side.replay.value(*parameter.node) : Array::scalar(parameter.number);
  if (x.count() == 1) return Array::full({elements}, x.materialize().item());
  return x.count() == elements ? x.reshape({elements}).on_host() : Array();
}

// Whether numbers that Python gave for parameters are one once a kernel has rounded them, and what it makes of them: of
// a uniform draw the width, too.
bool one_distribution(const MatchSide& target, const Draw& ours, const MatchSide& reference, const Draw& theirs) {
  if (ours.family != theirs.family || ours.place.size() != 2 || theirs.place.size() != 2) return false;
  const double u = std::fmax(unit_roundoff(target.graph.nodes[ours.leaf].result),
                             unit_roundoff(reference.graph.nodes[theirs.leaf].result));
  double size = 0, apart = 0;
  for (const std::size_t i : {0, 1}) {
    if (ours.place[i].node || theirs.place[i].node) return false;
    size += std::fabs(ours.place[i].number);
    apart = std::fmax(apart, std::fabs(ours.place[i].number - theirs.place[i].number));
  }
  return apart <= 2 * u * size;
}

// The target's numbers as the reference would have drawn them; empty: that is not known.
Array moved(const MatchSide& target, const Draw& ours, const MatchSide& reference, const Draw& theirs,
            const Array& numbers) {
  if (ours.family != theirs.family || ours.place.size() != 2 || theirs.place.size() != 2) return {};
  const Array a = parameter_of(target, ours, 0), b = parameter_of(target, ours, 1);
  const Array c = parameter_of(reference, theirs, 0), d = parameter_of(reference, theirs, 1);
  if (!a || !b || !c || !d) return {};
  const bool ends = ours.family == "uniform";
  const Array x = numbers.on_host();
  Array result = Array::uninitialized({x.count()});
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double from = a.data()[i], to = c.data()[i];
    const double width = ends ? b.data()[i] - from : b.data()[i], wanted = ends ? d.data()[i] - to : d.data()[i];
    const double y = from == to && width == wanted ? x.data()[i] : to + wanted * ((x.data()[i] - from) / width);
    if (!std::isfinite(y)) return {};
    result.data()[i] = y;
  }
  return result;
}

LeafValue& value_at(const Graph& graph, NodeId leaf, std::vector<LeafValue>* values) {
  const auto at = std::ranges::find(graph.leaves, leaf, &GraphLeaf::node);
  return (*values)[static_cast<std::size_t>(at - graph.leaves.begin())];
}

// Whether the target's numbers are, to rounding, the reference's, moved and scaled to the target's distribution.
bool one_stream(const MatchSide& target, const Draw& ours, const MatchSide& reference, const Draw& theirs,
                const Array& numbers, const Array& others) {
  const Array expected = moved(reference, theirs, target, ours, others);
  if (!expected) return false;
  constexpr double kRoundings = 8;
  const double u = std::fmax(unit_roundoff(target.graph.nodes[ours.leaf].result),
                             unit_roundoff(reference.graph.nodes[theirs.leaf].result));
  const Array x = numbers.on_host(), a = parameter_of(target, ours, 0), b = parameter_of(target, ours, 1);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double size = std::fabs(x.data()[i]) + std::fabs(a.data()[i]) + std::fabs(b.data()[i]);
    if (!(std::fabs(x.data()[i] - expected.data()[i]) <= kRoundings * u * size)) return false;
  }
  return true;
}

// Those that are matched already.
Repeats matched_draws(const Graph& target, const Graph& reference, const Correspondence& found) {
  Repeats repeats(target, reference);
  for (const auto& [ours, theirs] : found.draws) repeats.add(ours, theirs);
  for (const MatchedItem& item : found.items)
    if (item.in_reference && item.counterpart) repeats.add(*item.counterpart, item.item);
  return repeats;
}

bool match_draws(const MatchSide& target, const MatchSide& reference, bool by_content, Correspondence* found) {
  using Key = std::pair<std::string, std::int64_t>;  // Family, elements.
  std::map<Key, std::vector<const Draw*>> ours;
  const auto open = [&](bool in_reference, const Draw& draw) {
    return std::ranges::any_of(found->items, [&](const MatchedItem& item) {
      return item.in_reference == in_reference && item.evidence == Evidence::kNone && item.item == draw.leaf;
    });
  };
  const auto settle = [&](NodeId own, NodeId theirs, Evidence evidence) {
    std::erase_if(found->items, [&](const MatchedItem& item) {
      return item.evidence == Evidence::kNone && item.item == (item.in_reference ? theirs : own);
    });
    found->items.push_back({evidence, true, theirs, own});
  };
  for (const Draw& draw : target.graph.draws)
    if (open(false, draw)) ours[{draw.family, count(target.graph.nodes[draw.leaf].shape)}].push_back(&draw);
  Repeats repeats = matched_draws(target.graph, reference.graph, *found);
  bool any = false;
  for (const Draw& draw : reference.graph.draws) {
    if (!open(true, draw)) continue;
    const Shape& shape = reference.graph.nodes[draw.leaf].shape;
    std::vector<const Draw*>& candidates = ours[{draw.family, count(shape)}];
    LeafValue& value = value_at(reference.graph, draw.leaf, &found->reference_values);
    const auto chosen = std::ranges::find_if(candidates, [&](const Draw* candidate) {
      if (!by_content) return repeats.fit(candidate->leaf, draw.leaf);
      return one_stream(target, *candidate, reference, draw,
                        value_at(target.graph, candidate->leaf, &found->target_values), value);
    });
    if (chosen == candidates.end()) continue;
    const Draw& counterpart = **chosen;
    repeats.add(counterpart.leaf, draw.leaf);
    candidates.erase(chosen);
    const Array numbers = value_at(target.graph, counterpart.leaf, &found->target_values);
    const bool one = one_distribution(target, counterpart, reference, draw);
    const Array taken = one ? Array(numbers) : moved(target, counterpart, reference, draw, numbers);
    const bool rounded = one && (counterpart.place[0].number != draw.place[0].number ||
                                 counterpart.place[1].number != draw.place[1].number);
    if (!taken) found->draws.emplace_back(counterpart.leaf, draw.leaf);
    value = (taken ? taken : numbers).reshape(shape);
    settle(counterpart.leaf, draw.leaf, rounded || by_content ? Evidence::kRounding : Evidence::kNamed);
    any = true;
  }
  if (by_content) return any;
  // What the reference drew again, as a region that is computed twice does, is what it drew before.
  for (const Draw& draw : reference.graph.draws) {
    const auto same = open(true, draw) ? repeats.added_with(draw.leaf) : std::nullopt;
    if (!same) continue;
    value_at(reference.graph, draw.leaf, &found->reference_values) =
        value_at(reference.graph, same->second, &found->reference_values)
            .reshape(reference.graph.nodes[draw.leaf].shape);
    settle(same->first, draw.leaf, Evidence::kNamed);
    any = true;
  }
  return any;
}

}  // namespace

bool match_draws_by_content(const MatchSide& target, const MatchSide& reference, Correspondence* found) {
  return match_draws(target, reference, true, found);
}

bool match_draws_by_order(const MatchSide& target, const MatchSide& reference, Correspondence* found) {
  return match_draws(target, reference, false, found);
}

}  // namespace plumbline
