#include "server/bound/match/correspondence.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "server/bound/match/repeats.h"
#include "server/bound/match/transplant.h"
#include "server/bound/replay/constants.h"
#include "server/bound/replay/taps.h"

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

bool is_read(const Graph& graph, NodeId id) {
  return std::ranges::any_of(
      graph.nodes, [id](const Node& node) { return std::ranges::find(node.inputs, id) != node.inputs.end(); });
}

bool is_data(const GraphLeaf& leaf) { return leaf.role == LeafRole::kData && !leaf.anchor; }

// Tells of each node whether it is only written upon. Memory that a program keeps from step to step, such as a buffer
// for the gradients that it exchanges, holds what an earlier step left.
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

// Whether it holds of all pairs of elements. Contents that differ are not read to their end.
bool of_all(const LeafValue& a, const LeafValue& b, const std::function<bool(double, double)>& holds) {
  if (a.count() != b.count()) return false;
  return of_all_parts(a.count(), [&](std::int64_t begin, std::int64_t length) {
    const Array x = a.part(begin, length), y = b.part(begin, length);
    return std::equal(x.data(), x.data() + length, y.data(), holds);
  });
}

// Gradients that the step before left, of a program that left nothing but zeros of them: it cleared them, and another
// program that cleared them in another way has none. One that is zero among others was computed.
std::set<NodeId> cleared_gradients(const Graph& graph, const std::vector<LeafValue>& values) {
  std::set<NodeId> cleared;
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) {
    const GraphLeaf& leaf = graph.leaves[i];
    if (!carried_gradient(leaf.role, leaf.name)) continue;
    const LeafValue& value = values[i];
    if (!value || !of_all(value, value, [](double x, double) { return x == 0; })) return {};
    cleared.insert(leaf.node);
  }
  return cleared;
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

bool is_rounding(Format format, const LeafValue& wide, const LeafValue& narrow) {
  return of_all(wide, narrow, [&](double x, double y) { return round_to(format, x) == y; });
}

// In base 2, few enough digits that somebody wrote the number: a computed one has them with a probability of 2^-12 in
// fp32.
bool written(Format format, double x) {
  int exponent = 0;
  const double digits = std::ldexp(std::frexp(x, &exponent), (traits(format).precision + 1) / 2);
  return digits == std::trunc(digits);
}

constexpr double kRoundings = 4;

// How far legal roundings may have put an element of `count` elsewhere.
double freedom(Format format, double x, std::int64_t count) {
  if (!is_float(format) || !std::isfinite(x) || written(format, x)) return 0;
  return (count == 1 ? 1 : kRoundings) * (unit_roundoff(format) * std::fabs(x) + half_smallest_subnormal(format));
}

// Whether both are legal roundings of one number, element by element.
bool within_freedom(Format format_a, const LeafValue& a, Format format_b, const LeafValue& b) {
  return of_all(a, b, [&](double p, double q) {
    if (p == q || (std::isnan(p) && std::isnan(q))) return true;
    return std::fabs(p - q) <= freedom(format_a, p, a.count()) + freedom(format_b, q, a.count());
  });
}

// The coarser format whose rounding of the one gives the other; kUnknown: none does.
Format rounding_between(const LeafValue& a, const LeafValue& b) {
  for (Format format : {Format::kFloat32, Format::kFloat16, Format::kBFloat16})
    if (is_rounding(format, a, b) || is_rounding(format, b, a)) return format;
  return Format::kUnknown;
}

// Whether an element in which two arrays differ by a rounding to the format has digits that a rounding leaves.
bool leaves_digits(Format format, const LeafValue& a, const LeafValue& b) {
  return !of_all(a, b, [&](double x, double y) { return x == y || written(format, round_to(format, x)); });
}

const Draw* draw_of(const Graph& graph, NodeId leaf) {
  const auto draw = std::ranges::find(graph.draws, leaf, &Draw::leaf);
  return draw == graph.draws.end() ? nullptr : &*draw;
}

