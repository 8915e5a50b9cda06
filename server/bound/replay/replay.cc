#include "server/bound/replay/replay.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <list>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <unordered_map>

#include "kernels/ball/key.h"
#include "kernels/ball/round.h"
#include "kernels/checks.h"
#include "kernels/cpu/cancel.h"
#include "kernels/cpu/loop.h"
#include "kernels/operations.h"
#include "kernels/sums.h"
#include "server/bound/replay/congruence.h"
#include "server/bound/replay/terms.h"
#include "server/bound/replay/tiles.h"

namespace plumbline {
namespace {

Array rounded(Format format, const Array& exact) {
  if (!is_float(format) || format == Format::kFloat64) return exact;
  const Array source = exact.materialize();
  Array result = Array::uninitialized(source.shape());
  if (format == Format::kFloat32)
    cpu::map(
        result, [](double x) { return static_cast<double>(static_cast<float>(x)); }, source);
  else
    cpu::map(
        result, [round = RoundTo(format)](double x) { return round(x); }, source);
  return result;
}

// 1 and a random share, in [-2, 2], of 2^-53. So many (a prime, that rows of a matrix do not move alike) are drawn
// once.
constexpr std::int64_t kFactors = 16381;
const std::array<double, kFactors>& noise_factors() {
  static const std::array<double, kFactors> factors = [] {
    std::array<double, kFactors> drawn;
    std::mt19937_64 bits(1);
    for (double& factor : drawn)
      factor = 1 + static_cast<double>(static_cast<std::int64_t>(bits())) * 0x1p-62 * 0x1p-53;
    return drawn;
  }();
  return factors;
}

// Moves each element by one of the factors, which follow one another from a place that `seed` chooses.
Array jittered(const Array& exact, std::uint64_t seed) {
  const Array source = exact.materialize().on_host();
  Array result = Array::uninitialized(source.shape());
  const double* const factors = noise_factors().data();
  const auto first = static_cast<std::int64_t>((seed * 0x9e3779b97f4a7c15ULL) >> 32) % kFactors;
  cpu::parallel_for(source.count(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t at = (first + begin) % kFactors;
      const std::int64_t length = std::min(end - begin, kFactors - at);
      const double* const x = source.data() + begin;
      double* const out = result.data() + begin;
      for (std::int64_t i = 0; i < length; ++i) out[i] = x[i] * factors[at + i];
      begin += length;
    }
  });
  return result;
}

bool adds_up(Primitive primitive) {
  return !is_elementwise(primitive) && !moves(primitive) && primitive != Primitive::kIota;
}

// A value is kept where computing it again for all who read it would take more than so many cheap nodes, or where it is
// small. Where all that takes more memory than the step's trace, fewer are kept.
constexpr double kCheapMax = 36, kCheapMaxOfMuch = 52, kCheapMaxReadOnce = 100;
constexpr std::int64_t kSmall = 1 << 12;

// Bytes of what the graph holds of its trace.
std::size_t trace_bytes(const Graph& graph) {
  std::set<Bytes> held;
  for (const GraphLeaf& leaf : graph.leaves) held.insert(leaf.bytes);
  for (const GraphTap& tap : graph.taps)
    for (const GraphTap::Term& term : tap.terms) held.insert(term.observed);
  for (const auto& [node, observation] : graph.observed) held.insert(observation.bytes);
  std::size_t bytes = 0;
  for (const Bytes& one : held) bytes += one == nullptr ? 0 : one->size();
  return bytes;
}

}  // namespace

LeafValue::LeafValue(Format format, Bytes bytes, Shape shape)
    : format_(format), bytes_(std::move(bytes)), shape_(std::move(shape)) {
  if (count() <= kSmall || traits(format).bytes == sizeof(double)) *this = static_cast<Array>(*this);
}

LeafValue::operator Array() const { return packed() ? part(0, count()).reshape(shape_) : values_; }

Array LeafValue::part(std::int64_t begin, std::int64_t length) const {
  if (!packed()) return values_.materialize().window({{length}, {1}, begin});
  Array values = Array::uninitialized({length});
  current_operations().decode(values, format_, bytes(begin));
  return values;
}

LeafValue LeafValue::reshape(Shape shape) const {
  return packed() ? LeafValue(format_, bytes_, std::move(shape)) : LeafValue(values_.reshape(std::move(shape)));
}

