#include "server/bound/findings/localize.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "kernels/sums.h"
#include "server/bound/findings/unread.h"
#include "server/bound/pair/agreement.h"

namespace plumbline {
namespace {

// So much is remembered of where differing nodes begin; beyond that the first of them stands for all.
constexpr std::size_t kHistoryMax = 1 << 22;

// Sums, and what moves or regroups their terms.
bool additive(Primitive primitive) {
  switch (primitive) {
    case Primitive::kSum:
    case Primitive::kAdd:
    case Primitive::kSub:
    case Primitive::kNeg:
    case Primitive::kMatmul:
    case Primitive::kScatterAdd:
    case Primitive::kAssemble:
    case Primitive::kWindow:
    case Primitive::kGatherRows:
    case Primitive::kCast:
    case Primitive::kCumsum:
      return true;
    default:
      return false;
  }
}

bool adds(Primitive primitive) {
  return primitive == Primitive::kAdd || primitive == Primitive::kSub || primitive == Primitive::kSum;
}

bool is_scaling(Primitive primitive) { return primitive == Primitive::kMul || primitive == Primitive::kDiv; }

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", x);
  return text;
}

// Whether it takes something from outside that the other program does not know: what made that is not in the trace.
bool takes_foreign(const LocalizeSide& side, NodeId id, const KnownValues& other) {
  const auto foreign = [&](NodeId input) {
    while (side.graph.nodes[input].primitive == Primitive::kWindow) input = side.graph.nodes[input].inputs[0];
    const Node& node = side.graph.nodes[input];
    return node.primitive == Primitive::kLeaf && other.of(node, side.replay.value(input)) == Agreement::kDiffers;
  };
  return std::ranges::any_of(side.graph.nodes[id].inputs, foreign);
}

bool equal(const Array& a, const Array& b) {
  return a.count() == b.count() && norm2_difference(a, b) <= 1e-10 * norm2(b);
}

// Whether both do the same with operands of the same shapes.
bool same_operation(const Graph& a, NodeId node_a, const Graph& b, NodeId node_b) {
  const Node &x = a.nodes[node_a], &y = b.nodes[node_b];
  const auto alike = [&](NodeId i, NodeId j) { return a.nodes[i].shape == b.nodes[j].shape; };
  return x.primitive == y.primitive && x.shape == y.shape && a.origins[x.origin].op == b.origins[y.origin].op &&
         std::ranges::equal(x.inputs, y.inputs, alike);
}

bool same_operands(const LocalizeSide& a, NodeId node_a, const LocalizeSide& b, NodeId node_b) {
  const std::vector<NodeId>&left = a.graph.nodes[node_a].inputs, &right = b.graph.nodes[node_b].inputs;
  return left.size() > 1 && std::equal(left.begin(), left.end(), right.begin(), right.end(),
                                       [&](NodeId x, NodeId y) { return equal(a.replay.value(x), b.replay.value(y)); });
}

// A part that is taken of what came from outside: data that the other program does not read is not an operation of its
// that was left out.
bool reads_leaf(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  return node.primitive == Primitive::kWindow && graph.nodes[node.inputs[0]].primitive == Primitive::kLeaf;
}

// The search on one side, given what is known of the other.
class Search {
 public:
  Search(const LocalizeSide& side, const KnownValues& other) : side_(side), graph_(side.graph), other_(other) {
    for (const Draw& draw : graph_.draws) draws_.insert(draw.leaf);
  }

  // The suspect, if any value on the way to the failing tap differs.
  std::optional<Suspicion> run() {
    const std::optional<NodeId> first = first_guilty();
    if (!first) return std::nullopt;
    const Node& node = graph_.nodes[*first];
    if (draws_.count(*first) != 0) return Suspicion{*first, "it draws from a distribution of its own"};
    if (is_scaling(node.primitive) && !known_scaling(node)) {
      const std::size_t scale = scaling_input(graph_, node);
      const NodeId by = node.inputs[scale], scaled = node.inputs[1 - scale];
      if (agreement(scaled) == Agreement::kAgrees && !made_within(by, node) &&
          (count(graph_.nodes[by].shape) == 1 || count(graph_.nodes[by].shape) < count(graph_.nodes[scaled].shape)))
        return unknown_scaling(*first, by);
    }
    return Suspicion{origin_of_difference(*first, innocent(node)),
                     "its inputs agree with the reference's values, its result does not"};
  }

  // The same where the failing tap differs by less than a fingerprint shows: only a scaling that the other program
  // lacks is certain then.
  std::optional<Suspicion> run_on_small_difference() {
    for (NodeId id : side_.failing)
      if (!graph_.nodes[id].inputs.empty()) agreements_[id] = Agreement::kDiffers;
    const std::optional<Suspicion> found = run();
    return found && found->normalisation ? found : std::nullopt;
  }

  // Whether the suspect is one of several places where values begin to differ, with nothing to tell them apart.
  bool ambiguous() const { return ambiguous_; }

