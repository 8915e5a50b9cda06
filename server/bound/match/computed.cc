#include "server/bound/match/computed.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "kernels/sums.h"
#include "server/bound/enclose/interval.h"
#include "server/bound/envelope/answer.h"
#include "server/bound/match/margin.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr std::int64_t kElementsMax = 1 << 24;  // A node with more elements is compared with no item.
// No enclosure of a few roundings exceeds this share of an element and of the values' size.
constexpr double kNear = 0x1p-6;
// Two numbers that have nothing to do with each other lie so near with a chance of one in 2^bits. A match of fewer bits
// is weak, one of many needs no doubt.
constexpr double kBitsOfEvidence = 14, kBitsBeyondDoubt = 40;
constexpr double kOneValue = 0x1p-40;  // Two replays of one number differ by no more, relative to its size.
constexpr int kEnclosuresMax = 32;     // So many nodes near an item are looked at more closely.
constexpr std::uint64_t kSigns = 4;    // Functionals by which an item is asked: what cancels in one stands in others.

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

// Whatever is infinite lies near nothing, not even itself.
bool near(const Array& item, const Array& value, double size, double share) {
  for (std::int64_t i = 0; i < item.count(); ++i) {
    const double x = item.data()[i], m = value.data()[i];
    if (!(std::fabs(x - m) <= share * (std::fabs(m) + size)) || !std::isfinite(m)) return false;
  }
  return true;
}

double root_mean_square(const Array& x) {
  double squares = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) squares += x.data()[i] * x.data()[i];
  return x.count() == 0 ? 0 : std::sqrt(squares / static_cast<double>(x.count()));
}

// How an item lies among what roundings may make of a node.
struct Fit {
  NodeId node = 0;
  bool legal = true;    // Roundings may have made the item of it,
  bool lossy = true;    // or those of a formula that loses up to half of the digits.
  double bits = 0;      // Against an accident.
  bool own = true;      // No farther from the exact value than the item's own format explains.
  double distance = 0;  // From the exact value, and how far it might have been.
  bool told() const { return bits >= kBitsOfEvidence; }
  bool strong() const { return legal && (own || told()); }
  bool beyond_doubt() const { return legal && bits >= kBitsBeyondDoubt; }
  bool better_than(const Fit& other) const { return strong() != other.strong() ? strong() : distance < other.distance; }
};

// Numbers and how far each might have lain from the node's. Equal ones tell as much as one of them. One is told by its
// size, the others by how far the node's values lie apart: what lies near one of several ones lies near them all.
double bits_of_evidence(std::vector<std::pair<double, double>> numbers, double size, double spread) {
  std::ranges::sort(numbers);
  double first = 0, others = 0, narrowest = HUGE_VAL;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i + 1 < numbers.size() && numbers[i + 1].first == numbers[i].first) continue;  // The widest is the last.
    const double width = numbers[i].second;
    first = std::fmax(first, std::log2(size / width));
    others += std::fmax(0, std::log2(spread / width));
    narrowest = std::fmin(narrowest, width);
  }
  return first + others - std::fmax(0, std::log2(spread / narrowest));
}

// How far elements of a format may lie from a number that they hold.
double half_unit(Format format, double number) {
  return is_float(format) ? unit_roundoff(format) * std::fabs(number) + half_smallest_subnormal(format) : 0;
}

