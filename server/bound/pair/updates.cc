#include "server/bound/pair/updates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "kernels/operations.h"
#include "server/bound/enclose/elementwise.h"
#include "server/bound/enclose/enclosed_tap.h"
#include "server/bound/match/readings.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

bool is_one_node(const GraphTap& tap) { return tap.terms.size() == 1 && tap.terms[0].weight == 1; }

// The target's observed gradients, given to both programs.
struct Anchors {
  Overrides target, reference;
  std::set<std::pair<NodeId, NodeId>> equal;  // Nodes that were given the same; others hold it scaled.
};

// A gradient that one side holds scaled (a loss scale) is scaled for the other by what their taps say, a power of two.
// Empty: some gradient is not one node of both.
std::optional<Anchors> anchor_gradients(const Graph& target, const Graph& reference,
                                        const std::vector<PairedTap>& pairs) {
  const auto gradients = [](const Graph& graph) {
    return std::ranges::count_if(
        graph.taps, [](const GraphTap& tap) { return tap.kind == TapKind::kGradient && !is_other_reading(tap.name); });
  };
  Anchors anchors;
  std::ptrdiff_t found = 0;
  for (const PairedTap& pair : pairs) {
    const GraphTap &ours = target.taps[pair.target], &theirs = reference.taps[pair.reference];
    if (ours.kind != TapKind::kGradient) continue;
    ++found;
    if (ours.terms.size() != 1 || theirs.terms.size() != 1) return std::nullopt;
    const NodeId mine = ours.terms[0].node, other = theirs.terms[0].node;
    const Shape &shape = target.nodes[mine].shape, &other_shape = reference.nodes[other].shape;
    const double ratio = ours.terms[0].weight / theirs.terms[0].weight;
    int exponent = 0;
    if (count(shape) != count(other_shape) || std::frexp(ratio, &exponent) != 0.5 || !all_finite(observed_value(ours)))
      return std::nullopt;
    const LeafValue observed(ours.terms[0].format, ours.terms[0].observed, shape);
    anchors.target[mine] = observed;
    if (ratio == 1) {
      anchors.reference[other] = observed.reshape(other_shape);
      anchors.equal.emplace(mine, other);
    } else {
      Array scaled = Array::uninitialized(other_shape);
      current_operations().scale(scaled, ratio, static_cast<Array>(observed).reshape(other_shape));
      anchors.reference[other] = scaled;
    }
  }
  if (found == 0 || found != gradients(target) || found != gradients(reference)) return std::nullopt;
  return anchors;
}

// Tells of each node whether it is a function of the anchors and of leaves alone. What anchors were computed from is
// not, nor what else was computed from it: that may be the gradient once more, but not the observed one. Views of
// leaves are leaves.
std::vector<bool> beyond_anchors(const Graph& graph, const Overrides& anchors) {
  std::vector<NodeId> nodes;
  for (const auto& [node, value] : anchors) nodes.push_back(node);
  const std::vector<bool> before = ancestors(graph, nodes);
  std::vector<bool> given(graph.nodes.size(), false), beyond(graph.nodes.size(), true);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    given[id] = node.inputs.empty() || (node.primitive == Primitive::kWindow && given[node.inputs[0]]);
    if (anchors.count(id) == 0)
      beyond[id] =
          given[id] || (!before[id] && std::ranges::all_of(node.inputs, [&](NodeId input) { return beyond[input]; }));
  }
  return beyond;
}

// Whether nodes of the two programs are one function of the anchors and of leaves of one content.
class OneFunction {
 public:
  OneFunction(const PairedSide& target, const PairedSide& reference, const Anchors& anchors)
      : target_(target),
        reference_(reference),
        anchors_(anchors),
        target_leaves_(by_node(target)),
        reference_leaves_(by_node(reference)),
        same_(anchors.equal) {}

  bool of(const GraphTap& ours, const GraphTap& theirs) {
    return std::ranges::equal(ours.terms, theirs.terms, [&](const GraphTap::Term& a, const GraphTap::Term& b) {
      return a.weight == b.weight && of(a.node, b.node);
    });
  }

 private:
  using Pair = std::pair<NodeId, NodeId>;

  static std::map<NodeId, const LeafValue*> by_node(const PairedSide& side) {
    std::map<NodeId, const LeafValue*> leaves;
    for (std::size_t i = 0; i < side.graph.leaves.size(); ++i) leaves[side.graph.leaves[i].node] = &side.leaves[i];
    return leaves;
  }

