#include "server/bound/match/computed.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "server/bound/enclose/interval.h"

namespace plumbline {
namespace {

constexpr std::int64_t kElementsMax = 1 << 24;  // A node with more elements is compared with no item.
// No enclosure of a few roundings exceeds this share of an element and of the values' size.
constexpr double kNear = 0x1p-6;

// What consumers read of an item: the leaf's node itself, a window on it, or rows of it.
struct View {
  NodeId leaf = 0, node = 0;
  Format format = Format::kFloat32;
};

bool is_view(const Node& node) {
  return node.primitive == Primitive::kWindow || node.primitive == Primitive::kGatherRows;
}

std::vector<View> views_of(const Graph& graph, const std::set<NodeId>& items) {
  std::vector<View> views;
  std::map<NodeId, NodeId> leaf_of;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (items.count(id) != 0) {
      leaf_of[id] = id;
    } else if (is_view(node)) {
      const auto of = leaf_of.find(node.inputs[0]);
      if (of != leaf_of.end()) leaf_of[id] = of->second;
    }
    if (const auto of = leaf_of.find(id); of != leaf_of.end()) views.push_back({of->second, id, node.result});
  }
  return views;
}

// Not an item itself, nor a window on one.
bool computed(const Graph& graph, NodeId id) {
  while (graph.nodes[id].primitive == Primitive::kWindow) id = graph.nodes[id].inputs[0];
  return graph.nodes[id].primitive > Primitive::kConstant;
}

bool near(const Array& item, const Array& value, double size) {
  for (std::int64_t i = 0; i < item.count(); ++i) {
    const double x = item.data()[i], m = value.data()[i];
    if (x != m && !(std::fabs(x - m) <= kNear * (std::fabs(m) + size))) return false;
  }
  return true;
}

double root_mean_square(const Array& x) {
  double squares = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) squares += x.data()[i] * x.data()[i];
  return x.count() == 0 ? 0 : std::sqrt(squares / static_cast<double>(x.count()));
}

bool legal_rounding(const Array& item, Format format, const Array& exact, const Bound& radius) {
  const Array r = radius ? radius.values.on_host() : Array();
  const Array free = freedom_of(format, item);
  for (std::int64_t i = 0; i < item.count(); ++i) {
    const double x = item.data()[i], m = exact.data()[i];
    const double own = is_float(format) ? unit_roundoff(format) * std::fabs(m) + half_smallest_subnormal(format) : 0;
    if (x != m && !(std::fabs(x - m) <= (r ? r.data()[i] : 0) + (free ? free.data()[i] : 0) + own)) return false;
  }
  return true;
}

// Of what a step leaves behind, or on the way there.
bool comes_late(const Graph& graph, const Node& node) {
  const Phase phase = graph.origins[node.origin].phase;
  return phase == Phase::kBackward || phase == Phase::kOptimizer;
}

// The first node of `other` that the view's content is a legal rounding of. What is carried from step to step was there
// when the step began: gradients and updates, of which intervals say little, are what the next one begins with.
std::optional<NodeId> computed_by(const MatchSide& other, const Array& item, Format format, bool carried,
                                  const Profile& profile) {
  const double size = root_mean_square(item);
  if (!(size > 0) || !std::isfinite(size)) return std::nullopt;
  for (NodeId id = 0; id < other.graph.nodes.size(); ++id) {
    const Node& node = other.graph.nodes[id];
    if (count(node.shape) != item.count() || !is_float(node.result) || !other.replay.has(id)) continue;
    if (!computed(other.graph, id) || (carried && comes_late(other.graph, node))) continue;
    const Array exact = other.replay.value(id).on_host();
    if (!near(item, exact, size)) continue;
    const Overrides none;
    const Enclosure enclosure = Enclosures(other.graph, other.replay, {id}, &profile, none).take(id);
    if (!enclosure.exploded && legal_rounding(item, format, exact, enclosure.radius)) return id;
  }
  return std::nullopt;
}

std::set<NodeId> open_items(const Graph& graph, const Correspondence& found, bool of_reference) {
  std::set<NodeId> items;
  for (const MatchedItem& item : found.items)
    if (item.in_reference == of_reference && item.evidence == Evidence::kNone) items.insert(item.item);
  // A buffer under a name of its own.
  const std::vector<LeafValue>& values = of_reference ? found.reference_values : found.target_values;
  for (std::size_t i = 0; i < graph.leaves.size(); ++i)
    if (graph.leaves[i].role == LeafRole::kBuffer && values[i] && is_float(graph.leaves[i].format))
      items.insert(graph.leaves[i].node);
  return items;
}

// A buffer that both programs have was settled by name.
void leave_out_shared(const Graph& graph, const Graph& other, std::set<NodeId>* items) {
  std::set<std::string> names;
  for (const GraphLeaf& leaf : other.leaves) names.insert(leaf.name);
  for (const GraphLeaf& leaf : graph.leaves)
    if (leaf.role == LeafRole::kBuffer && names.count(leaf.name) != 0) items->erase(leaf.node);
}

// Whether everything that reads the leaf, itself or by a view, has its value from elsewhere, and there is something.
bool all_readers_in(const Graph& graph, NodeId leaf, const Overrides& computed) {
  std::set<NodeId> read{leaf};
  bool any = false;
  for (NodeId id = leaf + 1; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (!std::ranges::any_of(node.inputs, [&](NodeId input) { return read.count(input) != 0; })) continue;
    any = true;
    if (computed.count(id) != 0) continue;
    if (!is_view(node)) return false;
    read.insert(id);
  }
  return any;
}

void match_side(const MatchSide& own, const MatchSide& other, bool of_reference, const Profile& profile,
                Correspondence* found) {
  std::set<NodeId> items = open_items(own.graph, *found, of_reference);
  leave_out_shared(own.graph, other.graph, &items);
  Overrides& values = of_reference ? found->reference_computed : found->target_computed;
  Freedoms& freedoms = of_reference ? found->reference_freedoms : found->target_freedoms;
  std::set<NodeId> whole, carried;
  for (const GraphLeaf& leaf : own.graph.leaves)
    if (persistent(leaf.role)) carried.insert(leaf.node);
  for (const View& view : views_of(own.graph, items)) {
    if (whole.count(view.leaf) != 0 || !own.replay.has(view.node)) continue;
    const Node& node = own.graph.nodes[view.node];
    if (count(node.shape) > kElementsMax) continue;
    const Array item = own.replay.value(view.node).on_host();
    const std::optional<NodeId> by = computed_by(other, item, view.format, carried.contains(view.leaf), profile);
    if (!by) continue;
    values[view.node] = other.replay.value(*by).materialize().reshape(node.shape);
    if (view.node == view.leaf) whole.insert(view.leaf);
    found->items.push_back({Evidence::kComputed, of_reference, view.node, *by});
  }
  for (NodeId leaf : items)
    if (all_readers_in(own.graph, leaf, values)) whole.insert(leaf);
  std::vector<NodeId>& foreign = of_reference ? found->foreign_reference_data : found->foreign_data;
  for (NodeId leaf : whole) {
    freedoms.erase(leaf);
    std::erase(foreign, leaf);
  }
  std::erase_if(found->items, [&](const MatchedItem& item) {
    return item.evidence == Evidence::kNone && item.in_reference == of_reference && whole.count(item.item) != 0;
  });
}

}  // namespace

void match_computed(const MatchSide& target, const MatchSide& reference, const Profile& profile,
                    Correspondence* found) {
  match_side(target, reference, false, profile, found);
  match_side(reference, target, true, profile, found);
}

}  // namespace plumbline