// `radius`: of the node's enclosure.
Fit fit_of(NodeId id, const Array& item, Format format, const Array& exact, const Bound& radius) {
  const Array r = radius ? radius.values.on_host() : Array();
  const Array free = freedom_of(format, item);
  Fit fit{id};
  std::vector<std::pair<double, double>> numbers;
  double mean = 0, spread = 0;
  const double size = root_mean_square(exact), half_of_digits = is_float(format) ? std::sqrt(unit_roundoff(format)) : 0;
  std::int64_t farther = 0;
  for (std::int64_t i = 0; i < item.count(); ++i) mean += exact.data()[i] / static_cast<double>(item.count());
  for (std::int64_t i = 0; i < item.count(); ++i) {
    const double x = item.data()[i], m = exact.data()[i], freedom = free ? free.data()[i] : 0;
    const double own = freedom + half_unit(format, m), apart = std::fabs(x - m);
    double width = (r ? r.data()[i] : 0) + own;
    if (std::isnan(width) || (x != m && !(apart <= width))) {
      fit.legal = false;
      width = std::fmax(apart, own);
    }
    const bool by_own = x == m || apart <= own;
    fit.own = fit.own && by_own;
    fit.lossy = fit.lossy && apart <= half_of_digits * (std::fabs(m) + size);
    farther += by_own ? 0 : 1;
    fit.distance += apart * apart + width * width;
    spread += (m - mean) * (m - mean) / static_cast<double>(item.count());
    if (freedom > 0) numbers.emplace_back(x, width);  // A number of few digits was written, and tells nothing.
  }
  fit.lossy = fit.lossy && 4 * farther >= item.count();  // A formula does it to more than a single element.
  fit.bits = bits_of_evidence(std::move(numbers), size, std::sqrt(spread));
  return fit;
}

// What other operations, or taps, read. What an operation has on its way is no number that the program computes.
std::vector<bool> given_on(const Graph& graph) {
  std::vector<bool> given(graph.nodes.size(), false);
  for (const Node& node : graph.nodes)
    for (NodeId input : node.inputs) given[input] = given[input] || graph.nodes[input].origin != node.origin;
  for (const GraphTap& tap : graph.taps)
    for (NodeId node : nodes_of(tap)) given[node] = true;
  return given;
}

// Of what a step leaves behind, or on the way there.
bool comes_late(const Graph& graph, const Node& node) {
  const Phase phase = graph.origins[node.origin].phase;
  return phase == Phase::kBackward || phase == Phase::kOptimizer;
}

// Whether the program computes these numbers itself.
bool computes(const MatchSide& side, const Array& exact) {
  const double size = root_mean_square(exact);
  for (NodeId id = 0; id < side.graph.nodes.size(); ++id) {
    const Node& node = side.graph.nodes[id];
    if (count(node.shape) != exact.count() || !is_float(node.result) || !side.replay.has(id)) continue;
    if (computed(side.graph, id) && near(side.replay.value(id).on_host(), exact, size, kOneValue)) return true;
  }
  return false;
}

// Whether some decision before the node may have come out otherwise than in exact arithmetic, and the node then jumped.
bool may_jump(const Graph& graph, NodeId id) {
  const std::vector<bool> before = ancestors(graph, {id});
  for (NodeId each = 0; each < id; ++each)
    if (before[each] && Margins::decides(graph, each)) return true;
  return false;
}

// What is looked for, and where.
struct Search {
  const MatchSide &own, &other;
  const Profile& profile;
  std::uint64_t seed;       // Of random signs.
  double alpha;             // The chance that a legal item is refused.
  std::vector<bool> given;  // By the other program's operations.

  // Whether what rounds there by chance moves the node as far as the item lies from its exact value, up to what another
  // formula of it may need. An enclosure, which a network makes wider with every layer, holds far more.
  bool by_chance(NodeId id, const Array& item, Format format, const Array& exact) const {
    if (may_jump(other.graph, id)) return true;
    Graph graph = other.graph;
    const Shape& shape = graph.nodes[id].shape;
    const Array content = item.reshape(shape), value = exact.reshape(shape);
    GraphTap tap;
    tap.shape = shape;
    tap.terms.resize(1);
    tap.terms[0].node = id;
    graph.taps = {tap};
    std::vector<Probe> probes;
    for (std::uint64_t k = 0; k < kSigns; ++k)
      probes.push_back(signs_probe("item", {probe_tap(0, tap, value)}, seed ^ (k << 32) ^ id));
    std::vector<Envelope> envelopes = adjoint_envelopes(graph, other.replay, probes, profile, executions_of(graph));
    const double lambda = hoeffding_lambda(static_cast<double>(kSigns) * kEnclosuresMax, alpha);
    const Array free = freedom_of(format, content);
    for (std::size_t k = 0; k < probes.size(); ++k) {
      const Weights& weights = probes[k].parts.front().weights;
      const Array w = weights.array().materialize().on_host();
      for (std::int64_t i = 0; i < w.count(); ++i) {  // How it is held.
        const double held = half_unit(format, value.data()[i]) + (free ? free.data()[i] : 0);
        envelopes[k].error += std::fabs(w.data()[i]) * held;
        envelopes[k].noise.squares += w.data()[i] * w.data()[i] * held * held;
      }
      const double deviation = std::fabs(dot_difference(weights, parts_of(content), parts_of(value)).get());
      const Answer answer = answer_of(deviation, envelopes[k], lambda, 0, probes[k].scale);
      if (!answer.vacuous() && answer.deviation > kValueFormulas * answer.envelope) return false;
    }
    return true;
  }