// As far as is known: parameters that are tensors have no value yet.
bool one_distribution(const Draw* a, const Draw* b) {
  if (a == nullptr || b == nullptr) return true;
  const auto tensor = [](const Draw::Parameter& parameter) { return parameter.node.has_value(); };
  return a->family == b->family && a->numbers == b->numbers && std::ranges::none_of(a->place, tensor) &&
         std::ranges::none_of(b->place, tensor);
}

// Works out a correspondence, leaf by leaf of the reference.
class Matcher {
 public:
  Matcher(const Graph& target, const std::vector<LeafValue>& target_values, const Graph& reference,
          const std::vector<LeafValue>& reference_values, Matching matching)
      : target_(target),
        reference_(reference),
        reference_values_(reference_values),
        own_content_(matching == Matching::kOwnContent),
        target_cleared_(cleared_gradients(target, target_values)),
        reference_cleared_(cleared_gradients(reference, reference_values)),
        target_scalars_(scalars(target, target_values)),
        reference_scalars_(scalars(reference, reference_values)) {
    found_.target_values = target_values;
    found_.reference_values = reference_values;
    for (std::size_t i = 0; i < target.leaves.size(); ++i)
      if (named(target.leaves[i].role) && target_values[i]) by_name_.emplace(target.leaves[i].name, i);
  }

  Correspondence run() {
    match_draws();
    for (std::size_t i = 0; i < reference_.leaves.size(); ++i)
      if (named(reference_.leaves[i].role) && reference_.leaves[i].role != LeafRole::kRandom) match_named(i);
    free_unnamed();
    found_.apart = leaves_apart(target_, reference_);
    found_.foreign_data = foreign(target_, found_.target_values, reference_, found_.reference_values);
    found_.foreign_reference_data = foreign(reference_, found_.reference_values, target_, found_.target_values);
    match_data();
    return std::move(found_);
  }

 private:
  // Draws of one content are one, whatever their order; the others go by module and order, unless one program made a
  // draw twice (repeats.h).
  void match_draws() {
    std::multimap<XXH64_hash_t, std::size_t> by_content;
    for (std::size_t i = 0; i < target_.leaves.size(); ++i)
      if (target_.leaves[i].role == LeafRole::kRandom && found_.target_values[i])
        by_content.emplace(digest(found_.target_values[i]), i);
    std::set<std::size_t> claimed;
    std::vector<std::size_t> left;
    Repeats repeats(target_, reference_);
    const auto claim = [&](std::size_t t, std::size_t r) {
      claimed.insert(t);
      found_.draws.emplace_back(target_.leaves[t].node, reference_.leaves[r].node);
      repeats.add(target_.leaves[t].node, reference_.leaves[r].node);
    };
    for (std::size_t r = 0; r < reference_.leaves.size(); ++r) {
      if (reference_.leaves[r].role != LeafRole::kRandom) continue;
      const auto same = [&]() -> std::optional<std::size_t> {
        if (!found_.reference_values[r]) return std::nullopt;
        const auto [first, last] = by_content.equal_range(digest(found_.reference_values[r]));
        for (auto it = first; it != last; ++it)
          if (claimed.count(it->second) == 0 &&
              bitwise_equal(found_.target_values[it->second], found_.reference_values[r]))
            return it->second;
        return std::nullopt;
      }();
      if (same) {
        claim(*same, r);
      } else {
        left.push_back(r);
      }
    }
    for (std::size_t r : left) {
      const GraphLeaf& leaf = reference_.leaves[r];
      const auto named = by_name_.find(leaf.name);
      if (named != by_name_.end() && claimed.count(named->second) == 0 &&
          one_distribution(draw_of(target_, target_.leaves[named->second].node), draw_of(reference_, leaf.node)) &&
          repeats.fit(target_.leaves[named->second].node, leaf.node)) {
        claim(named->second, r);
        match_named(r);
      } else if (!found_.reference_values[r]) {
        found_.missing.push_back(leaf.name);
      } else {
        note(Evidence::kNone, true, leaf.node, std::nullopt);
      }
    }
    for (std::size_t t = 0; t < target_.leaves.size(); ++t)
      if (target_.leaves[t].role == LeafRole::kRandom && claimed.count(t) == 0)
        note(Evidence::kNone, false, target_.leaves[t].node, std::nullopt);
  }