  bool of(NodeId ours, NodeId theirs) {
    std::set<Pair> seen;
    std::vector<Pair> open{{ours, theirs}};
    while (!open.empty()) {
      const Pair pair = open.back();
      open.pop_back();
      if (same_.count(pair) != 0 || !seen.insert(pair).second) continue;
      if (anchors_.target.count(pair.first) != 0 || anchors_.reference.count(pair.second) != 0) return false;
      const Node &a = target_.graph.nodes[pair.first], &b = reference_.graph.nodes[pair.second];
      if (a.primitive != b.primitive || a.shape != b.shape || a.attributes != b.attributes || a.result != b.result ||
          a.compute != b.compute || a.inputs.size() != b.inputs.size())
        return false;
      if (a.primitive == Primitive::kLeaf) {
        const LeafValue &mine = *target_leaves_.at(pair.first), &other = *reference_leaves_.at(pair.second);
        if (!mine || !other || !bitwise_equal(mine, other)) return false;
      }
      for (std::size_t i = 0; i < a.inputs.size(); ++i) open.emplace_back(a.inputs[i], b.inputs[i]);
    }
    same_.merge(seen);
    return true;
  }

  const PairedSide &target_, &reference_;
  const Anchors& anchors_;
  const std::map<NodeId, const LeafValue*> target_leaves_, reference_leaves_;
  std::set<Pair> same_;
};

struct Compared {
  const GraphTap &target, &reference;

  Comparison elements(std::int64_t begin, const EnclosedTap& ours, const EnclosedTap& theirs) const {
    Comparison found = compare(terms_of(reference, theirs), terms_of(target, ours), theirs.values.front().count(), 1);
    found.element += static_cast<std::uint64_t>(begin);
    return found;
  }

  // A sum of n terms, each times its weight, is off by less than 2 n u of its terms.
  static std::vector<ComparedTerm> terms_of(const GraphTap& tap, const EnclosedTap& enclosed) {
    std::vector<ComparedTerm> terms;
    for (std::size_t k = 0; k < tap.terms.size(); ++k) {
      terms.push_back(enclosed.term(k, tap.terms[k].weight));
      terms.back().own = is_one_node(tap) ? 0 : 2 * static_cast<double>(tap.terms.size()) * 0x1p-53;
    }
    return terms;
  }
};

// One program, computing from the anchors on.
struct Side {
  const Graph& graph;
  const Overrides& anchors;
  const Replay anchored;
  const std::vector<bool> beyond;

  Side(const PairedSide& side, const Overrides& given)
      : graph(side.graph),
        anchors(given),
        anchored(replay(graph, side.leaves, Precision::kExact, anchors, &side.exact)),
        beyond(beyond_anchors(graph, anchors)) {}

  // A state that is the gradient itself, as momentum is at first, is asked as gradients are.
  bool is_beyond(const GraphTap& tap) const {
    return std::ranges::all_of(nodes_of(tap), [&](NodeId node) { return beyond[node] && anchors.count(node) == 0; });
  }
  std::function<bool(NodeId)> stop() const {
    return [this](NodeId id) { return anchors.count(id) != 0; };
  }
  // What a comparison of `tap`, or of all ends of a chain, takes of the enclosures.
  void want(const GraphTap& tap, const std::optional<TiledChain>& chain, std::vector<NodeId>* wanted) const {
    const std::vector<NodeId> nodes = chain ? enclosed_sources(graph, *chain, anchors) : nodes_of(tap);
    wanted->insert(wanted->end(), nodes.begin(), nodes.end());
  }
};

// Taps that share a chain in both programs, or one tap by itself.
struct Group {
  std::vector<std::size_t> members;  // Indices of pairs.
  std::optional<TiledChain> target, reference;
};