  // The first operation that makes something else of `value`, on the way to the failing tap: of what the other program
  // does not have, where it has not all of it.
  std::optional<NodeId> departure_from(const Array& value, bool others_lack) {
    std::vector<NodeId> open = side_.failing;
    std::set<NodeId> seen(open.begin(), open.end()), departures;
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (NodeId input : graph_.nodes[id].inputs) {
        if (equal(side_.replay.value(input), value))
          departures.insert(id);
        else if (seen.insert(input).second)
          open.push_back(input);
      }
    }
    for (NodeId id : departures)
      if (others_lack ? agreement(id) == Agreement::kDiffers : !equal(side_.replay.value(id), value)) return id;
    return std::nullopt;
  }

  // How many operations lie between `departure` and the one that `node` of the program `other` is, here on a value that
  // descends from `departure`: a small number says that the other program lacks what happens at `departure`. Nothing:
  // there is no such operation.
  std::optional<int> steps_until(NodeId departure, const LocalizeSide& other, NodeId node) const {
    const Node& wanted = other.graph.nodes[node];
    // For each node that descends from it, the guilty operations on the shortest way.
    std::map<NodeId, int> steps{{departure, 0}};
    std::optional<int> fewest;
    for (NodeId id = departure + 1; id < graph_.nodes.size(); ++id) {
      const Node& mine = graph_.nodes[id];
      if (!side_.replay.has(id)) continue;
      std::optional<int> before;
      for (NodeId input : mine.inputs)
        if (const auto known = steps.find(input); known != steps.end())
          before = before ? std::min(*before, known->second) : known->second;
      if (!before) continue;
      steps[id] = *before + (innocent(mine) && mine.primitive != Primitive::kMatmul ? 0 : 1);
      if ((fewest && *before >= *fewest) || !same_operation(graph_, id, other.graph, node)) continue;
      bool same = true;
      for (std::size_t i = 0; i < mine.inputs.size(); ++i)
        same = same && (steps.count(mine.inputs[i]) != 0 ||
                        equal(side_.replay.value(mine.inputs[i]), other.replay.value(wanted.inputs[i])));
      if (same) fewest = *before;
    }
    return fewest;
  }

 private:
  // Zero and minus infinity by a condition that the other program has are another way to fill by it.
  Agreement agreement(NodeId id) {
    std::vector<NodeId> masks;  // They agree if the condition of the last of them does.
    for (;; id = graph_.nodes[id].inputs[0]) {
      const auto [known, fresh] = agreements_.try_emplace(id, Agreement::kAgrees);
      if (fresh) known->second = by_value(id);
      if (!fresh || known->second != Agreement::kDiffers || !is_additive_mask(graph_.nodes[id])) break;
      masks.push_back(id);
    }
    Agreement found = agreements_.at(id);
    for (auto mask = masks.rbegin(); mask != masks.rend(); ++mask) {
      if (found == Agreement::kAgrees) agreements_[*mask] = found;
      found = agreements_[*mask];
    }
    return found;
  }

  Agreement by_value(NodeId id) {
    const Node& node = graph_.nodes[id];
    const Array& value = side_.replay.value(id);
    // Leaves are shared, but for a draw that was moved to another distribution.
    const bool compared = node.primitive != Primitive::kLeaf || draws_.count(id) != 0;
    return compared && value ? other_.of(node, value) : Agreement::kAgrees;
  }

  bool is_additive_mask(const Node& node) {
    if (node.primitive != Primitive::kSelect) return false;
    const auto number = [&](std::size_t input, double wanted) {
      const Array& value = side_.replay.value(node.inputs[input]);
      return value && value.count() == 1 && value.materialize().item() == wanted;
    };
    return (number(1, 0) && number(2, -HUGE_VAL)) || (number(1, -HUGE_VAL) && number(2, 0));
  }

  bool known_scaling(const Node& node) const {
    const Array& scale = side_.replay.value(node.inputs[scaling_input(graph_, node)]);
    return node.primitive == Primitive::kDiv ? other_.is_divisor(scale) : other_.is_factor(scale);
  }

  // Whether an operation scales by what it works out itself, as elimination does by its pivots: that differs where the
  // operation's inputs do, and nobody wrote it down.
  bool made_within(NodeId scale, const Node& by) const {
    return !graph_.nodes[scale].inputs.empty() && graph_.nodes[scale].origin == by.origin;
  }

  bool innocent(const Node& node) const {
    return additive(node.primitive) || (is_scaling(node.primitive) && known_scaling(node));
  }

