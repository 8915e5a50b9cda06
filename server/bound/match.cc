#include "server/bound/match.h"

#include <xxhash.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "server/bound/taps.h"
#include "server/bound/transplant.h"

namespace plumbline {
namespace {

using RowKey = std::pair<std::int64_t, XXH64_hash_t>;  // row length in elements, hash of its values

// Rows by content: a leaf is cut along its rows of every length in `lengths`, so that a batch matches its split or
// concatenation along the first dimension whatever the further shape.
std::set<RowKey> rows_of(const Array& values, std::int64_t length) {
  std::set<RowKey> rows;
  if (length <= 0 || values.count() % length != 0) return rows;
  for (std::int64_t i = 0; i < values.count(); i += length)
    rows.insert({length, XXH3_64bits(values.data() + i, static_cast<std::size_t>(length) * sizeof(double))});
  return rows;
}

bool is_data(const GraphLeaf& leaf) { return leaf.role == LeafRole::kData && !leaf.anchor; }

// By node: whether it is only written upon. Memory that a program keeps from step to step, as for the gradients that it
// exchanges, holds what an earlier step left.
std::vector<bool> written_upon(const Graph& graph) {
  std::vector<bool> written(graph.nodes.size(), false), read(graph.nodes.size(), false);
  for (const Node& node : graph.nodes)
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const bool base = i == 0 && node.primitive == Primitive::kAssemble && node.attributes.has_base;
      (base ? written : read)[node.inputs[i]] = true;
    }
  for (std::size_t id = 0; id < written.size(); ++id) written[id] = written[id] && !read[id];
  return written;
}

// Data leaves of `graph` with no content in common with `others`: neither is cut into rows of the other's length with
// all of the shorter one's rows found. Both directions are tried, since either side may hold the split.
std::vector<NodeId> foreign(const Graph& graph, const std::vector<LeafValue>& values, const Graph& other_graph,
                            const std::vector<LeafValue>& other_values) {
  std::vector<NodeId> result;
  std::map<std::int64_t, std::set<RowKey>> other_rows;  // by row length: rows of all other leaves cut to it
  auto rows_at = [&](std::int64_t length) -> const std::set<RowKey>& {
    auto [it, fresh] = other_rows.try_emplace(length);
    if (fresh)
      for (std::size_t i = 0; i < other_graph.leaves.size(); ++i)
        if (is_data(other_graph.leaves[i]) && other_values[i]) it->second.merge(rows_of(other_values[i], length));
    return it->second;
  };
  const std::vector<bool> background = written_upon(graph);
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) {
    if (!is_data(graph.leaves[i]) || !values[i] || values[i].count() <= 1 || background[graph.leaves[i].node]) continue;
    bool found = false;
    std::set<std::int64_t> lengths{values[i].count()};
    for (std::size_t j = 0; j < other_graph.leaves.size(); ++j)
      if (is_data(other_graph.leaves[j]) && other_values[j] && other_values[j].count() > 0 &&
          values[i].count() % other_values[j].count() == 0)
        lengths.insert(other_values[j].count());
    for (std::int64_t length : lengths) {
      const std::set<RowKey> own = rows_of(values[i], length);
      const std::set<RowKey>& theirs = rows_at(length);
      found = found || std::includes(theirs.begin(), theirs.end(), own.begin(), own.end());
    }
    if (!found) result.push_back(graph.leaves[i].node);
  }
  return result;
}

std::vector<NodeId> leaves_apart(const Graph& target, const Graph& reference) {
  std::map<std::string, std::int64_t> counts;
  for (const GraphLeaf& leaf : reference.leaves)
    if (persistent(leaf.role)) counts[leaf.name] = count(reference.nodes[leaf.node].shape);
  std::vector<bool> used;
  std::vector<NodeId> apart;
  for (const GraphLeaf& leaf : target.leaves) {
    if (!persistent(leaf.role) || unranked(leaf.name) == leaf.name || counts.count(leaf.name) != 0) continue;
    const auto whole = counts.find(std::string(unranked(leaf.name)));
    if (whole == counts.end() || whole->second != count(target.nodes[leaf.node].shape)) continue;
    if (used.empty()) used = used_by_taps(target);
    if (used[leaf.node]) apart.push_back(leaf.node);
  }
  return apart;
}