  static XXH64_hash_t digest(const LeafValue& value) {
    const Array content = static_cast<Array>(value).materialize();
    return XXH3_64bits(content.data(), static_cast<std::size_t>(content.count()) * sizeof(double));
  }

  void match_named(std::size_t r) {
    const GraphLeaf& leaf = reference_.leaves[r];
    const auto named = by_name_.find(leaf.name);
    const Shape& shape = reference_.nodes[leaf.node].shape;
    LeafValue& theirs = found_.reference_values[r];
    if (named == by_name_.end() || found_.target_values[named->second].count() != count(shape)) {
      if (leaf.role == LeafRole::kObserved) found_.unpaired_inputs.push_back(leaf.name);
      if (!theirs)
        found_.missing.push_back(leaf.name);
      else if (persistent(leaf.role) && !holds(target_, found_.target_values, theirs) && !take_as_copy(r))
        set_free(true, r);
      return;
    }
    const std::size_t t = named->second;
    const GraphLeaf& own = target_.leaves[t];
    // A table that the target makes anew each time, and registered for another setting, may hold anything there.
    if (!theirs && leaf.role == LeafRole::kBuffer && is_read(reference_, leaf.node) && !is_read(target_, own.node)) {
      found_.missing.push_back(leaf.name);
      return;
    }
    if (theirs && target_cleared_.contains(own.node) != reference_cleared_.contains(leaf.node)) {
      set_free(false, t);
      set_free(true, r);
      return;
    }
    const LeafValue& shared = found_.target_values[t];
    if (leaf.role != LeafRole::kObserved && theirs && !bitwise_equal(theirs, shared)) {
      found_.drifted.push_back(leaf.name);
      const Format rounding = rounding_between(theirs, shared);
      const bool one = rounding != Format::kUnknown || within_freedom(own.format, shared, leaf.format, theirs);
      if (persistent(leaf.role) && !one) found_.foreign_state.push_back(own.node);
      if (own_content_ && persistent(leaf.role)) {
        set_free(false, t);
        set_free(true, r);
        return;
      }
      note(one ? Evidence::kRounding : Evidence::kNamed, true, leaf.node, own.node);
      found_.items.back().format = rounding;
    }
    theirs = shared.reshape(shape);
  }

  // A leaf of the reference that holds, bit by bit, what a parameter of its own holds, as weights that an optimizer
  // keeps in its own tensors: it goes the way of that. False: there is none, or it is not plain of which it is a copy.
  bool take_as_copy(std::size_t r) {
    const LeafValue own = reference_values_[r];
    if (own_content_ || of_all(own, own, [&](double x, double) { return written(reference_.leaves[r].format, x); }))
      return false;
    std::optional<std::size_t> one;
    for (std::size_t i = 0; i < reference_.leaves.size(); ++i) {
      const GraphLeaf& leaf = reference_.leaves[i];
      if (leaf.role != LeafRole::kParameter || !reference_values_[i] || !bitwise_equal(reference_values_[i], own))
        continue;
      const auto named = by_name_.find(leaf.name);
      if (named == by_name_.end() || found_.target_values[named->second].count() != own.count()) continue;
      if (one && !bitwise_equal(found_.target_values[*one], found_.target_values[named->second])) return false;
      one = named->second;
    }
    if (!one) return false;
    note(Evidence::kNamed, true, reference_.leaves[r].node, target_.leaves[*one].node);
    found_.reference_values[r] = found_.target_values[*one].reshape(reference_.nodes[reference_.leaves[r].node].shape);
    return true;
  }

  // The target's parameters, buffers and state that the reference has under no name and with no content.
  void free_unnamed() {
    std::map<std::string, std::int64_t> theirs;
    for (const GraphLeaf& leaf : reference_.leaves)
      if (named(leaf.role)) theirs[leaf.name] = count(reference_.nodes[leaf.node].shape);
    for (std::size_t t = 0; t < target_.leaves.size(); ++t) {
      const GraphLeaf& leaf = target_.leaves[t];
      const auto same = theirs.find(leaf.name);
      const bool shared = same != theirs.end() && same->second == count(target_.nodes[leaf.node].shape);
      if (persistent(leaf.role) && !shared && unranked(leaf.name) == leaf.name && found_.target_values[t] &&
          !holds(reference_, found_.reference_values, found_.target_values[t]))
        set_free(false, t);
    }
  }

