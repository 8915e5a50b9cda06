#include "server/bound/updates.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "server/bound/elementwise.h"
#include "server/bound/interval.h"
#include "server/bound/taps.h"

namespace plumbline {
namespace {

bool is_one_node(const GraphTap& tap) { return tap.terms.size() == 1 && tap.terms[0].weight == 1; }

// The target's observed gradients, given to both programs. False: some gradient is not one node of both.
bool anchor_gradients(const Graph& target, const Graph& reference, const std::vector<PairedTap>& pairs,
                      Overrides* of_target, Overrides* of_reference) {
  const auto gradients = [](const Graph& graph) {
    return std::ranges::count(graph.taps, TapKind::kGradient, &GraphTap::kind);
  };
  std::ptrdiff_t found = 0;
  for (const PairedTap& pair : pairs) {
    const GraphTap &ours = target.taps[pair.target], &theirs = reference.taps[pair.reference];
    if (ours.kind != TapKind::kGradient) continue;
    ++found;
    if (!is_one_node(ours) || !is_one_node(theirs)) return false;
    const NodeId mine = ours.terms[0].node, other = theirs.terms[0].node;
    const Shape &shape = target.nodes[mine].shape, &other_shape = reference.nodes[other].shape;
    if (count(shape) != count(other_shape) || !all_finite(observed_value(ours))) return false;
    const LeafValue observed(ours.terms[0].format, ours.terms[0].observed, shape);
    (*of_target)[mine] = observed;
    (*of_reference)[other] = observed.reshape(other_shape);
  }
  return found > 0 && found == gradients(target) && found == gradients(reference);
}

// By node: it is a function of the anchors and of leaves alone. What anchors were computed from is not, nor what else
// was computed from it: that may be the gradient once more, but not the observed one. Views of leaves are leaves.
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
  OneFunction(const PairedSide& target, const PairedSide& reference, const std::vector<PairedTap>& pairs)
      : target_(target), reference_(reference), target_leaves_(by_node(target)), reference_leaves_(by_node(reference)) {
    for (const PairedTap& pair : pairs) {
      const GraphTap &ours = target.graph.taps[pair.target], &theirs = reference.graph.taps[pair.reference];
      if (ours.kind == TapKind::kGradient) known_[{ours.terms[0].node, theirs.terms[0].node}] = true;
    }
  }

  bool of(const GraphTap& ours, const GraphTap& theirs) {
    return std::ranges::equal(ours.terms, theirs.terms, [&](const GraphTap::Term& a, const GraphTap::Term& b) {
      return a.weight == b.weight && same(a.node, b.node);
    });
  }

 private:
  static std::map<NodeId, const LeafValue*> by_node(const PairedSide& side) {
    std::map<NodeId, const LeafValue*> leaves;
    for (std::size_t i = 0; i < side.graph.leaves.size(); ++i) leaves[side.graph.leaves[i].node] = &side.leaves[i];
    return leaves;
  }

  bool same(NodeId ours, NodeId theirs) {
    const auto known = known_.find({ours, theirs});
    if (known != known_.end()) return known->second;
    const Node &a = target_.graph.nodes[ours], &b = reference_.graph.nodes[theirs];
    bool result = a.primitive == b.primitive && a.shape == b.shape && a.attributes == b.attributes &&
                  a.result == b.result && a.compute == b.compute && a.inputs.size() == b.inputs.size();
    if (result && a.primitive == Primitive::kLeaf) {
      const LeafValue &mine = *target_leaves_.at(ours), &other = *reference_leaves_.at(theirs);
      result = mine && other && bitwise_equal(mine, other);
    }
    for (std::size_t i = 0; result && i < a.inputs.size(); ++i) result = same(a.inputs[i], b.inputs[i]);
    return known_[{ours, theirs}] = result;
  }

  const PairedSide &target_, &reference_;
  const std::map<NodeId, const LeafValue*> target_leaves_, reference_leaves_;
  std::map<std::pair<NodeId, NodeId>, bool> known_;
};

// Values and radii of a tap's terms.
struct Terms {
  std::vector<Array> values;
  std::vector<Bound> radii;
};

struct Compared {
  const GraphTap &target, &reference;