  // The node that the view's content is a legal rounding of: of several the one that it lies nearest to, for how far it
  // might lie. What is carried from step to step was there when the step began: gradients and updates, of which
  // intervals say little, are what the next one begins with. A decision is exact, or open by a step.
  std::optional<Fit> of(const Array& item, Format format, bool carried) const {
    const double size = root_mean_square(item);
    if (!(size > 0) || !std::isfinite(size)) return std::nullopt;
    std::optional<Fit> best;
    int enclosed = 0;
    for (NodeId id = 0; id < other.graph.nodes.size() && enclosed < kEnclosuresMax; ++id) {
      const Node& node = other.graph.nodes[id];
      if (count(node.shape) != item.count() || !is_float(node.result) || !other.replay.has(id) || !given[id]) continue;
      if (!computed(other.graph, id) || (carried && comes_late(other.graph, node))) continue;
      if (Margins::decides(other.graph, id)) continue;
      const Array exact = other.replay.value(id).on_host();
      if (!near(item, exact, size, kNear)) continue;
      ++enclosed;
      const Overrides none;
      const Enclosure enclosure = Enclosures(other.graph, other.replay, {id}, &profile, none).take(id);
      if (enclosure.exploded) continue;
      Fit fit = fit_of(id, item, format, exact, enclosure.radius);
      if (best && !fit.better_than(*best)) continue;
      fit.legal = fit.legal && (fit.own || by_chance(id, item, format, exact));
      // What is carried lies near its next value by nature.
      if (!fit.legal && (carried || !fit.lossy || !fit.told() || (best && !fit.better_than(*best)))) continue;
      // What both compute neither had to be given.
      if (!fit.strong() && computes(own, exact)) continue;
      best = fit;
      if (fit.beyond_doubt()) break;
    }
    return best;
  }
};

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
                std::uint64_t seed, double alpha, Correspondence* found) {
  if (found->computed == Computed::kNever) return;
  std::set<NodeId> items = open_items(own.graph, *found, of_reference);
  leave_out_shared(own.graph, other.graph, &items);
  Overrides& values = of_reference ? found->reference_computed : found->target_computed;
  Freedoms& freedoms = of_reference ? found->reference_freedoms : found->target_freedoms;
  std::set<NodeId> whole, carried;
  for (const GraphLeaf& leaf : own.graph.leaves)
    if (persistent(leaf.role)) carried.insert(leaf.node);
  const Search search{own, other, profile, seed, alpha, given_on(other.graph)};
  for (const View& view : views_of(own.graph, items)) {
    if (whole.count(view.leaf) != 0 || !own.replay.has(view.node)) continue;
    const Node& node = own.graph.nodes[view.node];
    if (count(node.shape) > kElementsMax) continue;
    const Array item = own.replay.value(view.node).on_host();
    const std::optional<Fit> by = search.of(item, view.format, carried.contains(view.leaf));
    if (!by) continue;
    const MatchedItem match{Evidence::kComputed, of_reference, view.node, by->node};
    if (!by->strong()) found->weak.push_back(match);
    if (!by->strong() && found->computed != Computed::kEver) continue;
    found->doubtful = found->doubtful || !by->beyond_doubt();
    values[view.node] = other.replay.value(by->node).materialize().reshape(node.shape);
    if (view.node == view.leaf) whole.insert(view.leaf);
    found->items.push_back(match);
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

void match_computed(const MatchSide& target, const MatchSide& reference, const Profile& profile, std::uint64_t seed,
                    double alpha, Correspondence* found) {
  match_side(target, reference, false, profile, seed, alpha, found);
  match_side(reference, target, true, profile, seed, alpha, found);
}

}  // namespace plumbline