// There is a comparison for each member; it is empty where an enclosure exploded.
std::vector<std::optional<Comparison>> compare_chains(const Group& group, const std::vector<Compared>& taps,
                                                      Enclosures* of_target, Enclosures* of_reference) {
  EnclosedChain ours(*group.target, of_target), theirs(*group.reference, of_reference);
  const std::int64_t tiles = count_tiles(*group.target);
  std::vector<std::vector<Comparison>> parts(static_cast<std::size_t>(tiles));
  for_each_index(tiles, [&](std::int64_t index) {
    const Tile t = ours.tile(index), r = theirs.tile(index);
    ChainEnds our_ends(*group.target), their_ends(*group.reference);
    for (const Compared& tap : taps)
      parts[static_cast<std::size_t>(index)].push_back(
          tap.elements(t.begin, our_ends.tap(tap.target, t), their_ends.tap(tap.reference, r)));
  });
  ChainEnds our_ends(*group.target), their_ends(*group.reference);
  const std::vector<bool> our_exploded = ours.exploded(), their_exploded = theirs.exploded();
  std::vector<std::optional<Comparison>> found;
  for (std::size_t i = 0; i < taps.size(); ++i) {
    Comparison whole;
    for (const std::vector<Comparison>& part : parts) whole.join(part[i]);
    const bool ours_lost = our_ends.lost(taps[i].target, our_exploded);
    const bool theirs_lost = their_ends.lost(taps[i].reference, their_exploded);
    found.push_back(ours_lost || theirs_lost ? std::nullopt : std::optional(whole));
  }
  return found;
}

}  // namespace

std::map<std::size_t, Answer> compare_updates(const PairedSide& target, const PairedSide& reference,
                                              const std::vector<PairedTap>& pairs,
                                              const std::vector<std::size_t>& updates) {
  if (updates.empty()) return {};
  const std::optional<Anchors> anchors = anchor_gradients(target.graph, reference.graph, pairs);
  if (!anchors) return {};
  const Side ours(target, anchors->target), theirs(reference, anchors->reference);
  const auto compared = [&](std::size_t pair) {
    return Compared{target.graph.taps[pairs[pair].target], reference.graph.taps[pairs[pair].reference]};
  };

  OneFunction one_function(target, reference, *anchors);
  std::map<std::size_t, Comparison> found;
  std::vector<std::size_t> asked;
  std::vector<std::vector<NodeId>> ends;
  for (std::size_t pair : updates) {
    const Compared one = compared(pair);
    if (!ours.is_beyond(one.target) || !theirs.is_beyond(one.reference)) continue;
    if (one_function.of(one.target, one.reference)) {
      found[pair] = {};
      continue;
    }
    asked.push_back(pair);
    ends.push_back(nodes_of(one.target));
  }

  std::vector<Group> groups;
  std::vector<NodeId> our_nodes, their_nodes;
  for (ChainGroup& shared : group_ends(target.graph, ends, ours.stop())) {
    Group group{{}, std::move(shared.chain), {}};
    std::vector<NodeId> others;
    for (std::size_t index : shared.members) {
      group.members.push_back(asked[index]);
      std::ranges::copy(nodes_of(compared(asked[index]).reference), std::back_inserter(others));
    }
    if (group.target) group.reference = chain_before(reference.graph, others, theirs.stop());
    if (group.reference)
      groups.push_back(std::move(group));
    else
      for (std::size_t member : group.members) groups.push_back({{member}, {}, {}});
  }
  for (const Group& group : groups) {
    const Compared first = compared(group.members.front());
    ours.want(first.target, group.target, &our_nodes);
    theirs.want(first.reference, group.reference, &their_nodes);
  }

  Enclosures our_radii(target.graph, ours.anchored, our_nodes, nullptr, ours.anchors);
  Enclosures their_radii(reference.graph, theirs.anchored, their_nodes, nullptr, theirs.anchors);
  for (const Group& group : groups) {
    std::vector<Compared> taps;
    for (std::size_t member : group.members) taps.push_back(compared(member));
    if (!group.target) {
      const std::optional<EnclosedTap> t = enclosed_tap(taps[0].target, ours.anchored, &our_radii),
                                       r = enclosed_tap(taps[0].reference, theirs.anchored, &their_radii);
      if (t && r) found[group.members[0]] = taps[0].elements(0, *t, *r);
      continue;
    }
    const auto elements = compare_chains(group, taps, &our_radii, &their_radii);
    for (std::size_t i = 0; i < elements.size(); ++i)
      if (elements[i]) found[group.members[i]] = *elements[i];
  }
  std::map<std::size_t, Answer> answers;
  for (const auto& [pair, elements] : found) {
    const Answer answer = answer_of(elements, target.graph.taps[pairs[pair].target]);
    if (elements.finite && !answer.vacuous()) answers[pair] = answer;
  }
  return answers;
}

}  // namespace plumbline