bool LeafValue::same_bytes(const LeafValue& other) const {
  return packed() && other.packed() && format_ == other.format_ && (bytes_ == other.bytes_ || *bytes_ == *other.bytes_);
}

std::vector<LeafValue> leaf_values(const Graph& graph) {
  std::vector<LeafValue> values(graph.leaves.size());
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) {
    const GraphLeaf& leaf = graph.leaves[i];
    if (leaf.bytes) values[i] = LeafValue(leaf.format, leaf.bytes, graph.nodes[leaf.node].shape);
  }
  return values;
}

std::vector<bool> ancestors(const Graph& graph, const std::vector<NodeId>& of) {
  std::vector<bool> found(graph.nodes.size(), false);
  for (NodeId id : of) found[id] = true;
  for (std::size_t i = graph.nodes.size(); i-- > 0;)
    if (found[i])
      for (NodeId input : graph.nodes[i].inputs) found[input] = true;
  return found;
}

std::vector<NodeId> asked_by_program(const Graph& graph) {
  std::vector<NodeId> needed;
  for (const GraphDecision& decision : graph.decisions) {
    needed.push_back(decision.node);
    if (decision.choice) needed.insert(needed.end(), {decision.choice->table, decision.choice->position});
  }
  for (const Draw& draw : graph.draws) needed.insert(needed.end(), draw.inputs.begin(), draw.inputs.end());
  for (const OpaqueCall& call : graph.opaque) needed.insert(needed.end(), call.inputs.begin(), call.inputs.end());
  for (const NumberRead& read : graph.reads) needed.push_back(read.node);
  return needed;
}

std::vector<bool> needed_nodes(const Graph& graph) {
  std::vector<NodeId> needed = asked_by_program(graph);
  for (const GraphTap& tap : graph.taps)
    for (const GraphTap::Term& term : tap.terms) needed.push_back(term.node);
  for (const auto& [node, observation] : graph.observed) needed.push_back(node);
  return ancestors(graph, needed);
}

namespace {

// What computing a node again takes, its inputs being at hand, in elementwise operations or copies, which are as cheap
// as reading a value from memory; nothing: too much. `cheap_terms`: that the sums of a product may have which is so
// cheap.
std::optional<double> cost_of(const Graph& graph, const Node& node, double cheap_terms) {
  const Primitive p = node.primitive;
  if ((p >= Primitive::kExp && p <= Primitive::kSigmoid) || p == Primitive::kPow || p == Primitive::kAtan2) return 8;
  if (p == Primitive::kGatherRows)  // All of a table is decoded.
    return std::max(
        1.0, static_cast<double>(count(graph.nodes[node.inputs[0]].shape)) / static_cast<double>(count(node.shape)));
  if ((p >= Primitive::kConstant && p <= Primitive::kSelect) || p == Primitive::kWindow || p == Primitive::kAssemble)
    return 1;
  if (p == Primitive::kMatmul) return static_cast<double>(graph.nodes[node.inputs[0]].shape.back()) / cheap_terms;
  return std::nullopt;
}

// Values used last, up to a budget in bytes.
class Recent {
 public:
  void set_budget(std::int64_t bytes) { budget_ = bytes; }

  void clear() {
    entries_.clear();
    order_.clear();
    bytes_ = 0;
  }

  bool holds(NodeId id) const { return entries_.contains(id); }
  Array find(NodeId id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return {};
    order_.splice(order_.begin(), order_, found->second);
    return found->second->second;
  }

  void insert(NodeId id, const Array& value) {
    order_.emplace_front(id, value);
    entries_[id] = order_.begin();
    bytes_ += bytes(value);
    while (bytes_ > budget_ && order_.size() > 1) {
      bytes_ -= bytes(order_.back().second);
      entries_.erase(order_.back().first);
      order_.pop_back();
    }
  }

 private:
  static std::int64_t bytes(const Array& value) { return value.count() * std::int64_t{sizeof(double)}; }

  std::list<std::pair<NodeId, Array>> order_;  // Last used first.
  std::unordered_map<NodeId, std::list<std::pair<NodeId, Array>>::iterator> entries_;
  std::int64_t bytes_ = 0, budget_ = 0;
};

}  // namespace