  // Whether a leaf has this content.
  static bool holds(const Graph& graph, const std::vector<LeafValue>& values, const LeafValue& content) {
    for (std::size_t i = 0; i < graph.leaves.size(); ++i)
      if (values[i] && values[i].count() == content.count() && bitwise_equal(values[i], content)) return true;
    return false;
  }

  // Data of which the other program has no row.
  void match_data() {
    for (std::size_t r = 0; r < reference_.leaves.size(); ++r) {
      const GraphLeaf& leaf = reference_.leaves[r];
      if (!is_data(leaf) || !found_.reference_values[r] || !lone(reference_, leaf, found_.foreign_reference_data))
        continue;
      if (!is_float(leaf.format)) continue;
      const std::optional<std::size_t> one = own_content_ ? std::nullopt : rounding_of(r);
      if (!one) {
        set_free(true, r);
        continue;
      }
      const GraphLeaf& counterpart = target_.leaves[*one];
      const Array theirs = found_.reference_values[r], shared = found_.target_values[*one];
      note(Evidence::kRounding, true, leaf.node, counterpart.node);
      found_.items.back().format = rounding_between(theirs, shared);
      found_.reference_values[r] = found_.target_values[*one].reshape(reference_.nodes[leaf.node].shape);
      std::erase(found_.foreign_reference_data, leaf.node);
      std::erase(found_.foreign_data, counterpart.node);
      matched_.insert(counterpart.node);
    }
    for (std::size_t t = 0; t < target_.leaves.size(); ++t) {
      const GraphLeaf& leaf = target_.leaves[t];
      if (is_data(leaf) && found_.target_values[t] && is_float(leaf.format) && matched_.count(leaf.node) == 0 &&
          lone(target_, leaf, found_.foreign_data))
        set_free(false, t);
    }
  }

  // A data leaf that the other program was not fed: listed as such, or of one element, which rows do not tell.
  bool lone(const Graph& graph, const GraphLeaf& leaf, const std::vector<NodeId>& foreign) const {
    if (count(graph.nodes[leaf.node].shape) > 1) return std::ranges::find(foreign, leaf.node) != foreign.end();
    const bool ours = &graph == &target_;
    const auto index = static_cast<std::size_t>(&leaf - graph.leaves.data());
    const Array value = (ours ? found_.target_values : found_.reference_values)[index];
    return value.count() == 1 && (ours ? reference_scalars_ : target_scalars_).count(value.item()) == 0;
  }

  // The numbers among the leaves of one element, and the constants.
  static SetOfNumbers scalars(const Graph& graph, const std::vector<LeafValue>& values) {
    SetOfNumbers found;
    for (const LeafValue& value : values)
      if (value && value.count() == 1) found.insert(static_cast<Array>(value).item());
    for (const Node& node : graph.nodes)
      if (node.primitive == Primitive::kConstant) found.insert(node.attributes.scalar);
    return found;
  }

  std::optional<std::size_t> rounding_of(std::size_t r) const {
    const GraphLeaf& leaf = reference_.leaves[r];
    for (std::size_t t = 0; t < target_.leaves.size(); ++t) {
      const GraphLeaf& own = target_.leaves[t];
      const LeafValue& ours = found_.target_values[t];
      if (!ours || !is_float(own.format) || own.anchor || ours.count() != found_.reference_values[r].count()) continue;
      const LeafValue& theirs = found_.reference_values[r];
      if (within_freedom(own.format, ours, leaf.format, theirs)) return t;
      // 12 is no rounding of 12.01: somebody wrote it, unless it is held in that format.
      const Format format = rounding_between(ours, theirs);
      if (format == Format::kUnknown) continue;
      if (own.format == format || leaf.format == format || leaves_digits(format, ours, theirs)) return t;
    }
    return std::nullopt;
  }

