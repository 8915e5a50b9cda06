#include "server/bound/replay/tiles.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "kernels/cpu/parallel.h"
#include "kernels/device.h"
#include "kernels/strided.h"

namespace plumbline {
namespace {

constexpr std::int64_t kCountMin = 1 << 14;
constexpr std::int64_t kTile = 1 << 14;  // Smaller ones spend their time in allocation; a dozen steps take 4 MB.

// Over the elements of a node, those of its input are spread that is neither of one element nor of as many.
Shape spread_over(const Graph& graph, const Node& node, NodeId input) {
  const std::int64_t m = count(graph.nodes[input].shape);
  return m == 1 || m == count(node.shape) ? Shape() : node.shape;
}

// Elements [begin, begin + length) of a view, row-major.
Array elements_of(const Array& x, std::int64_t begin, std::int64_t length) {
  if (current_device() != nullptr) return x.materialize().reshape({length});
  const View view = view_of(x);
  const auto dims = merged_dimensions<1>(x.shape(), {&view});
  const std::int64_t stride = dims.back().strides[0];
  Array part = Array::uninitialized({length});
  double* to = part.data();
  for_each_run<1>(dims, begin, begin + length, [&](std::int64_t n, const std::array<std::int64_t, 1>& at) {
    const double* const from = x.data() + at[0];
    if (stride == 0)
      std::fill_n(to, n, *from);
    else
      for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
    to += n;
  });
  return part;
}

class Builder {
 public:
  Builder(const Graph& graph, const std::function<bool(NodeId)>& stop) : graph_(graph), stop_(stop) {}

  std::optional<TiledChain> build(const std::vector<NodeId>& ends) {
    TiledChain& s = chain_;
    if (ends.empty()) return std::nullopt;
    s.count = count(graph_.nodes[ends.front()].shape);
    if (s.count < kCountMin) return std::nullopt;
    // What is computed at an end counts, what its consumers see may be another value: then it is a source as well.
    std::vector<std::pair<NodeId, bool>> found;  // Each end is a node, with whether it is a step.
    std::vector<NodeId> open;
    for (NodeId end : ends) {
      const Node& node = graph_.nodes[end];
      if (count(node.shape) != s.count) return std::nullopt;
      const bool handed = reshapes(graph_, node);
      const NodeId from = handed ? made(node.inputs[0]) : end;
      const bool step = handed ? inside(from) : is_elementwise(node.primitive);
      if (!handed && !step && (node.primitive != Primitive::kLeaf || stop_(end))) return std::nullopt;
      found.emplace_back(from, step);
      if (step)
        open.push_back(from);
      else
        sources_.emplace(Source(from, {}), 0);
    }
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (!steps_.emplace(id, 0).second) continue;
      for (NodeId input : graph_.nodes[id].inputs) {
        const Source source = read(graph_.nodes[id], input);
        if (inside(source.first))
          open.push_back(source.first);
        else
          sources_.emplace(source, 0);
      }
    }
    for (auto& [source, index] : sources_) {
      index = s.sources.size();
      s.sources.push_back(source.first);
      s.spread.push_back(source.second);
    }
    for (auto& [id, index] : steps_) {
      index = s.sources.size() + s.steps.size();
      s.steps.push_back({id, {}});
      for (NodeId input : graph_.nodes[id].inputs) {
        const Source source = read(graph_.nodes[id], input);
        s.steps.back().inputs.push_back(inside(source.first) ? steps_.at(source.first) : sources_.at(source));
      }
    }
    for (const auto& [id, step] : found) s.ends.push_back(step ? steps_.at(id) : sources_.at(Source(id, {})));
    return std::move(s);
  }

 private:
  using Source = std::pair<NodeId, Shape>;  // With the shape that its elements are spread over.

  Source read(const Node& node, NodeId input) const {
    Shape spread = spread_over(graph_, node, input);
    return spread.empty() ? Source(made(input), {}) : Source(input, std::move(spread));
  }
  // The node whose value a consumer of `id` reads.
  NodeId made(NodeId id) const {
    while (!stop_(id) && reshapes(graph_, graph_.nodes[id])) id = graph_.nodes[id].inputs[0];
    return id;
  }
  bool inside(NodeId id) const {
    return count(graph_.nodes[id].shape) == chain_.count && is_elementwise(graph_.nodes[id].primitive) && !stop_(id);
  }

  const Graph& graph_;
  const std::function<bool(NodeId)>& stop_;
  TiledChain chain_;
  std::map<Source, std::size_t> sources_;
  std::map<NodeId, std::size_t> steps_;
};

// On a device one tile is all: its threads are the device's own.
std::int64_t tile_length(std::int64_t elements) { return current_device() != nullptr ? elements : kTile; }

}  // namespace

std::optional<TiledChain> chain_before(const Graph& graph, const std::vector<NodeId>& ends,
                                       const std::function<bool(NodeId)>& stop) {
  return Builder(graph, stop).build(ends);
}

