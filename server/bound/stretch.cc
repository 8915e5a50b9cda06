#include "server/bound/stretch.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

namespace plumbline {
namespace {

constexpr std::int64_t kCountMin = 1 << 14;
constexpr std::int64_t kTile = 1 << 14;  // Smaller ones spend their time in allocation; a dozen steps take 4 MB.

// Elements of all inputs of more than one element lie in the order of the node's own.
bool flat(const Graph& graph, const Node& node) {
  if (!is_elementwise(node.primitive)) return false;
  const std::int64_t n = count(node.shape);
  return std::ranges::all_of(node.inputs, [&](NodeId input) {
    const std::int64_t m = count(graph.nodes[input].shape);
    return m == n || m == 1;
  });
}

// Its input's elements, in their order.
bool hands_on(const Graph& graph, const Node& node) {
  if (node.primitive != Primitive::kWindow || node.attributes.view.offset != 0) return false;
  const View& view = node.attributes.view;
  return count(node.shape) == count(graph.nodes[node.inputs[0]].shape) && view.strides == row_major_strides(view.sizes);
}

class Builder {
 public:
  Builder(const Graph& graph, const std::function<bool(NodeId)>& stop) : graph_(graph), stop_(stop) {}

  std::optional<Stretch> build(const std::vector<NodeId>& ends) {
    Stretch& s = stretch_;
    if (ends.empty()) return std::nullopt;
    s.count = count(graph_.nodes[ends.front()].shape);
    if (s.count < kCountMin) return std::nullopt;
    // What is computed at an end counts, what its consumers see may be another value: then it is a source as well.
    std::vector<std::pair<NodeId, bool>> found;  // By end: the node, and whether it is a step.
    std::vector<NodeId> open;
    for (NodeId end : ends) {
      const Node& node = graph_.nodes[end];
      if (count(node.shape) != s.count) return std::nullopt;
      const bool handed = hands_on(graph_, node);
      const NodeId from = handed ? made(node.inputs[0]) : end;
      const bool step = handed ? inside(from) : flat(graph_, node);
      if (!handed && !step && (node.primitive != Primitive::kLeaf || stop_(end))) return std::nullopt;
      found.emplace_back(from, step);
      if (step)
        open.push_back(from);
      else
        sources_.emplace(from, 0);
    }
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (!steps_.emplace(id, 0).second) continue;
      for (NodeId input : graph_.nodes[id].inputs) {
        const NodeId from = made(input);
        if (inside(from))
          open.push_back(from);
        else
          sources_.emplace(from, 0);
      }
    }
    for (auto& [id, index] : sources_) {
      index = s.sources.size();
      s.sources.push_back(id);
    }
    for (auto& [id, index] : steps_) {
      index = s.sources.size() + s.steps.size();
      s.steps.push_back({id, {}});
      for (NodeId input : graph_.nodes[id].inputs) {
        const NodeId from = made(input);
        s.steps.back().inputs.push_back(inside(from) ? steps_.at(from) : sources_.at(from));
      }
    }
    for (const auto& [id, step] : found) s.ends.push_back(step ? steps_.at(id) : sources_.at(id));
    return std::move(s);
  }

 private:
  // The node whose value a consumer of `id` reads.
  NodeId made(NodeId id) const {
    while (!stop_(id) && hands_on(graph_, graph_.nodes[id])) id = graph_.nodes[id].inputs[0];
    return id;
  }
  bool inside(NodeId id) const {
    return count(graph_.nodes[id].shape) == stretch_.count && flat(graph_, graph_.nodes[id]) && !stop_(id);
  }

  const Graph& graph_;
  const std::function<bool(NodeId)>& stop_;
  Stretch stretch_;
  std::map<NodeId, std::size_t> sources_, steps_;
};

// On a device one tile is all: its threads are the device's own.
std::int64_t tile_length(std::int64_t elements) { return current_device() != nullptr ? elements : kTile; }

}  // namespace

std::optional<Stretch> stretch_before(const Graph& graph, const std::vector<NodeId>& ends,
                                      const std::function<bool(NodeId)>& stop) {
  return Builder(graph, stop).build(ends);
}

