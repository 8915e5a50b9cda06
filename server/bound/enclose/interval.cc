#include "server/bound/enclose/interval.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

#include "kernels/device.h"
#include "server/bound/replay/arithmetic.h"

namespace plumbline {
namespace {

// |x| + r with the sign of x: the point of the enclosure where every magnitude-based error model is largest.
Array inflated(const Array& centre, const Bound& radius) {
  if (!radius) return centre;
  Array result = Array::uninitialized(centre.shape());
  current_operations().inflate(result, centre, radius.values);
  return result;
}

// Error models of these are not monotone in the magnitude of their inputs: rows are shift invariant and bounded.
bool row_normalised(Primitive primitive) {
  return primitive == Primitive::kSoftmax || primitive == Primitive::kLogSoftmax ||
         primitive == Primitive::kVarianceRsqrt;
}

// a + b; takes the place of `b` where that is not shared.
Bound sum(const Bound& a, const Bound& b) {
  if (!a) return b;
  if (!b) return a;
  const bool ours = b.values.unique() && b.values.contiguous();
  Array result = ours ? b.values : Array::uninitialized(b.values.shape());
  current_operations().add_bounds(result, a.values, b.values);
  return {result};
}

// A chain that is passed again for each node that is taken whole has no more steps.
constexpr std::size_t kStepsMax = 64;
// What several nodes read is passed by each of their chains: so many steps in all cost less than to take it whole.
constexpr std::size_t kPassedMax = 32;

// A device is waited for after so many nodes, so that few are enclosed behind one that exploded.
constexpr std::size_t kUnknownMax = 16;

// A value that is larger by this factor than its format's largest number has overflowed in every execution that holds
// it in its format. Masks of the format's lowest number, and sums of a few of them, are not meant.
constexpr double kOverflows = 4;

}  // namespace

std::optional<Arithmetic> Enclosures::elidable(NodeId id) const {
  const Node& node = graph_.nodes[id];
  if (profile_ == nullptr || (!profile_->casts_elided && !graph_.origins[node.origin].fused)) return std::nullopt;
  return Arithmetic{node.compute, node.result, profile_};
}

// How far the value that a consumer read may lie from what was stored.
Bound Enclosures::unrounded(NodeId id, const Array& stored) const {
  const std::optional<Arithmetic> arithmetic = elidable(id);
  return arithmetic ? with_storage_rounding(*arithmetic, stored, {}) : Bound();
}

bool Enclosures::exactly_seen(NodeId id) const {
  while (!anchored(id) && graph_.nodes[id].primitive == Primitive::kWindow) id = graph_.nodes[id].inputs[0];
  if (anchored(id)) return !unrounded(id, Array::scalar(1));
  return graph_.nodes[id].primitive == Primitive::kLeaf;
}

Arithmetic Enclosures::arithmetic(NodeId id) const {
  return profile_ != nullptr ? arithmetic_of(graph_, graph_.nodes[id], *profile_) : replay_arithmetic();
}

// Radius of a node's result, given its inputs' and its value: what they carry and its own error.
Bound Enclosures::enclose(NodeId id, const std::vector<Array>& centres, const std::vector<Bound>& radii,
                          const Array& value) const {
  const Node& node = graph_.nodes[id];
  const PrimitiveTraits& primitive = traits(node.primitive);
  const bool moved = std::ranges::any_of(radii, [](const Bound& radius) { return static_cast<bool>(radius); });
  Bound carried;
  if (moved) carried = primitive.radius(node.attributes, centres, radii, value);
  std::vector<Array> farthest;
  if (moved && !row_normalised(node.primitive) && !of_result_alone(node.primitive, node.attributes))
    for (std::size_t i = 0; i < centres.size(); ++i) farthest.push_back(inflated(centres[i], radii[i]));
  return sum(carried, primitive.local_error(node.attributes, arithmetic(id), farthest.empty() ? centres : farthest,
                                            inflated(value, carried)));
}

Later<bool> Explosions::add(NodeId id, std::vector<NodeId> before, Later<bool> by_itself,
                            const std::shared_ptr<Explosions>& all) {
  all->open_.push_back({id, std::move(before), std::move(by_itself)});
  return Later<bool>(std::function<bool()>([all, id] {
    std::set<NodeId>& exploded = all->exploded_;
    for (const Open& one : std::exchange(all->open_, {}))
      if (one.by_itself || std::ranges::any_of(one.before, [&](NodeId node) { return exploded.contains(node); }))
        exploded.insert(one.id);
    return exploded.contains(id);
  }));
}

// An anchor's own radius is that of its segment, so its inputs are used where it is wanted itself; what lies behind it
// is not used by its consumers.
Enclosures::Enclosures(const Graph& graph, const Replay& replay, const std::vector<NodeId>& wanted,
                       const Profile* profile, const Overrides& anchors, const std::map<NodeId, Array>* freedoms)
    : graph_(graph),
      replay_(replay),
      profile_(profile),
      anchors_(anchors),
      freedoms_(freedoms),
      uses_(graph.nodes.size(), 0),
      wanted_(graph.nodes.size(), false),
      known_(graph.nodes.size(), false),
      enclosures_(graph.nodes.size()),
      explosions_(std::make_shared<Explosions>()) {
  for (NodeId id : wanted) {
    ++uses_[id];
    wanted_[id] = true;
  }
  // A device takes node after node. Freedoms are those of nodes.
  const bool by_chains = freedoms == nullptr && current_device() == nullptr;
  const std::vector<bool> whole = by_chains ? taken_whole(graph) : std::vector<bool>();
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    if (uses_[id] == 0) continue;
    if (by_chains && is_elementwise(graph.nodes[id].primitive))
      if (auto chain = chain_before(graph, {id}, [&](NodeId node) { return anchored(node) || whole[node]; }))
        chains_.emplace(id, std::move(*chain));
    for (NodeId input : taken_by(id)) ++uses_[input];
  }
}