struct Replay::State : std::enable_shared_from_this<Replay::State> {
  const Graph* graph = nullptr;
  Precision precision = Precision::kExact;
  std::vector<bool> needed, kept;
  std::vector<NodeId> same;     // The first node that computes the same of the same.
  std::vector<bool> shared;     // Several read it, and it is not as cheap to compute as to read.
  std::vector<bool> changed;    // From `base`'s value.
  std::vector<bool> unrounded;  // Empty: none.
  std::vector<bool> later;      // Empty: none.
  bool for_sweeps = false, read_once = false;
  Overrides overrides;
  Passes passes;
  Replay base;
  std::map<NodeId, LeafValue> packed;  // Leaves that are decoded when asked for.
  std::vector<Array> values;           // Kept ones and other leaves.
  std::map<NodeId, Array> computed;    // What was computed of overridden nodes that are kept.
  Recent recent, recent_computed;

  Array value(NodeId id) {
    if (!needed[id]) return {};
    if (const auto pass = passes.find(id); pass != passes.end())
      return value(pass->second).materialize().reshape(graph->nodes[id].shape);
    const auto given = overrides.find(id);
    const bool overridden = given != overrides.end();
    if (overridden && !given->second.packed()) return given->second;
    if (!overridden && !changed[id]) return base.value(id);
    if (!overridden && values[id]) return values[id];
    if (same[id] != id) return value(same[id]);
    Array value = recent.find(id);
    if (value) return value;
    value = overridden ? static_cast<Array>(given->second) : evaluate(id);
    if (overridden)
      recent.insert(id, value);
    else
      keep(id, value);
    return value;
  }

  void keep(NodeId id, const Array& value) {
    if (kept[id])
      values[id] = value;
    else if (graph->nodes[id].primitive != Primitive::kWindow)  // It has no memory of its own.
      recent.insert(id, value);
  }

  void hold(NodeId id, const Array& value) {
    if (changed[id] && same[id] == id && !replaced(id) && !values[id] && !recent.holds(id)) keep(id, value);
  }

  bool at_hand(NodeId id) const {
    if (overrides.count(id) != 0) return true;
    if (const auto pass = passes.find(id); pass != passes.end()) return at_hand(pass->second);
    return changed[id] ? kept[same[id]] && !waits(id) : base.at_hand(id);
  }
  bool waits(NodeId id) const {
    return changed[id] ? !later.empty() && later[id] && !replaced(id) && !values[id] : base.waits(id);
  }

  bool replaced(NodeId id) const { return overrides.count(id) != 0 || passes.count(id) != 0; }
  bool overridden(NodeId id) const { return replaced(id) || (!changed[id] && base.overridden(id)); }

  std::optional<NodeId> passed(NodeId id) const {
    if (const auto pass = passes.find(id); pass != passes.end()) return pass->second;
    return changed[id] ? std::nullopt : base.passed(id);
  }

  void give_up(NodeId id) {
    values[id] = Array();
    computed.erase(id);
    overrides.erase(id);
    base.give_up(id);
  }

  void rest() {
    recent.clear();
    recent_computed.clear();
    base.rest();
  }

  LeafValue leaf(NodeId id) const {
    if (const auto given = overrides.find(id); given != overrides.end())
      return given->second.packed() ? given->second : LeafValue();
    if (!changed[id]) return base.packed(id);
    const auto found = packed.find(id);
    return found == packed.end() ? LeafValue() : found->second;
  }

  Array computed_value(NodeId id) {
    if (!needed[id]) return {};
    if (!changed[id]) return base.computed(id);
    if (!replaced(id)) return value(id);
    if (const auto found = computed.find(id); found != computed.end()) return found->second;
    Array value = recent_computed.find(id);
    if (value) return value;
    value = values[id] ? values[id] : evaluate(id);  // A leaf's own content.
    if (kept[id])
      computed[id] = value;
    else
      recent_computed.insert(id, value);
    return value;
  }

  std::optional<PatchOperand> patches(NodeId id) const {
    if (current_device() != nullptr || precision == Precision::kJittered) return std::nullopt;
    std::optional<PatchOperand> found = patches_of(*graph, id);
    if (found && (overridden(graph->nodes[id].inputs[1]) || overridden(found->window))) return std::nullopt;
    return found;
  }

  std::vector<Array> operands(NodeId id) {
    const std::optional<PatchOperand> patches = this->patches(id);
    std::vector<Array> values;
    for (NodeId input : graph->nodes[id].inputs)
      values.push_back(patches && values.size() == 1 ? value(patches->image).materialize().window(patches->view)
                                                     : value(input));
    return values;
  }