bool is_rounding(Format format, const Array& wide, const Array& narrow) {
  for (std::int64_t i = 0; i < wide.count(); ++i)
    if (round_to(format, wide.data()[i]) != narrow.data()[i]) return false;
  return true;
}

}  // namespace

LeafMatch match_leaves(const Graph& target, const std::vector<LeafValue>& target_values, const Graph& reference,
                       const std::vector<LeafValue>& reference_values) {
  LeafMatch match;
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < target.leaves.size(); ++i)
    if (named(target.leaves[i].role) && target_values[i]) by_name.emplace(target.leaves[i].name, i);

  match.reference_values = reference_values;
  for (std::size_t i = 0; i < reference.leaves.size(); ++i) {
    const GraphLeaf& leaf = reference.leaves[i];
    if (!named(leaf.role)) continue;
    const auto found = by_name.find(leaf.name);
    const Shape& shape = reference.nodes[leaf.node].shape;
    if (found == by_name.end() || target_values[found->second].count() != count(shape)) {
      if (leaf.role == LeafRole::kObserved) match.unpaired_inputs.push_back(leaf.name);
      if (!reference_values[i]) match.missing.push_back(leaf.name);
      continue;
    }
    const LeafValue& shared = target_values[found->second];
    if (leaf.role != LeafRole::kObserved && reference_values[i] && !bitwise_equal(reference_values[i], shared)) {
      match.drifted.push_back(leaf.name);
      const GraphLeaf& own = target.leaves[found->second];
      if (persistent(leaf.role) && !is_rounding(leaf.format, shared, reference_values[i]) &&
          !is_rounding(own.format, reference_values[i], shared))
        match.foreign_state.push_back(own.node);
    }
    match.reference_values[i] = shared.reshape(shape);
  }
  match.apart = leaves_apart(target, reference);
  match.foreign_data = foreign(target, target_values, reference, reference_values);
  match.foreign_reference_data = foreign(reference, reference_values, target, target_values);
  return match;
}

std::vector<RoundedLeaf> master_copies(const Graph& graph, const std::vector<LeafValue>& values) {
  std::vector<RoundedLeaf> result;
  for (std::size_t narrow = 0; narrow < graph.leaves.size(); ++narrow) {
    const GraphLeaf& leaf = graph.leaves[narrow];
    const bool half = leaf.format == Format::kFloat16 || leaf.format == Format::kBFloat16;
    if (!half || !persistent(leaf.role) || !values[narrow]) continue;
    for (std::size_t wide = 0; wide < graph.leaves.size(); ++wide) {
      const Format format = graph.leaves[wide].format;
      if ((format != Format::kFloat32 && format != Format::kFloat64) || !values[wide] ||
          values[wide].count() != values[narrow].count() || !is_rounding(leaf.format, values[wide], values[narrow]))
        continue;
      result.push_back({leaf.format, narrow, wide});
      break;
    }
  }
  return result;
}

std::vector<RoundedLeaf> rounded_leaves(const Graph& target, const std::vector<LeafValue>& target_values,
                                        const Graph& reference, const std::vector<LeafValue>& reference_values,
                                        const LeafMatch& match) {
  std::vector<RoundedLeaf> result;
  const std::set<NodeId> foreign(match.foreign_reference_data.begin(), match.foreign_reference_data.end());
  for (std::size_t r = 0; r < reference.leaves.size(); ++r) {
    if (foreign.count(reference.leaves[r].node) == 0) continue;
    for (std::size_t t = 0; t < target.leaves.size(); ++t) {
      if (!target_values[t] || target_values[t].count() != reference_values[r].count()) continue;
      for (Format format : {Format::kFloat32, Format::kFloat16, Format::kBFloat16})
        if (is_rounding(format, target_values[t], reference_values[r]) ||
            is_rounding(format, reference_values[r], target_values[t])) {
          result.push_back({format, t, r});
          break;
        }
    }
  }
  return result;
}

}  // namespace plumbline