std::vector<bool> taken_whole(const Graph& graph) {
  std::vector<bool> whole(graph.nodes.size(), false);
  const std::vector<bool> needed = needed_nodes(graph);
  std::vector<std::size_t> readers(graph.nodes.size(), 0);
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    if (!needed[id]) continue;
    const Node& node = graph.nodes[id];
    const bool hands_on = reshapes(graph, node);
    for (NodeId input : node.inputs) {
      const bool in_place = is_elementwise(node.primitive) && count(node.shape) == count(graph.nodes[input].shape);
      whole[input] = whole[input] || (hands_on ? whole[id] : !in_place);
      readers[input] += hands_on ? readers[id] : 1;
    }
  }
  std::vector<std::size_t> steps(graph.nodes.size(), 0);  // At most, of a chain that ends there.
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    const bool elementwise = is_elementwise(node.primitive);
    if (!elementwise && !reshapes(graph, node)) continue;
    steps[id] = elementwise ? 1 : 0;
    for (NodeId input : node.inputs)
      if (!whole[input]) steps[id] += steps[input];
    whole[id] = whole[id] || steps[id] > kStepsMax || (readers[id] > 1 && readers[id] * steps[id] > kPassedMax);
  }
  return whole;
}

std::vector<NodeId> Enclosures::taken_by(NodeId id) const {
  const auto chain = chains_.find(id);
  if (chain != chains_.end()) return enclosed_sources(graph_, chain->second, anchors_);
  std::vector<NodeId> inputs = graph_.nodes[id].inputs;
  std::erase_if(inputs, [&](NodeId input) { return anchored(input); });
  return inputs;
}

