#include "server/bound/pair/kept.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "kernels/checks.h"
#include "kernels/sums.h"
#include "server/bound/match/transplant.h"
#include "server/bound/pair/drill.h"
#include "server/bound/pair/left_gap.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr double kFarthest = 0.25;  // Of the content: what lies farther is another thing, or told otherwise.
// In a step, of what lay between two contents when they were found: a mean that decays shrinks it. No bound is derived
// from this, and beyond it nothing is proven: what was found apart is only no evidence then.
constexpr double kGrowth = 4;
constexpr double kLeftNoise = 1e-9;  // Far above the errors of two replays.

// Whether all may lie within kFarthest, as far as the first elements tell: layers have many tensors of one size.
bool may_be_near(const LeafValue& a, const LeafValue& b, double scale) {
  constexpr std::int64_t kSome = 4096;
  const std::int64_t some = std::min(a.count(), kSome);
  const Array ours = a.part(0, some), theirs = weighted(b.part(0, some), scale);
  return some == a.count() || !(norm2(theirs).get() > 0) || apart(ours, theirs).get().relative() < 1;
}

struct Nearest {
  std::size_t index = 0;
  double by = 0, scale = 1;
};

std::optional<Nearest> nearest(const LeafValue& found, const std::vector<KeptData>& others,
                               const std::set<double>& scales) {
  const Array content = found;
  std::optional<Nearest> best;
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (others[i].content.count() != content.count()) continue;
    for (const double scale : scales) {
      if (!may_be_near(found, others[i].content, scale)) continue;
      const double by = apart(content, weighted(static_cast<Array>(others[i].content), scale)).get().relative();
      if (by < (best ? best->by : kFarthest)) best = Nearest{i, by, scale};
    }
  }
  return best;
}

// By pair, whether it is left apart.
std::vector<bool> parted(const Gap& gap) {
  std::vector<bool> apart;
  std::vector<std::size_t> asked;
  std::vector<Probe> open;
  for (const PairedTap& pair : gap.pairs()) {
    apart.push_back(gap.parting(pair) != Gap::Parting::kNone);
    if (apart.back() || gap.relative(pair) <= kLeftNoise) continue;
    asked.push_back(apart.size() - 1);
    open.push_back(gap.probe(pair));
  }
  if (open.empty()) return apart;
  const std::vector<Answer> answers = gap.ask(open);
  for (std::size_t i = 0; i < asked.size(); ++i) apart[asked[i]] = !answers[i].passed();
  return apart;
}

}  // namespace

std::vector<KeptData> kept_data(const Graph& graph, const std::vector<LeafValue>& values) {
  std::vector<NodeId> in_step;
  for (const GraphTap& tap : graph.taps)
    if (!outlives_step(tap.kind)) std::ranges::copy(nodes_of(tap), std::back_inserter(in_step));
  const std::vector<bool> read = ancestors(graph, in_step), used = used_by_taps(graph);
  std::vector<KeptData> found;
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) {
    const GraphLeaf& leaf = graph.leaves[i];
    const Shape& shape = graph.nodes[leaf.node].shape;
    if (leaf.role != LeafRole::kData || leaf.anchor || !is_float(leaf.format) || !values[i] || count(shape) <= 1 ||
        read[leaf.node] || !used[leaf.node])
      continue;
    KeptData one{i, leaf.node, false, {}, values[i]};
    const auto kept = std::ranges::find(graph.kept, leaf.node, &Kept::leaf);
    one.written = kept != graph.kept.end();
    if (one.written) {
      one.left = kept->left;
    } else {
      one.left.shape = shape;
      one.left.terms.push_back({leaf.node, 1, leaf.format, nullptr});
    }
    found.push_back(std::move(one));
  }
  return found;
}

void give(const KeptData& ours, const KeptData& theirs, double scale, const Graph& reference, Correspondence* match) {
  std::erase_if(match->items, [&](const MatchedItem& item) {
    const auto is = [&](bool in_reference, NodeId node) {
      return (item.in_reference == in_reference && item.item == node) ||
             (item.in_reference != in_reference && item.counterpart == node);
    };
    return is(false, ours.node) || is(true, theirs.node);
  });
  std::erase(match->foreign_data, ours.node);
  std::erase(match->foreign_reference_data, theirs.node);
  match->target_freedoms.erase(ours.node);
  match->reference_freedoms.erase(theirs.node);
  match->items.push_back({Evidence::kKept, true, theirs.node, ours.node});
  give_scaled(match->target_values[ours.leaf], scale, theirs.leaf, reference, match);
}

std::optional<KeptMatch> match_kept(const BoundsInput& input, const Correspondence& match,
                                    const std::set<double>& scales) {
  if (input.first_step_of_run || input.kept_before == KeptLeft::kApart) return {};
  const std::vector<KeptData> ours = kept_data(*input.target, leaf_values(*input.target)),
                              theirs = kept_data(*input.reference, leaf_values(*input.reference));
  std::set<double> of_theirs{1}, of_ours{1};
  for (const double scale : scales)
    for (const double by : {scale, scale * scale}) {
      of_theirs.insert(by);
      of_ours.insert(1 / by);
    }
  KeptMatch kept{{}, match, input.kept_before == KeptLeft::kAlike};
  for (std::size_t t = 0; t < ours.size(); ++t) {
    const std::optional<Nearest> one = nearest(ours[t].content, theirs, of_theirs);
    if (!one || (one->by == 0 && one->scale == 1)) continue;
    const KeptData& other = theirs[one->index];
    const std::optional<Nearest> back = nearest(other.content, ours, of_ours);
    if (!back || back->index != t) continue;
    const bool told = ours[t].written && other.written;
    kept.items.push_back({ours[t].node, other.node, ours[t].left, other.left, one->scale, told});
    kept.told = kept.told && told;
    give(ours[t], other, one->scale, *input.reference, &kept.match);
  }
  return kept.items.empty() ? std::nullopt : std::optional(std::move(kept));
}

