#include "server/bound/findings/unread.h"

#include <map>
#include <string>

#include "kernels/operations.h"

namespace plumbline {
namespace {

constexpr std::int64_t kElementsMax = 1 << 20;  // A larger leaf is not looked at, since each element is numbered.

// What of a leaf is read.
struct Reading {
  NodeId leaf = 0;
  std::vector<bool> read;
  std::int64_t elements = 0;  // That are read.
  NodeId first_part = 0;
  std::optional<NodeId> taken;  // The first part whose line is known.
};

void read(const Array& numbers, Reading* reading) {
  const Array each = numbers.on_host();
  for (std::int64_t i = 0; i < each.count(); ++i) {
    const auto element = static_cast<std::size_t>(each.data()[i]);
    reading->elements += !reading->read[element];
    reading->read[element] = true;
  }
}

// What is read at all: of a part that was read, and whose result was lost, the reading is not at fault.
std::vector<Reading> readings(const LocalizeSide& side) {
  std::vector<Reading> found;
  const std::vector<bool> needed = ancestors(side.graph, side.failing);
  std::map<NodeId, std::pair<std::size_t, Array>> views;  // A view names its leaf, and which of its elements it shows.
  for (const GraphLeaf& leaf : side.graph.leaves) {
    const std::int64_t elements = count(side.graph.nodes[leaf.node].shape);
    if (leaf.role != LeafRole::kData || !needed[leaf.node] || elements < 2 || elements > kElementsMax) continue;
    Array numbers = Array::uninitialized(side.graph.nodes[leaf.node].shape);
    for (std::int64_t i = 0; i < elements; ++i) numbers.data()[i] = static_cast<double>(i);
    views[leaf.node] = {found.size(), numbers};
    found.push_back({leaf.node, std::vector<bool>(static_cast<std::size_t>(elements)), 0, leaf.node, std::nullopt});
    for (NodeId part : side.graph.parts)
      if (!found.back().taken && side.graph.nodes[part].inputs[0] == leaf.node) found.back().taken = part;
  }
  for (NodeId id = 0; id < side.graph.nodes.size(); ++id) {
    const Node& node = side.graph.nodes[id];
    for (NodeId input : node.inputs) {
      const auto view = views.find(input);
      if (view == views.end()) continue;
      Reading& reading = found[view->second.first];
      if (node.primitive != Primitive::kWindow) {
        read(view->second.second, &reading);
        continue;
      }
      views[id] = {view->second.first,
                   traits(Primitive::kWindow).evaluate(node.attributes, node.shape, {&view->second.second, 1})};
      if (reading.first_part == reading.leaf) reading.first_part = id;
    }
  }
  return found;
}

Unread unread(const Graph& graph, const Reading& less, const Reading& more, bool in_reference) {
  const Origin& origin = graph.origins[graph.nodes[less.first_part].origin];
  return {std::string(in_reference ? "the reference" : "the target") + " reads " + std::to_string(less.elements) +
              " elements of data (" + (origin.source.empty() ? origin.op : origin.source) +
              ") of which the other program reads " + std::to_string(more.elements),
          less.taken, in_reference};
}

}  // namespace

std::optional<Unread> unread_data(const LocalizeSide& target, const LocalizeSide& reference) {
  const std::vector<Reading> ours = readings(target), theirs = readings(reference);
  for (const Reading& mine : ours) {
    for (const Reading& other : theirs) {
      if (mine.read.size() != other.read.size() || mine.elements == 0 || other.elements == 0) continue;
      if (mine.elements == other.elements) continue;
      const Array x = target.replay.value(mine.leaf), y = reference.replay.value(other.leaf);
      if (current_operations().count_differing(x.reshape({x.count()}), y.reshape({y.count()})) > 0) continue;
      const bool less = mine.elements < other.elements;
      return less ? unread(target.graph, mine, other, false) : unread(reference.graph, other, mine, true);
    }
  }
  return std::nullopt;
}

}  // namespace plumbline