  // An elementwise node with those before it that are not at hand, tile by tile: what lies between stays near the
  // processor. Empty: there are none.
  Array evaluate_with_earlier(NodeId id) {
    if (precision != Precision::kExact || !unrounded.empty() || current_device() != nullptr) return {};
    const auto stop = [&](NodeId of) { return overridden(of) || at_hand(of) || shared[of] || recent.holds(same[of]); };
    const std::optional<TiledChain> chain = chain_before(*graph, {id}, stop);
    if (!chain || chain->steps.size() < 2) return {};
    Replay replay;
    replay.state_ = shared_from_this();
    const Tiles tiles(*graph, replay, *chain);
    Array result = Array::uninitialized(graph->nodes[id].shape);
    cpu::parallel_for(count_tiles(*chain), 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) tiles.tile(t, {&result, 1});
    });
    return result;
  }

  Array evaluate(NodeId id) {
    cancel_point();
    const Node& node = graph->nodes[id];
    if (const auto leaf = packed.find(id); leaf != packed.end()) return leaf->second;
    if (is_elementwise(node.primitive))
      if (Array result = evaluate_with_earlier(id)) return result;
    if (precision == Precision::kJittered && (!is_float(node.result) || decides(node))) return base.value(id);
    std::vector<Array> inputs = operands(id);
    const PrimitiveTraits& primitive = traits(node.primitive);
    if (precision == Precision::kJittered) {
      if (adds_up(node.primitive))
        for (std::size_t i = 0; i < inputs.size(); ++i)
          if (is_float(graph->nodes[node.inputs[i]].result)) inputs[i] = jittered(inputs[i], (id << 8) + i + 1);
      Array result = primitive.evaluate(node.attributes, node.shape, inputs);
      return primitive.bitwise ? result : jittered(result, id << 8);
    }
    Array result = primitive.evaluate(node.attributes, node.shape, inputs);
    const bool exact = precision == Precision::kExact || (!unrounded.empty() && unrounded[id]);
    // Bitwise primitives hand on values that their inputs' formats already hold.
    if (exact || (primitive.bitwise && node.primitive != Primitive::kCast)) return result;
    return rounded(node.result, result);
  }

  static bool decides(const Node& node) {
    return node.primitive == Primitive::kSign ||
           (node.primitive >= Primitive::kFloor && node.primitive <= Primitive::kTrunc);
  }

  // Finds nodes that compute again what others did, as a backward pass does with what the forward pass threw away.
  // Those that `decided` tells (empty: none) are themselves alone.
  void find_repeats(const std::vector<bool>& decided) {
    same.resize(graph->nodes.size());
    std::iota(same.begin(), same.end(), NodeId{0});
    if (precision != Precision::kExact || !unrounded.empty() || base) return;
    const auto bits = [](double x) { return std::bit_cast<std::uint64_t>(x); };
    const auto others = [](Attributes attributes) {
      attributes.scalar = attributes.scalar2 = 0;
      return attributes;
    };
    const auto repeats = [&](NodeId a, NodeId b) {
      const Node &x = graph->nodes[a], &y = graph->nodes[b];
      return x.primitive == y.primitive && x.shape == y.shape && x.result == y.result && x.compute == y.compute &&
             bits(x.attributes.scalar) == bits(y.attributes.scalar) &&
             bits(x.attributes.scalar2) == bits(y.attributes.scalar2) &&
             std::ranges::equal(
                 x.inputs, y.inputs, {}, [&](NodeId id) { return same[id]; }, [&](NodeId id) { return same[id]; }) &&
             others(x.attributes) == others(y.attributes);
    };
    constexpr int kTriedMax = 8;  // Nodes of one hash: a graph that was made to have many takes no longer than others.
    std::unordered_multimap<std::uint64_t, NodeId> seen;
    for (NodeId id = 0; id < graph->nodes.size(); ++id) {
      const Node& node = graph->nodes[id];
      const Primitive p = node.primitive;
      const bool may_repeat = is_elementwise(p) || p == Primitive::kConstant || p == Primitive::kIota ||
                              p == Primitive::kWindow || p == Primitive::kGatherRows;
      if (!needed[id] || !may_repeat || replaced(id) || (!decided.empty() && decided[id])) continue;
      const Attributes& of = node.attributes;
      std::uint64_t hash = key::mixed(bits(of.scalar)) ^ static_cast<std::uint64_t>(node.primitive);
      const auto add = [&hash](auto x) { hash = key::mixed(hash) ^ static_cast<std::uint64_t>(x); };
      for (const std::uint64_t x : {bits(of.scalar2), static_cast<std::uint64_t>(of.size)}) add(x);
      for (const Format format : {node.result, node.compute, of.narrow}) add(format);
      add(of.view.offset);
      for (const Shape* list : {&node.shape, &of.view.sizes, &of.view.strides, &of.dims})
        std::ranges::for_each(*list, add);
      for (const NodeId input : node.inputs) add(same[input]);
      auto [other, last] = seen.equal_range(hash);
      int tried = 0;
      while (other != last && tried < kTriedMax && !repeats(other->second, id)) ++other, ++tried;
      if (other == last)
        seen.emplace(hash, id);
      else if (tried < kTriedMax)
        same[id] = other->second;
    }
  }

  // Chooses what is kept, which bounds the recursion of `value` too.
  void plan() {
    const std::size_t bytes = plan(read_once ? kCheapMaxReadOnce : kCheapMax);
    if (!read_once && !for_sweeps && bytes > trace_bytes(*graph)) plan(kCheapMaxOfMuch);
  }

  // Returns how many bytes of values are kept, but for those that may never be asked for.
  std::size_t plan(double cheap_max) {
    kept.assign(graph->nodes.size(), true);
    shared.assign(graph->nodes.size(), false);
    std::vector<double> cost(graph->nodes.size(), 0);  // Cheap nodes that a value takes, kept ones being at hand.
    std::vector<int> uses(graph->nodes.size(), 0);
    std::vector<bool> row_major(graph->nodes.size());
    for (NodeId id = 0; id < graph->nodes.size(); ++id) {
      const Node& node = graph->nodes[id];
      row_major[id] = node.primitive != Primitive::kWindow || (row_major[node.inputs[0]] && reshapes(*graph, node));
      if (needed[id] && same[id] == id)
        for (NodeId input : node.inputs) ++uses[same[input]];
    }
    // A window of what lies in row-major order has no memory of its own: it stays with that, whose uses are both's, and
    // goes with what is decoded or computed anew each time.
    const auto borrows = [&](NodeId id) {
      return graph->nodes[id].primitive == Primitive::kWindow && row_major[graph->nodes[id].inputs[0]];
    };
    for (NodeId id = static_cast<NodeId>(graph->nodes.size()); id-- > 0;)
      if (needed[id] && same[id] == id && borrows(id))
        uses[same[graph->nodes[id].inputs[0]]] += std::max(1, uses[id]) - 1;
    // What an input takes; another value than its own, which was given, is decoded at most.
    const auto cost_of_input = [&](NodeId input) { return overrides.contains(input) ? 1.0 : cost[input]; };
    std::int64_t largest = 0;
    for (NodeId id = 0; id < graph->nodes.size(); ++id) {
      const Node& node = graph->nodes[id];
      if (packed.count(id) != 0) kept[id] = false;
      if (!needed[id] || !changed[id]) continue;
      if (same[id] != id) {
        kept[id] = kept[same[id]];
        shared[id] = shared[same[id]];
        cost[id] = cost[same[id]];
        continue;
      }
      if (borrows(id)) {
        const NodeId of = node.inputs[0];
        const double total = cost_of_input(of) + 1;
        kept[id] = (at_hand(of) && !leaf(of).packed()) || total > cheap_max;
        cost[id] = kept[id] ? 0 : total;
        continue;
      }
      if (count(node.shape) <= kSmall) continue;
      std::optional<double> total = cost_of(*graph, node, for_sweeps ? 4 : 16);
      if (!total) continue;
      shared[id] = uses[id] > 1 && *total > 1;
      for (NodeId input : node.inputs) *total += cost_of_input(input);
      if (*total * std::max(1, uses[id]) > cheap_max) continue;
      kept[id] = false;
      cost[id] = *total;
      largest = std::max(largest, count(node.shape));
    }
    std::size_t bytes = 0;
    for (NodeId id = 0; id < graph->nodes.size(); ++id)
      if (needed[id] && changed[id] && kept[id] && same[id] == id && !borrows(id) && !waits(id))
        bytes += static_cast<std::size_t>(count(graph->nodes[id].shape)) * sizeof(double);
    const std::int64_t budget =
        std::max<std::int64_t>(kBudgetMin, kBudgetNodes * largest * std::int64_t{sizeof(double)});
    recent.set_budget(budget);
    recent_computed.set_budget(budget / 2);
    return bytes;
  }

  static constexpr std::int64_t kBudgetMin = 8 << 20, kBudgetNodes = 2;
};