Enclosure Enclosures::take(NodeId id) {
  std::vector<NodeId> open{id}, missing;
  while (!open.empty()) {
    const NodeId next = open.back();
    open.pop_back();
    if (known_[next]) continue;
    known_[next] = true;
    missing.push_back(next);
    std::ranges::copy(taken_by(next), std::back_inserter(open));
  }
  std::sort(missing.begin(), missing.end());
  std::vector<NodeId> unknown;
  for (NodeId node : missing) {
    const auto chain = chains_.find(node);
    enclosures_[node] = chain == chains_.end() ? compute(node) : compute(node, chain->second);
    if (!enclosures_[node].exploded.known()) unknown.push_back(node);
    if (unknown.size() >= kUnknownMax) {
      for (NodeId one : unknown) enclosures_[one].exploded = enclosures_[one].exploded.get();
      unknown.clear();
    }
    if (chain != chains_.end()) continue;  // Which has taken its sources.
    for (NodeId input : taken_by(node)) use(input);
  }
  Enclosure result = enclosures_[id];
  use(id);
  return result;
}

void Enclosures::leave(NodeId id) {
  std::vector<NodeId> open{id};
  while (!open.empty()) {
    const NodeId next = open.back();
    open.pop_back();
    if (!use(next) || known_[next]) continue;
    known_[next] = true;
    std::ranges::copy(taken_by(next), std::back_inserter(open));
  }
}

bool Enclosures::use(NodeId id) {
  if (--uses_[id] > 0) return false;
  enclosures_[id].radius = Bound();
  replay_.forget_computed(id);
  return true;
}

// Whether its radius is looked at before consumers use it: what elementwise nodes and movement make of one that
// exploded is infinite, or has exploded all the same where a product or a reduction takes it.
bool Enclosures::looked_at(NodeId id) const {
  const Primitive primitive = graph_.nodes[id].primitive;
  return wanted_[id] ||
         !(is_elementwise(primitive) || primitive == Primitive::kWindow || primitive == Primitive::kAssemble);
}

Bound Enclosures::freedom(NodeId id) const {
  if (freedoms_ == nullptr) return {};
  const auto found = freedoms_->find(id);
  return found == freedoms_->end() ? Bound() : Bound{found->second};
}

// Beyond it an execution that holds the value in its format holds an infinity: what that makes of it, and of what comes
// after it, no enclosure of finite numbers tells. What a formula has in between nobody holds.
double Enclosures::overflows_beyond(NodeId id) const {
  const Format held = graph_.nodes[id].result;
  const bool overflows = profile_ != nullptr && is_float(held) && !graph_.origins[graph_.nodes[id].origin].defined;
  return overflows ? kOverflows * largest_finite(held) : HUGE_VAL;
}

Enclosure Enclosures::compute(NodeId id) {
  const Node& node = graph_.nodes[id];
  if (node.primitive == Primitive::kLeaf) return {freedom(id)};
  std::vector<Array> centres;
  std::vector<Bound> radii;
  std::vector<NodeId> open;  // Inputs of which it is not known yet whether they exploded.
  for (NodeId input : node.inputs) {
    if (!anchored(input)) {
      const Later<bool>& exploded = enclosures_[input].exploded;
      if (exploded.known() && exploded) return {{}, true};
      if (!exploded.known()) open.push_back(input);
    }
    centres.push_back(replay_.value(input));
    radii.push_back(anchored(input) ? unrounded(input, centres.back()) : enclosures_[input].radius);
  }
  const Array value = replay_.computed(id);
  Enclosure result{sum(freedom(id), enclose(id, centres, radii, value))};
  const bool moves = node.primitive == Primitive::kWindow || node.primitive == Primitive::kAssemble;
  Later<bool> exploded = false;
  if (result.radius && !(moves && !wanted_[id])) {
    const auto beyond_use = [looked_at = looked_at(id), most = overflows_beyond(id)](const Largest& largest) {
      return (looked_at && largest.exploded()) || largest.beyond(most);
    };
    exploded = current_operations().largest(result.radius.values, value).then(beyond_use);
  }
  if (exploded.known() && exploded) return {{}, true};
  if (!exploded.known() || !open.empty())
    result.exploded = Explosions::add(id, std::move(open), std::move(exploded), explosions_);
  return result;
}

