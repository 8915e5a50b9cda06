#include "server/bound/pair/side_by_side.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "server/bound/pair/agreement.h"

namespace plumbline {
namespace {

// The longest choice of the pairs that keeps both orders. The pairs ascend by their first index, and no index is in
// two.
SideBySide in_order(const SideBySide& pairs) {
  // Of each length, the pair with the smallest second index that a choice of that length ends with.
  std::vector<std::size_t> ends, before(pairs.size());
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    const auto at =
        std::ranges::lower_bound(ends, pairs[p].second, {}, [&](std::size_t end) { return pairs[end].second; });
    before[p] = at == ends.begin() ? p : *std::prev(at);
    if (at == ends.end())
      ends.push_back(p);
    else
      *at = p;
  }
  SideBySide chosen;
  if (ends.empty()) return chosen;
  for (std::size_t p = ends.back();; p = before[p]) {
    chosen.push_back(pairs[p]);
    if (before[p] == p) break;
  }
  std::ranges::reverse(chosen);
  return chosen;
}

// Pairs the first of a key with the other program's first, the second with its second, and so on.
template <class Key>
class InTurn {
 public:
  void add(const Key& key, std::size_t theirs) { open_[key].push_back(theirs); }
  std::optional<std::size_t> take(const Key& key) {
    const auto found = open_.find(key);
    if (found == open_.end() || found->second.empty()) return std::nullopt;
    const std::size_t theirs = found->second.front();
    found->second.pop_front();
    return theirs;
  }

 private:
  std::map<Key, std::deque<std::size_t>> open_;
};

struct PlaceKey {
  std::string op, module;
  Phase phase = Phase::kUnknown;
  Shape shape;
  auto operator<=>(const PlaceKey&) const = default;
};

using KeyOf = std::function<PlaceKey(const Graph&, NodeId)>;

void pair_between(const ListedProgram& target, const ListedProgram& reference, const KeyOf& key_of, SideBySide* pairs) {
  SideBySide all;
  std::size_t ours = 0, theirs = 0;
  const auto key_at = [&](const ListedProgram& program, std::size_t i) {
    return key_of(program.graph, program.operations[i].node);
  };
  const auto alike = [&](std::size_t i, std::size_t j) {
    return !target.operations[i].elsewhere && !reference.operations[j].elsewhere &&
           key_at(target, i) == key_at(reference, j);
  };
  const auto fill = [&](std::size_t our_end, std::size_t their_end) {
    // What both begin and end with stands beside itself, so that one operation more shifts none of it.
    for (; ours < our_end && theirs < their_end && alike(ours, theirs); ++ours, ++theirs)
      all.emplace_back(ours, theirs);
    SideBySide ending;
    for (; ours < our_end && theirs < their_end && alike(our_end - 1, their_end - 1); --our_end, --their_end)
      ending.emplace_back(our_end - 1, their_end - 1);
    InTurn<PlaceKey> open;
    for (std::size_t j = theirs; j < their_end; ++j)
      if (!reference.operations[j].elsewhere) open.add(key_at(reference, j), j);
    SideBySide found;
    for (std::size_t i = ours; i < our_end; ++i) {
      if (target.operations[i].elsewhere) continue;
      if (const auto j = open.take(key_at(target, i))) found.emplace_back(i, *j);
    }
    std::ranges::copy(in_order(found), std::back_inserter(all));
    all.insert(all.end(), ending.rbegin(), ending.rend());
  };
  for (const auto& [i, j] : *pairs) {
    fill(i, j);
    all.emplace_back(i, j);
    ours = i + 1;
    theirs = j + 1;
  }
  fill(target.operations.size(), reference.operations.size());
  *pairs = std::move(all);
}

}  // namespace

std::vector<ListedOperation> listed_operations(const Graph& graph, const Replay& replay) {
  std::map<std::uint32_t, NodeId> last;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.origin != 0 && node.primitive != Primitive::kConstant && replay.has(id)) last[node.origin] = id;
  }
  std::vector<ListedOperation> operations;
  operations.reserve(last.size());
  for (const auto& [origin, node] : last) operations.push_back({node});
  return operations;
}

SideBySide pair_by_value(const ListedProgram& target, const ListedProgram& reference) {
  InTurn<std::uint64_t> open;
  for (std::size_t j = 0; j < reference.operations.size(); ++j)
    if (const auto keys = value_keys(reference.replay.value(reference.operations[j].node)); !keys.empty())
      open.add(keys.front(), j);
  SideBySide found;
  for (std::size_t i = 0; i < target.operations.size(); ++i)
    for (const std::uint64_t key : value_keys(target.replay.value(target.operations[i].node)))
      if (const auto j = open.take(key)) {
        found.emplace_back(i, *j);
        break;
      }
  return in_order(found);
}

void pair_by_place(const ListedProgram& target, const ListedProgram& reference, SideBySide* pairs) {
  const auto origin = [](const Graph& graph, NodeId id) -> const Origin& {
    return graph.origins[graph.nodes[id].origin];
  };
  pair_between(
      target, reference,
      [&](const Graph& graph, NodeId id) {
        return PlaceKey{origin(graph, id).op, origin(graph, id).module, Phase::kUnknown, graph.nodes[id].shape};
      },
      pairs);
  pair_between(
      target, reference,
      [&](const Graph& graph, NodeId id) {
        return PlaceKey{origin(graph, id).op, "", Phase::kUnknown, graph.nodes[id].shape};
      },
      pairs);
  // One operation in place of another.
  pair_between(
      target, reference,
      [&](const Graph& graph, NodeId id) {
        return PlaceKey{"", origin(graph, id).module, origin(graph, id).phase, {count(graph.nodes[id].shape)}};
      },
      pairs);
}

}  // namespace plumbline