bool Replay::has(NodeId id) const { return state_ && state_->needed[id]; }
bool Replay::at_hand(NodeId id) const { return state_ && state_->at_hand(id); }
bool Replay::waits(NodeId id) const { return state_ && state_->waits(id); }
bool Replay::overridden(NodeId id) const { return state_ && state_->overridden(id); }
std::optional<NodeId> Replay::passed(NodeId id) const { return state_ ? state_->passed(id) : std::nullopt; }
LeafValue Replay::packed(NodeId id) const { return has(id) ? state_->leaf(id) : LeafValue(); }
Array Replay::value(NodeId id) const { return state_ ? state_->value(id) : Array(); }
Array Replay::computed(NodeId id) const { return state_ ? state_->computed_value(id) : Array(); }

std::vector<Array> Replay::operands(NodeId id) const { return state_->operands(id); }
std::optional<PatchOperand> Replay::patches(NodeId id) const { return state_->patches(id); }

void Replay::give_up(NodeId id) const {
  if (state_) state_->give_up(id);
}

void Replay::forget_computed(NodeId id) const {
  if (state_) state_->computed.erase(id);
}

void Replay::hold(NodeId id, const Array& value) const {
  if (has(id)) state_->hold(id, value);
}

void Replay::rest() const {
  if (state_) state_->rest();
}