std::vector<StretchGroup> group_ends(const Graph& graph, const std::vector<std::vector<NodeId>>& sets,
                                     const std::function<bool(NodeId)>& stop) {
  std::vector<StretchGroup> groups;
  std::map<NodeId, std::size_t> group_of;  // By step of a stretch.
  for (std::size_t index = 0; index < sets.size(); ++index) {
    std::optional<Stretch> stretch = stretch_before(graph, sets[index], stop);
    std::size_t group = groups.size();
    if (stretch)
      for (const Stretch::Step& step : stretch->steps)
        if (const auto found = group_of.find(step.node); found != group_of.end()) group = found->second;
    if (group == groups.size()) groups.push_back({});
    groups[group].members.push_back(index);
    if (!stretch) continue;
    for (const Stretch::Step& step : stretch->steps) group_of.emplace(step.node, group);
    groups[group].stretch = std::move(stretch);
  }
  for (StretchGroup& group : groups) {
    if (group.members.size() < 2) continue;
    std::vector<NodeId> ends;
    for (std::size_t index : group.members) std::ranges::copy(sets[index], std::back_inserter(ends));
    group.stretch = stretch_before(graph, ends, stop);
  }
  return groups;
}

Array Tile::of(const Array& whole) const {
  if (whole.count() == 1) return whole.reshape({});
  return whole.window({{length}, {1}, begin});
}

std::int64_t count_tiles(std::int64_t elements) {
  const std::int64_t length = tile_length(elements);
  return length == 0 ? 0 : (elements + length - 1) / length;
}

Tiles::Tiles(const Graph& graph, const Replay& replay, const Stretch& stretch) : graph_(graph), stretch_(stretch) {
  for (NodeId id : stretch.sources) {
    const LeafValue leaf = replay.packed(id);
    sources_.push_back(leaf ? leaf : LeafValue(replay.value(id).materialize()));
  }
}

Tile Tiles::tile(std::int64_t index) const {
  const std::int64_t length = tile_length(stretch_.count);
  Tile tile{index * length, std::min(length, stretch_.count - index * length), {}};
  for (const LeafValue& source : sources_)
    tile.values.push_back(source.packed() && source.count() > 1 ? source.part(tile.begin, tile.length)
                                                                : tile.of(source));
  std::vector<Array> inputs;
  for (const Stretch::Step& step : stretch_.steps) {
    const Node& node = graph_.nodes[step.node];
    inputs.clear();
    for (std::size_t input : step.inputs) inputs.push_back(tile.values[input]);
    tile.values.push_back(traits(node.primitive).evaluate(node.attributes, {tile.length}, inputs));
  }
  return tile;
}

void for_each_index(std::int64_t tiles, const std::function<void(std::int64_t)>& body) {
  cpu::parallel_for(tiles, 4, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) body(t);
  });
}

void for_each_tile(const Graph& graph, const Replay& replay, const Stretch& stretch,
                   const std::function<void(std::int64_t, const Tile&)>& body) {
  const Tiles tiles(graph, replay, stretch);
  for_each_index(count_tiles(stretch), [&](std::int64_t index) { body(index, tiles.tile(index)); });
}

void look(const Graph& graph, const Replay& replay, const std::vector<Look>& looks) {
  std::vector<std::vector<NodeId>> ends;
  ends.reserve(looks.size());
  for (const Look& one : looks) ends.push_back(one.ends);
  for (const StretchGroup& group : group_ends(graph, ends, [&](NodeId id) { return replay.at_hand(id); })) {
    if (!group.stretch) {
      looks[group.members.front()].whole();
      continue;
    }
    const Stretch& stretch = *group.stretch;
    for_each_tile(graph, replay, stretch, [&](std::int64_t index, const Tile& tile) {
      std::span<const std::size_t> rest = stretch.ends;
      for (std::size_t member : group.members) {
        const std::size_t count = looks[member].ends.size();
        looks[member].tile(stretch, index, tile, rest.first(count));
        rest = rest.subspan(count);
      }
    });
  }
}

}  // namespace plumbline