  // What a leaf has no counterpart for is free: all of it, or the elements in which it differs from a leaf of the other
  // program that has most of them.
  void set_free(bool in_reference, std::size_t index) {
    const Graph& graph = in_reference ? reference_ : target_;
    const GraphLeaf& leaf = graph.leaves[index];
    Array free = freedom_of(leaf.format, values(in_reference)[index]);
    if (!free) return;
    if (const std::optional<std::size_t> twin = twin_of(in_reference, index)) {
      const Array x = static_cast<Array>(values(in_reference)[index]).on_host();
      const Array y = static_cast<Array>(values(!in_reference)[*twin]).on_host();
      for (std::int64_t i = 0; i < x.count(); ++i)
        if (x.data()[i] == y.data()[i]) free.data()[i] = 0;
    }
    Freedoms& freedoms = in_reference ? found_.reference_freedoms : found_.target_freedoms;
    if (freedoms.emplace(leaf.node, free.reshape(graph.nodes[leaf.node].shape)).second)
      note(Evidence::kNone, in_reference, leaf.node, std::nullopt);
  }

  const std::vector<LeafValue>& values(bool in_reference) const {
    return in_reference ? found_.reference_values : found_.target_values;
  }

  // The other program's leaf of this size and role that shares the most elements with this one, if that is over half.
  std::optional<std::size_t> twin_of(bool in_reference, std::size_t index) const {
    const Graph &own = in_reference ? reference_ : target_, &other = in_reference ? target_ : reference_;
    const Array x = static_cast<Array>(values(in_reference)[index]).on_host();
    std::optional<std::size_t> twin;
    std::int64_t most = x.count() / 2;
    for (std::size_t i = 0; i < other.leaves.size(); ++i) {
      const LeafValue& theirs = values(!in_reference)[i];
      if (!theirs || theirs.count() != x.count() || other.leaves[i].role != own.leaves[index].role) continue;
      const Array y = static_cast<Array>(theirs).on_host();
      std::int64_t same = 0;
      for (std::int64_t k = 0; k < x.count(); ++k) same += x.data()[k] == y.data()[k];
      if (same <= most) continue;
      most = same;
      twin = i;
    }
    return twin;
  }

  void note(Evidence evidence, bool in_reference, NodeId item, std::optional<NodeId> counterpart) {
    found_.items.push_back({evidence, in_reference, item, counterpart});
  }

  const Graph &target_, &reference_;
  const std::vector<LeafValue>& reference_values_;  // As the reference had them.
  const bool own_content_;
  const std::set<NodeId> target_cleared_, reference_cleared_;
  const SetOfNumbers target_scalars_, reference_scalars_;
  std::map<std::string, std::size_t> by_name_;  // Target's leaves.
  std::set<NodeId> matched_;                    // Target's data that was.
  Correspondence found_;
};

}  // namespace

Array freedom_of(Format format, const Array& content) {
  const Array x = content.on_host();
  Array free = Array::uninitialized({x.count()});
  bool any = false;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    free.data()[i] = freedom(format, x.data()[i], x.count());
    any = any || free.data()[i] > 0;
  }
  return any ? free : Array();
}

Correspondence correspond(const Graph& target, const std::vector<LeafValue>& target_values, const Graph& reference,
                          const std::vector<LeafValue>& reference_values, Matching matching) {
  return Matcher(target, target_values, reference, reference_values, matching).run();
}

void give_scaled(const LeafValue& content, double scale, std::size_t leaf, const Graph& reference,
                 Correspondence* match) {
  const NodeId node = reference.leaves[leaf].node;
  const Shape& shape = reference.nodes[node].shape;
  match->reference_values[leaf] = content.reshape(shape);
  if (scale == 1) return;
  const Array own = weighted(static_cast<Array>(content), 1 / scale);
  match->reference_values[leaf] = own.reshape(shape);
  // Roundings of sums, thousands of 2^-53 at most, stay below this.
  Array width = weighted(own, 0x1p-40).on_host();
  for (double& x : std::span(width.data(), static_cast<std::size_t>(width.count()))) x = std::fabs(x);
  match->reference_freedoms[node] = width.reshape(shape);
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
          !is_rounding(leaf.format, values[wide], values[narrow]))
        continue;
      result.push_back({leaf.format, narrow, wide});
      break;
    }
  }
  return result;
}

}  // namespace plumbline