Replay replay(const Graph& graph, const std::vector<LeafValue>& leaves, Precision precision, const Overrides& overrides,
              const Replay* base, const ReplayOptions& options) {
  Replay result;
  result.state_ = std::make_shared<Replay::State>();
  Replay::State& state = *result.state_;
  state.graph = &graph;
  state.precision = precision;
  state.needed = options.only == nullptr ? needed_nodes(graph) : ancestors(graph, *options.only);
  state.overrides = overrides;
  state.passes = options.passes;
  state.values.resize(graph.nodes.size());
  if (options.unrounded != nullptr) state.unrounded = *options.unrounded;
  if (options.later != nullptr) state.later = *options.later;
  state.for_sweeps = options.for_sweeps || (base != nullptr && *base && base->state_->for_sweeps);
  state.read_once = options.read_once;
  state.changed.assign(graph.nodes.size(), base == nullptr);
  const auto changes = [&](NodeId id) {
    return precision == Precision::kJittered || !base->has(id) || (!state.unrounded.empty() && state.unrounded[id]) ||
           std::ranges::any_of(graph.nodes[id].inputs,
                               [&](NodeId input) { return state.changed[input] || state.replaced(input); });
  };
  if (base != nullptr) {
    state.base = *base;
    // What will be decided may change all.
    for (NodeId id = 0; id < graph.nodes.size(); ++id) state.changed[id] = options.deciding != nullptr || changes(id);
  }
  std::vector<bool> given(graph.nodes.size(), false);
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) {
    const NodeId id = graph.leaves[i].node;
    if (leaves[i].packed())
      state.packed.emplace(id, leaves[i]);
    else
      state.values[id] = leaves[i];
    if (state.needed[id] && !leaves[i])
      throw std::runtime_error("leaf '" + graph.leaves[i].name + "': expected its content, found none");
    given[id] = true;
  }
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (graph.nodes[id].primitive == Primitive::kLeaf && state.needed[id] && !given[id])
      throw std::runtime_error("leaf '?': expected its content, found none");
  const Deciding* const deciding = options.deciding;
  state.find_repeats(deciding == nullptr ? std::vector<bool>() : deciding->at);
  state.plan();
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (deciding != nullptr && base != nullptr) state.changed[id] = changes(id);
    const bool kept = state.needed[id] && state.changed[id] && state.kept[id] && !state.replaced(id);
    if (options.congruence != nullptr && state.needed[id]) {
      Array held = options.congruence->held(id);
      if (held && kept && !state.values[id] && state.same[id] == id) state.values[id] = std::move(held);
    }
    if (kept && !state.waits(id)) {
      const Array value = state.value(id);
      if (options.congruence != nullptr) options.congruence->computed(id, value);
    }
    if (deciding == nullptr || !deciding->at[id]) continue;
    if (Array seen = deciding->seen(id, result)) state.overrides[id] = std::move(seen);
  }
  return result;
}

}  // namespace plumbline