bool leave_alike(const BoundsInput& input, const PairReplays& replays, const std::vector<KeptItem>& items) {
  std::vector<GraphTap> scaled;
  scaled.reserve(items.size());
  LeftPairs pairs;
  for (const KeptItem& item : items) {
    if (!item.told) continue;
    scaled.push_back(item.left_by_reference);
    scaled.back().terms.front().weight = item.scale;
    pairs.emplace_back(&item.left, &scaled.back());
  }
  const LeftGap left(input, replays, std::move(pairs));
  return std::ranges::none_of(parted(left.gap()), std::identity());
}

std::optional<MatchedItem> hangs_on_kept(const BoundsInput& input, const MatchedReference& matched,
                                         const Asked& asked) {
  if (input.first_step_of_run || input.kept_before == KeptLeft::kApart) return {};
  const std::optional<KeptMatch> kept = match_kept(input, matched.before, {});
  const auto unexplained = [&](const Graph& graph, bool in_reference, const std::vector<NodeId>& foreign) {
    std::vector<NodeId> nodes;
    for (const KeptData& found : kept_data(graph, leaf_values(graph))) {
      const auto of = [&](const MatchedItem& item) {
        return item.in_reference == in_reference ? item.item == found.node : item.counterpart == found.node;
      };
      const auto told = [&](const KeptItem& item) {
        return item.told && (in_reference ? item.reference : item.target) == found.node;
      };
      const auto item = std::ranges::find_if(matched.before.items, of);
      if (std::ranges::find(foreign, found.node) == foreign.end() && item == matched.before.items.end())
        continue;                                                                             // Both hold it.
      if (item != matched.before.items.end() && item->evidence == Evidence::kKept) continue;  // missing_state.h
      if (!kept || std::ranges::none_of(kept->items, told)) nodes.push_back(found.node);
    }
    return nodes;
  };
  const std::vector<NodeId> ours = unexplained(*input.target, false, matched.before.foreign_data),
                            theirs = unexplained(*input.reference, true, matched.before.foreign_reference_data);
  if (ours.empty() && theirs.empty()) return {};
  const std::vector<bool> reached = taps_reached_by(ours, theirs, input, matched.pairs);
  const auto explained = [&](std::size_t tap) { return reached[tap]; };
  for (std::size_t p = 0; p < asked.probes.size(); ++p)
    if (asked.answers[p].failed() && std::ranges::none_of(asked.probes[p].parts, explained, &Probe::Part::tap))
      return {};
  for (const auto& [tap, answer] : asked.updates)
    if (answer.failed() && !explained(tap)) return {};
  return MatchedItem{Evidence::kNone, ours.empty(), (ours.empty() ? theirs : ours).front(), std::nullopt};
}

KeptLeft compare_kept(const BoundsInput& input, const PairReplays& replays, double scale) {
  const std::vector<Kept>&kept = input.target->kept, &kept_there = input.reference->kept;
  // It may be made in this step: of what the next one finds nothing is known.
  if (kept.empty() && kept_there.empty()) return replays.one_program ? KeptLeft::kAlike : KeptLeft::kUntold;
  if (replays.one_program) {  // Up to what its taps depend on.
    const auto same = [](const Kept& a, const Kept& b) {
      return a.leaf == b.leaf && a.left.terms[0].node == b.left.terms[0].node;
    };
    return std::ranges::equal(kept, kept_there, same) ? KeptLeft::kAlike : KeptLeft::kUntold;
  }
  const std::vector<KeptData> ours = kept_data(*input.target, replays.target_leaves),
                              theirs = kept_data(*input.reference, replays.reference_leaves);
  struct Beside {
    const KeptData *one, *other;
    double by;
  };
  std::vector<Beside> found;
  std::deque<GraphTap> scaled;
  LeftPairs pairs;
  for (const KeptData& one : ours)
    for (const KeptData& other : theirs) {
      if ((!one.written && !other.written) || one.content.count() != other.content.count()) continue;
      const bool same = bitwise_equal(one.content, other.content);
      for (const double times : std::set<double>{1, scale, scale * scale}) {
        if (!same && !may_be_near(one.content, other.content, times)) continue;
        const double by =
            same ? 0 : apart(one.content, weighted(static_cast<Array>(other.content), times)).get().relative();
        if (!(by < kFarthest)) continue;
        scaled.push_back(other.left);
        scaled.back().terms.front().weight = times;
        pairs.emplace_back(&one.left, &scaled.back());
        found.push_back({&one, &other, by});
      }
    }
  const LeftGap left(input, replays, std::move(pairs));
  const std::vector<bool> apart = parted(left.gap());
  std::map<const KeptData*, KeptLeft> least;  // Of what a program wrote, beside what the other found.
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [one, other, by] = found[i];
    const bool alike = by == 0 ? !apart[i] : left.gap().relative({i, i}) <= kGrowth * by;
    const KeptLeft how = alike                                       ? KeptLeft::kAlike
                         : by == 0 && one->written && other->written ? KeptLeft::kApart
                                                                     : KeptLeft::kUntold;
    for (const KeptData* const of : {one, other})
      if (of->written) least[of] = std::min(least.try_emplace(of, how).first->second, how);
  }
  KeptLeft most = KeptLeft::kAlike;
  for (const auto& [of, how] : least) most = std::max(most, how);
  return most;
}

}  // namespace plumbline