  // Elements from `begin` on. A sum of n terms, each times its weight, is off by less than 2 n u of its terms.
  Elementwise elements(std::int64_t begin, const Terms& ours, const Terms& theirs) const {
    const Array t = sum_of_terms(target, ours.values).materialize();
    const Array r = sum_of_terms(reference, theirs.values).materialize();
    std::vector<double> radii(static_cast<std::size_t>(r.count()), 0.0);
    add_radii(target, ours, &radii);
    add_radii(reference, theirs, &radii);
    const std::vector<double> none(radii.size(), 0.0);
    Elementwise found;
    found.look_at(begin, r.count(), r.data(), t.data(), radii.data(), none.data(), 1);
    return found;
  }

  static void add_radii(const GraphTap& tap, const Terms& terms, std::vector<double>* radii) {
    const double u = is_one_node(tap) ? 0 : 2 * static_cast<double>(tap.terms.size()) * 0x1p-53;
    for (std::size_t k = 0; k < tap.terms.size(); ++k) {
      const double weight = std::fabs(tap.terms[k].weight);
      const Array values = terms.values[k].materialize();
      const Array own = terms.radii[k] ? terms.radii[k].values.materialize() : Array();
      for (std::size_t i = 0; i < radii->size(); ++i)
        (*radii)[i] += weight * ((own ? own.data()[i] : 0) + u * std::fabs(values.data()[i]));
    }
  }
};

// Taps that share a stretch in both programs, or one tap by itself.
struct Group {
  std::vector<std::size_t> members;  // Indices of pairs.
  std::optional<Stretch> target, reference;
};

bool lost(const GraphTap& tap, const Stretch& stretch, const std::vector<bool>& exploded, std::size_t* end) {
  bool any = false;
  for (std::size_t k = 0; k < tap.terms.size(); ++k) any = any || exploded[stretch.ends[(*end)++]];
  return any;
}

Terms terms_of(const GraphTap& tap, const Stretch& stretch, const EnclosedStretch::Enclosed& found, std::size_t* end) {
  Terms terms;
  for (std::size_t k = 0; k < tap.terms.size(); ++k, ++*end) {
    terms.values.push_back(found.tile.values[stretch.ends[*end]]);
    terms.radii.push_back(found.radii[stretch.ends[*end]]);
  }
  return terms;
}

// Empty: exploded.
std::optional<Terms> terms_of(const GraphTap& tap, const Replay& anchored, Enclosures* enclosures) {
  Terms terms;
  for (const GraphTap::Term& term : tap.terms) {
    const Enclosure enclosure = enclosures->take(term.node);
    if (enclosure.exploded) return std::nullopt;
    terms.values.push_back(anchored.computed(term.node));
    terms.radii.push_back(enclosure.radius);
  }
  return terms;
}

}  // namespace