std::vector<ChainGroup> group_ends(const Graph& graph, const std::vector<std::vector<NodeId>>& sets,
                                   const std::function<bool(NodeId)>& stop) {
  std::vector<ChainGroup> groups;
  std::map<NodeId, std::size_t> group_of;  // The key is a step of a chain.
  for (std::size_t index = 0; index < sets.size(); ++index) {
    std::optional<TiledChain> chain = chain_before(graph, sets[index], stop);
    std::size_t group = groups.size();
    if (chain)
      for (const TiledChain::Step& step : chain->steps)
        if (const auto found = group_of.find(step.node); found != group_of.end()) group = found->second;
    if (group == groups.size()) groups.push_back({});
    groups[group].members.push_back(index);
    if (!chain) continue;
    for (const TiledChain::Step& step : chain->steps) group_of.emplace(step.node, group);
    groups[group].chain = std::move(chain);
  }
  for (ChainGroup& group : groups) {
    if (group.members.size() < 2) continue;
    std::vector<NodeId> ends;
    for (std::size_t index : group.members) std::ranges::copy(sets[index], std::back_inserter(ends));
    group.chain = chain_before(graph, ends, stop);
  }
  return groups;
}

std::int64_t count_tiles(std::int64_t elements) {
  const std::int64_t length = tile_length(elements);
  return length == 0 ? 0 : (elements + length - 1) / length;
}

namespace {

// All of its elements are one that lies in memory, and there are several.
bool is_expanded(const Array& x) {
  if (x.count() == 1) return false;
  for (std::size_t axis = 0; axis < x.shape().size(); ++axis)
    if (x.shape()[axis] > 1 && x.strides()[axis] != 0) return false;
  return true;
}

// A power of one number is computed in another way than one of many.
bool is_exponent(const Graph& graph, const TiledChain& chain, std::size_t source) {
  return std::ranges::any_of(chain.steps, [&](const TiledChain::Step& step) {
    return graph.nodes[step.node].primitive == Primitive::kPow && step.inputs[1] == source;
  });
}

}  // namespace

Tiles::Tiles(const Graph& graph, const Replay& replay, const TiledChain& chain, ChainBalls balls)
    : chain_(chain), balls_(std::move(balls)), code_({}, false) {
  const bool enclosed = !balls_.sources.empty();  // Ends may be sources alone, without a step.
  std::vector<Chain::Source> sources;
  for (NodeId id : chain.sources) {
    const auto index = sources.size();
    const ChainBalls::Source ball = enclosed ? balls_.sources[index] : ChainBalls::Source();
    const bool enlarged = ball.radii || ball.unrounded;
    const Shape& spread = chain.spread[index];
    LeafValue value = spread.empty() ? replay.packed(id) : LeafValue(replay.value(id).materialize().expand(spread));
    if (!value) {
      Array all = replay.value(id);
      if (is_expanded(all) && !enlarged && !is_exponent(graph, chain, index) &&
          std::ranges::find(chain.ends, index) == chain.ends.end())
        all = Array::scalar(all.item());
      value = all.materialize();
    }
    sources_.push_back(std::move(value));
    if (ball.radii && !spread.empty())
      balls_.sources[index].radii = {ball.radii.values.reshape(graph.nodes[id].shape).expand(spread)};
    sources.push_back({sources_.back().count() == 1 && chain.count != 1, enlarged});
  }
  code_ = Chain(std::move(sources), enclosed);
  for (std::size_t s = 0; s < chain.steps.size(); ++s) {
    const Node& node = graph.nodes[chain.steps[s].node];
    code_.add(node.primitive, node.attributes, chain.steps[s].inputs, enclosed ? balls_.steps[s] : Arithmetic());
  }
  std::vector<std::size_t> ends;
  for (std::size_t end : chain.ends)
    if (end >= chain.sources.size() && std::ranges::find(ends, end) == ends.end()) ends.push_back(end);
  code_.ask(std::move(ends));
}