  // First operation that cannot be innocent among those from which the failing tap is reached by differing values; the
  // tap's own node if all are innocent.
  std::optional<NodeId> first_guilty() {
    std::vector<NodeId> open;
    std::set<NodeId> reached;
    auto reach = [&](NodeId id) {
      if (agreement(id) == Agreement::kDiffers && reached.insert(id).second) open.push_back(id);
    };
    for (NodeId id : side_.failing) reach(id);
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (NodeId input : graph_.nodes[id].inputs) reach(input);
    }
    for (NodeId id : reached)
      if (draws_.count(id) != 0 || (!graph_.nodes[id].inputs.empty() && !innocent(graph_.nodes[id]))) return id;
    for (NodeId id : side_.failing)
      if (reached.count(id)) return id;
    return std::nullopt;
  }

  // Goes back from `node` to where values begin to differ: to the beginnings in its history, differing nodes all of
  // whose inputs agree.
  NodeId origin_of_difference(NodeId node, bool all_innocent) {
    std::map<NodeId, std::set<NodeId>> history;  // Beginnings that each differing node descends from.
    std::vector<NodeId> open{node};
    std::set<NodeId> differing{node};
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (NodeId input : graph_.nodes[id].inputs)
        if (agreement(input) != Agreement::kAgrees && differing.insert(input).second) open.push_back(input);
    }
    std::size_t held = 0;
    for (NodeId id : differing) {  // In topological order.
      if (held > kHistoryMax) return *differing.begin();
      std::set<NodeId>& from = history[id];
      for (NodeId input : graph_.nodes[id].inputs)
        if (const auto known = history.find(input); known != history.end())
          from.insert(known->second.begin(), known->second.end());
      if (from.empty()) from.insert(id);
      held += from.size();
    }
    const std::set<NodeId>& all = history[node];
    const auto same_line = [&](NodeId id) { return source(id) == source(*all.begin()); };
    if (!all_innocent && std::all_of(all.begin(), all.end(), same_line)) return *all.begin();
    // Partial results meet in a sum: the sum is what does not come out.
    for (NodeId id : all)
      if (is_scaling(graph_.nodes[id].primitive) && !known_scaling(graph_.nodes[id])) return id;
    for (NodeId id : differing)
      if (history[id].size() == all.size()) {
        if (adds(graph_.nodes[id].primitive)) return id;
        break;
      }
    ambiguous_ = true;
    return *all.begin();
  }

  const std::string& source(NodeId id) const { return graph_.origins[graph_.nodes[id].origin].source; }

  Suspicion unknown_scaling(NodeId id, NodeId scale) const {
    const Array& by = side_.replay.value(scale);
    const std::string how = graph_.nodes[id].primitive == Primitive::kDiv ? "divides by " : "multiplies by ";
    const std::string what = by.count() == 1 ? number(by.materialize().item()) : std::string("values");
    return {id, how + what + ", which the reference never does", true};
  }

  const LocalizeSide& side_;
  const Graph& graph_;
  const KnownValues& other_;
  std::set<NodeId> draws_;
  std::map<NodeId, Agreement> agreements_;
  bool ambiguous_ = false;
};

std::string place(const Graph& graph, NodeId id) {
  const Origin& origin = graph.origins[graph.nodes[id].origin];
  return origin.op + (origin.source.empty() ? "" : " (" + origin.source + ")");
}

Suspicion most_suspect(const LocalizeSide& target, const LocalizeSide& reference) {
  const KnownValues targets(target.graph, target.replay), references(reference.graph, reference.replay);
  Search in_target(target, references), in_reference(reference, targets);
  const std::optional<Suspicion> lacking = in_reference.run();
  std::optional<Suspicion> suspicion = in_target.run();
  if (!suspicion) suspicion = in_target.run_on_small_difference();
  if (!suspicion && target.failing.size() == 1)
    if (const auto departure =
            in_reference.departure_from(target.replay.value(target.failing.front()), lacking.has_value()))
      return {*departure, "the reference does this, and the target nothing in its place", false, true};
  if (!suspicion && !lacking)
    return {target.failing.front(), "everything before it agrees with the reference up to the grouping of sums"};
  if (!suspicion) return {lacking->node, "the reference does this, and the target nothing in its place", false, true};
  if (!lacking || suspicion->normalisation) return *suspicion;
  // Each may go on with the other's operation: the one that does so sooner does something before it. The same operands
  // would mean that the target does one thing in place of the other.
  const std::optional<int> theirs = in_reference.steps_until(lacking->node, target, suspicion->node),
                           ours = in_target.steps_until(suspicion->node, reference, lacking->node);
  const bool left_out = !reads_leaf(reference.graph, lacking->node) &&
                        !takes_foreign(target, suspicion->node, references) && theirs && (!ours || *theirs < *ours) &&
                        !same_operands(target, suspicion->node, reference, lacking->node);
  if (left_out || (in_target.ambiguous() && !in_reference.ambiguous()))
    return {lacking->node,
            "the reference does this, and the target goes on without it with " + place(target.graph, suspicion->node),
            false, true};
  suspicion->detail += "; the reference has " + place(reference.graph, lacking->node) + " there";
  return *suspicion;
}

}  // namespace

Suspicion localize(const LocalizeSide& target, const LocalizeSide& reference) {
  const std::optional<Unread> unread = unread_data(target, reference);
  if (unread && unread->part) return {*unread->part, unread->told, false, unread->in_reference};
  Suspicion suspicion = most_suspect(target, reference);
  if (unread) suspicion.detail += "; " + unread->told;
  return suspicion;
}

std::optional<NodeId> departure(const LocalizeSide& with, const LocalizeSide& without) {
  const KnownValues others(without.graph, without.replay);
  const std::optional<Suspicion> found = Search(with, others).run();
  return found ? std::optional(found->node) : std::nullopt;
}

}  // namespace plumbline