// All before it that is not taken whole is passed at once: what lies between takes no memory.
Enclosure Enclosures::compute(NodeId id, const TiledChain& chain) {
  EnclosedChain enclosed(chain, this);
  const Array value = Array::uninitialized(graph_.nodes[id].shape);
  Array radius = Array::uninitialized(graph_.nodes[id].shape);
  std::vector<char> moved(static_cast<std::size_t>(count_tiles(chain)));
  for_each_index(count_tiles(chain), [&](std::int64_t index) {
    const Tile tile = enclosed.tile(index);
    std::copy_n(tile.ends[0].data(), tile.length, value.address() + tile.begin);
    moved[static_cast<std::size_t>(index)] = static_cast<bool>(tile.radii[0]);
    if (tile.radii[0])
      std::copy_n(tile.radii[0].values.materialize().data(), tile.length, radius.address() + tile.begin);
    else
      std::fill_n(radius.address() + tile.begin, tile.length, 0.0);
  });
  replay_.hold(id, value);
  if (enclosed.exploded(looked_at(id))[chain.ends[0]]) return {{}, true};
  return {std::ranges::find(moved, 1) == moved.end() ? Bound() : Bound{radius}};
}

std::vector<NodeId> enclosed_sources(const Graph& graph, const TiledChain& chain, const Overrides& anchors) {
  std::vector<NodeId> sources = chain.sources;
  std::erase_if(sources,
                [&](NodeId id) { return anchors.count(id) != 0 || graph.nodes[id].primitive == Primitive::kLeaf; });
  return sources;
}

EnclosedChain::EnclosedChain(const TiledChain& chain, Enclosures* enclosures)
    : chain_(chain),
      enclosures_(*enclosures),
      lost_(chain.sources.size(), false),
      tiles_(enclosures->graph_, enclosures->replay_, chain, balls(enclosures)),
      largest_(static_cast<std::size_t>(count_tiles(chain)), std::vector<Largest>()) {}

ChainBalls EnclosedChain::balls(Enclosures* enclosures) {
  ChainBalls balls;
  const std::vector<NodeId> enclosed = enclosed_sources(enclosures->graph_, chain_, enclosures->anchors_);
  for (NodeId id : chain_.sources) {
    ChainBalls::Source& source = balls.sources.emplace_back();
    if (enclosures->anchored(id)) {
      const std::optional<Arithmetic> arithmetic = enclosures->elidable(id);
      if (arithmetic && with_storage_rounding(*arithmetic, Array::scalar(1), {})) source.unrounded = arithmetic;
    } else if (std::ranges::find(enclosed, id) != enclosed.end()) {
      const Enclosure enclosure = enclosures->take(id);
      lost_[balls.sources.size() - 1] = enclosure.exploded;
      if (enclosure.radius) source.radii = {enclosure.radius.values.materialize()};
    }
  }
  for (const TiledChain::Step& step : chain_.steps) balls.steps.push_back(enclosures->arithmetic(step.node));
  return balls;
}

Tile EnclosedChain::tile(std::int64_t index) {
  Tile tile = tiles_.tile(index);
  largest_[static_cast<std::size_t>(index)] = std::move(tile.largest);
  return tile;
}

std::vector<bool> EnclosedChain::exploded(bool look_at_ends) const {
  std::vector<bool> exploded(lost_.begin(), lost_.end());
  for (std::size_t k = 0; k < chain_.steps.size(); ++k) {
    Largest whole;
    for (const Later<std::vector<Largest>>& tile : largest_) whole.join(tile.get()[k]);
    const auto before = [&](std::size_t input) { return exploded[input]; };
    const bool looked_at = look_at_ends && std::ranges::find(chain_.ends, exploded.size()) != chain_.ends.end();
    exploded.push_back((looked_at && whole.exploded()) ||
                       whole.beyond(enclosures_.overflows_beyond(chain_.steps[k].node)) ||
                       std::ranges::any_of(chain_.steps[k].inputs, before));
  }
  return exploded;
}

}  // namespace plumbline