Tile Tiles::tile(std::int64_t index, std::span<const Array> into) const {
  const std::int64_t length = tile_length(chain_.count);
  Tile tile{index * length, std::min(length, chain_.count - index * length), {}, {}};
  const auto window = [&](const Array& whole) {
    if (whole.count() == 1) return whole.reshape({});
    if (!whole.contiguous()) return elements_of(whole, tile.begin, tile.length);
    return whole.reshape({whole.count()}).window({{tile.length}, {1}, tile.begin});
  };
  std::vector<ChainInput> inputs;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const LeafValue& source = sources_[i];
    ChainInput& input = inputs.emplace_back();
    const bool shown = std::ranges::find(chain_.ends, i) != chain_.ends.end();
    const bool read = shown || (!balls_.sources.empty() && balls_.sources[i].unrounded);
    if (!source.packed() || source.count() == 1)
      input.values = window(source);
    else if (read)
      input.values = source.part(tile.begin, tile.length);
    else
      input.bytes = source.bytes(tile.begin);
    input.format = source.format();
    if (balls_.sources.empty()) continue;
    const ChainBalls::Source& ball = balls_.sources[i];
    if (ball.radii) input.radii = {window(ball.radii.values)};
    if (ball.unrounded) input.radii = with_storage_rounding(*ball.unrounded, input.values, {});
  }
  std::vector<Array> places;
  for (const Array& whole : into) places.push_back(window(whole));
  ChainResult found = run(code_, inputs, tile.length, places);
  for (std::size_t end : chain_.ends) {
    const bool source = end < sources_.size();
    const auto k = static_cast<std::size_t>(std::ranges::find(code_.ends(), end) - code_.ends().begin());
    tile.ends.push_back(source ? inputs[end].values : found.values[k]);
    if (code_.enclosed()) tile.radii.push_back(source ? inputs[end].radii : found.radii[k]);
  }
  tile.largest = std::move(found.largest);
  return tile;
}

void for_each_index(std::int64_t tiles, const std::function<void(std::int64_t)>& body) {
  cpu::parallel_for(tiles, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) body(t);
  });
}

void for_each_part(std::int64_t elements,
                   const std::function<void(std::size_t part, std::int64_t begin, std::int64_t length)>& body) {
  if (current_device() != nullptr) return body(0, 0, elements);
  const auto parts = static_cast<std::int64_t>(count_parts(elements));
  const std::int64_t length = (elements + parts - 1) / parts;
  for_each_index(parts, [&](std::int64_t part) {
    const std::int64_t begin = part * length;
    if (begin < elements) body(static_cast<std::size_t>(part), begin, std::min(length, elements - begin));
  });
}

namespace {

// What some looks are shown of a chain's tiles.
class Shown {
 public:
  Shown(const Shown&) = delete;
  // `ends`: as many for each look as it has nodes.
  Shown(const Graph& graph, const Replay& replay, TiledChain chain, const std::vector<const Look*>& looks,
        std::span<const std::size_t> ends)
      : looks_(looks), chain_(std::move(chain)) {
    chain_.ends.clear();
    for (const Look* one : looks) {
      const std::size_t before = chain_.ends.size();
      for (std::size_t end : ends.first(one->ends.size())) {
        chain_.ends.push_back(end);
        if (one->operands && end >= chain_.sources.size())
          std::ranges::copy(chain_.steps[end - chain_.sources.size()].inputs, std::back_inserter(chain_.ends));
      }
      ends = ends.subspan(one->ends.size());
      counts_.push_back(chain_.ends.size() - before);
    }
    tiles_.emplace(graph, replay, chain_);
  }

  void show(std::int64_t index) const {
    const Tile tile = tiles_->tile(index);
    std::span<const Array> rest = tile.ends;
    for (std::size_t m = 0; m < looks_.size(); ++m) {
      looks_[m]->tile(index, tile, rest.first(counts_[m]));
      rest = rest.subspan(counts_[m]);
    }
  }

 private:
  const std::vector<const Look*> looks_;
  TiledChain chain_;
  std::vector<std::size_t> counts_;  // There is one for each look.
  std::optional<Tiles> tiles_;       // Of `chain_`.
};

}  // namespace

void look(const Graph& graph, const Replay& replay, const std::vector<Look>& looks) {
  std::vector<std::vector<NodeId>> ends;
  ends.reserve(looks.size());
  for (const Look& one : looks) ends.push_back(one.ends);
  const auto stop = [&](NodeId id) { return replay.overridden(id) || replay.at_hand(id); };
  for (const ChainGroup& group : group_ends(graph, ends, stop)) {
    if (!group.chain) {
      looks[group.members.front()].whole();
      continue;
    }
    std::vector<const Look*> all, unsampled;
    std::vector<NodeId> asked;  // By those that are not sampled.
    for (std::size_t member : group.members) {
      all.push_back(&looks[member]);
      if (looks[member].sampled) continue;
      unsampled.push_back(&looks[member]);
      std::ranges::copy(looks[member].ends, std::back_inserter(asked));
    }
    const Shown to_all(graph, replay, *group.chain, all, group.chain->ends);
    const std::int64_t tiles = count_tiles(*group.chain);
    std::optional<Shown> to_unsampled;
    if (!unsampled.empty() && unsampled.size() < all.size()) {
      const TiledChain chain = *chain_before(graph, asked, stop);
      to_unsampled.emplace(graph, replay, chain, unsampled, chain.ends);
    }
    for_each_index(tiles, [&](std::int64_t index) {
      if (unsampled.size() == all.size() || sampled(index, tiles))
        to_all.show(index);
      else if (to_unsampled)
        to_unsampled->show(index);
    });
  }
}

}  // namespace plumbline