std::map<std::size_t, Answer> compare_updates(const PairedSide& target, const PairedSide& reference,
                                              const std::vector<PairedTap>& pairs,
                                              const std::vector<std::size_t>& updates) {
  Overrides target_anchors, reference_anchors;
  if (updates.empty() || !anchor_gradients(target.graph, reference.graph, pairs, &target_anchors, &reference_anchors))
    return {};
  const Replay ours = replay(target.graph, target.leaves, Precision::kExact, target_anchors, &target.exact);
  const Replay theirs =
      replay(reference.graph, reference.leaves, Precision::kExact, reference_anchors, &reference.exact);
  const auto compared = [&](std::size_t pair) {
    return Compared{target.graph.taps[pairs[pair].target], reference.graph.taps[pairs[pair].reference]};
  };

  const std::vector<bool> ours_beyond = beyond_anchors(target.graph, target_anchors),
                          theirs_beyond = beyond_anchors(reference.graph, reference_anchors);
  OneFunction one_function(target, reference, pairs);
  std::map<std::size_t, Elementwise> found;
  std::vector<std::size_t> asked;
  std::vector<std::vector<NodeId>> ends;
  for (std::size_t pair : updates) {
    const Compared one = compared(pair);
    const auto beyond = [](const std::vector<bool>& is) { return [&is](NodeId node) { return bool{is[node]}; }; };
    if (!std::ranges::all_of(nodes_of(one.target), beyond(ours_beyond)) ||
        !std::ranges::all_of(nodes_of(one.reference), beyond(theirs_beyond)))
      continue;
    if (one_function.of(one.target, one.reference)) {
      found[pair] = {};
      continue;
    }
    asked.push_back(pair);
    ends.push_back(nodes_of(one.target));
  }
  std::vector<Group> groups;
  for (StretchGroup& shared :
       group_ends(target.graph, ends, [&](NodeId id) { return target_anchors.count(id) != 0; })) {
    std::vector<std::size_t> members;
    std::vector<NodeId> other;
    for (std::size_t index : shared.members) {
      members.push_back(asked[index]);
      std::ranges::copy(nodes_of(compared(asked[index]).reference), std::back_inserter(other));
    }
    std::optional<Stretch> stretch;
    if (shared.stretch)
      stretch = stretch_before(reference.graph, other, [&](NodeId id) { return reference_anchors.count(id) != 0; });
    if (stretch)
      groups.push_back({members, std::move(shared.stretch), std::move(stretch)});
    else
      for (std::size_t member : members) groups.push_back({{member}, {}, {}});
  }

  std::vector<NodeId> our_nodes, their_nodes;
  const auto append = [](std::vector<NodeId>* to, const std::vector<NodeId>& nodes) {
    to->insert(to->end(), nodes.begin(), nodes.end());
  };
  for (const Group& group : groups) {
    const Compared one = compared(group.members.front());
    append(&our_nodes,
           group.target ? enclosed_sources(target.graph, *group.target, target_anchors) : nodes_of(one.target));
    append(&their_nodes, group.reference ? enclosed_sources(reference.graph, *group.reference, reference_anchors)
                                         : nodes_of(one.reference));
  }
  Enclosures our_radii(target.graph, ours, our_nodes, nullptr, target_anchors);
  Enclosures their_radii(reference.graph, theirs, their_nodes, nullptr, reference_anchors);

  for (const Group& group : groups) {
    if (!group.target) {
      const Compared one = compared(group.members.front());
      const std::optional<Terms> mine = terms_of(one.target, ours, &our_radii);
      const std::optional<Terms> other = terms_of(one.reference, theirs, &their_radii);
      if (mine && other) found[group.members.front()] = one.elements(0, *mine, *other);
      continue;
    }
    EnclosedStretch mine(*group.target, &our_radii), other(*group.reference, &their_radii);
    std::vector<std::vector<Elementwise>> parts(static_cast<std::size_t>(count_tiles(*group.target)));
    for_each_index(count_tiles(*group.target), [&](std::int64_t index) {
      const EnclosedStretch::Enclosed t = mine.tile(index), r = other.tile(index);
      std::size_t our_end = 0, their_end = 0;
      for (std::size_t member : group.members) {
        const Compared one = compared(member);
        const Terms a = terms_of(one.target, *group.target, t, &our_end);
        const Terms b = terms_of(one.reference, *group.reference, r, &their_end);
        parts[static_cast<std::size_t>(index)].push_back(one.elements(t.tile.begin, a, b));
      }
    });
    const std::vector<bool> our_lost = mine.exploded(), their_lost = other.exploded();
    std::size_t our_end = 0, their_end = 0;
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      const Compared one = compared(group.members[i]);
      const bool lost_here = lost(one.target, *group.target, our_lost, &our_end);
      if (lost(one.reference, *group.reference, their_lost, &their_end) || lost_here) continue;
      Elementwise& whole = found[group.members[i]];
      for (const std::vector<Elementwise>& part : parts) whole.join(part[i]);
    }
  }
  std::map<std::size_t, Answer> answers;
  for (const auto& [pair, elements] : found) {
    const Answer answer = elements.answer(target.graph.taps[pairs[pair].target].scale);
    if (elements.finite && !answer.vacuous()) answers[pair] = answer;
  }
  return answers;
}

}  // namespace plumbline
