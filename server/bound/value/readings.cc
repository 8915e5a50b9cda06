#include "server/bound/value/readings.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "server/bound/match/decisions.h"
#include "server/bound/match/margin.h"
#include "server/bound/replay/taps.h"
#include "server/lower/view.h"

namespace plumbline {
namespace {

// How far operands of a decision may be off in another program, in units of their format, relative to their size: some
// chain of roundings. In 16-bit formats it is no more than a sixteenth, as check_decisions() has it.
constexpr double kRoundings = 64, kLooseMax = 0x1p-4;
constexpr double kDrawRoundings = 4;  // A product, a sum and a limit make so many.

double widest_roundoff(const Graph& graph) {
  double u = 0;
  for (const Node& node : graph.nodes)
    if (is_float(node.compute) && node.primitive != Primitive::kLeaf && !traits(node.primitive).bitwise)
      u = std::fmax(u, unit_roundoff(node.result));
  return u;
}

Freedoms open_decisions(const Graph& graph, const Replay& followed) {
  const Graph none;
  const Replay nothing;
  const double error = std::fmin(kRoundings * widest_roundoff(graph), kLooseMax);
  return share_decisions({graph, followed}, {}, {none, nothing}, {}, error).target_jumps;
}

// The narrower format that holds all of a leaf which was not written by hand. kUnknown: none.
Format narrow_grid(const GraphLeaf& leaf, const Array& content) {
  if (!is_float(leaf.format) || content.count() < 2) return Format::kUnknown;
  for (const Format format : {Format::kBFloat16, Format::kFloat16}) {
    const double* const x = content.data();
    const auto held = [format](double one) { return round_to(format, one) == one; };
    const auto few_digits = [](double one) { return round_to(Format::kFloat8E5M2, one) == one; };
    if (std::all_of(x, x + content.count(), held) && !std::all_of(x, x + content.count(), few_digits)) return format;
  }
  return Format::kUnknown;
}

// What lies on the grid of a narrow format may have been rounded to it.
Freedoms narrow_leaves(const Graph& graph, const Replay& followed) {
  Freedoms freedoms;
  for (const GraphLeaf& leaf : graph.leaves) {
    if (!followed.has(leaf.node)) continue;
    const Array content = followed.value(leaf.node).materialize().on_host();
    const Format format = narrow_grid(leaf, content);
    if (format == Format::kUnknown) continue;
    Array width = Array::uninitialized(graph.nodes[leaf.node].shape);
    for (std::int64_t i = 0; i < width.count(); ++i)
      width.data()[i] = std::isfinite(content.data()[i]) ? unit_roundoff(format) * std::fabs(content.data()[i]) : 0;
    freedoms.emplace(leaf.node, std::move(width));
  }
  return freedoms;
}

// A draw within limits, or about a mean, is formed with the roundings of these, however small it comes out itself.
Freedoms formed_draws(const Graph& graph, const Replay& followed) {
  Freedoms freedoms;
  for (const GraphLeaf& leaf : graph.leaves) {
    if (leaf.role != LeafRole::kRandom || !is_float(leaf.format) || !followed.has(leaf.node)) continue;
    const Array content = followed.value(leaf.node).materialize().on_host();
    double most = 0;
    for (std::int64_t i = 0; i < content.count(); ++i)
      if (std::isfinite(content.data()[i])) most = std::fmax(most, std::fabs(content.data()[i]));
    freedoms.emplace(leaf.node,
                     Array::full(graph.nodes[leaf.node].shape, kDrawRoundings * unit_roundoff(leaf.format) * most));
  }
  return freedoms;
}

Freedoms one_pass_variances(const Graph& graph, const Replay& followed) {
  Freedoms freedoms;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.primitive != Primitive::kVarianceRsqrt || !followed.has(id) || !is_float(node.compute)) continue;
    const Array x = followed.value(node.inputs[0]), r = followed.computed(id).on_host();
    const auto n = static_cast<double>(x.count()) / static_cast<double>(std::max<std::int64_t>(1, r.count()));
    const Array sums = traits(Primitive::kSum).evaluate(node.attributes, node.shape, std::vector{x}).on_host();
    Array width = Array::uninitialized(node.shape);
    for (std::int64_t i = 0; i < width.count(); ++i) {
      const double mean = sums.data()[i] / n, root = r.data()[i];
      const double moved =
          0.5 * root * root * root * (4 * std::sqrt(n) + 4) * unit_roundoff(node.compute) * mean * mean;
      width.data()[i] = std::isfinite(moved) ? moved : 0;
    }
    freedoms.emplace(id, std::move(width));
  }
  return freedoms;
}

// A value that is rounded to a grid of integers, to nearest or by chance.
std::optional<NodeId> rounded_to_grid(const Graph& graph, NodeId id, const std::set<NodeId>& random) {
  const Node& node = graph.nodes[id];
  if (node.primitive == Primitive::kRound && is_float(graph.nodes[node.inputs[0]].result)) return node.inputs[0];
  if (node.primitive != Primitive::kFloor) return std::nullopt;
  const Node& sum = graph.nodes[node.inputs[0]];
  if (sum.primitive != Primitive::kAdd) return std::nullopt;
  for (const std::size_t i : {0, 1}) {
    NodeId added = sum.inputs[i];
    while (graph.nodes[added].primitive == Primitive::kWindow || graph.nodes[added].primitive == Primitive::kCast)
      added = graph.nodes[added].inputs[0];
    const Node& term = graph.nodes[added];
    const bool half = term.primitive == Primitive::kConstant && term.attributes.scalar == 0.5;
    if ((half || random.contains(added)) && graph.nodes[sum.inputs[1 - i]].shape == node.shape)
      return sum.inputs[1 - i];
  }
  return std::nullopt;
}

// Tells of each node whether it is made into the number of a row. A rounding there is no format: it names a place.
std::vector<bool> numbers_of_rows(const Graph& graph) {
  std::vector<bool> numbers(graph.nodes.size(), false);
  for (std::size_t id = graph.nodes.size(); id-- > 0;) {
    const Node& node = graph.nodes[id];
    const Primitive p = node.primitive;
    if (p == Primitive::kGatherRows || p == Primitive::kScatterAdd) numbers[node.inputs[1]] = true;
    const bool keeps = p == Primitive::kWindow || p == Primitive::kCast || p == Primitive::kTrunc ||
                       p == Primitive::kMax || p == Primitive::kMin || p == Primitive::kAdd || p == Primitive::kSub ||
                       p == Primitive::kSelect;
    if (!numbers[id] || !(keeps || !is_float(node.result))) continue;
    for (NodeId input : node.inputs) numbers[input] = true;
  }
  return numbers;
}

// The graph where quantisers pass on what they are given; empty: it has none.
std::optional<Graph> without_grids(const Graph& graph) {
  const std::vector<bool> numbers = numbers_of_rows(graph);
  std::set<NodeId> random;
  for (const GraphLeaf& leaf : graph.leaves)
    if (leaf.role == LeafRole::kRandom) random.insert(leaf.node);
  std::optional<Graph> passing;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const std::optional<NodeId> rounded = rounded_to_grid(graph, id, random);
    if (!rounded || numbers[id]) continue;
    if (!passing) passing = graph;
    Node& node = passing->nodes[id];
    node.primitive = Primitive::kWindow;
    node.inputs = {*rounded};
    node.attributes = {};
    node.attributes.view = row_major_view(node.shape);
    node.result = graph.nodes[*rounded].result;
    std::erase_if(passing->decisions, [id](const GraphDecision& decision) { return decision.node == id; });
  }
  return passing;
}

// Leaves rounded to a narrower format: parameters and state, or all. Empty: that changes nothing.
Replay with_rounded_leaves(const Graph& graph, const std::vector<LeafValue>& leaves, Format format, bool all,
                           const Overrides& decisions) {
  std::vector<LeafValue> rounded = leaves;
  bool any = false;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const GraphLeaf& leaf = graph.leaves[i];
    if (!leaves[i] || !(all || persistent(leaf.role)) || !is_float(leaf.format)) continue;
    const Array content = static_cast<Array>(leaves[i]).materialize().on_host();
    Array narrow = Array::uninitialized(content.shape());
    for (std::int64_t k = 0; k < narrow.count(); ++k) {
      narrow.data()[k] = round_to(format, content.data()[k]);
      any = any || narrow.data()[k] != content.data()[k];
    }
    rounded[i] = LeafValue(narrow);
  }
  return any ? replay(graph, rounded, Precision::kExact, decisions) : Replay();
}

bool holds_no_more(const GraphTap& tap, Format format) {
  if (!tap.reference || !is_float(tap.reference_format) || count(tap.shape) < 2) return false;
  const Array r = reference_value(tap).on_host();
  return std::all_of(r.data(), r.data() + r.count(), [format](double x) { return round_to(format, x) == x; });
}

// Whether anything of the target or the reference is held in the format, and anything of the target in a finer one.
bool in_use(const Graph& graph, Format format) {
  if (std::ranges::none_of(graph.nodes, [format](const Node& node) {
        return is_float(node.result) && unit_roundoff(node.result) < unit_roundoff(format);
      }))
    return false;
  return std::ranges::any_of(graph.nodes, [format](const Node& node) { return node.result == format; }) ||
         std::ranges::any_of(graph.taps, [format](const GraphTap& tap) {
           return tap.reference_format == format || holds_no_more(tap, format);
         });
}

// Every result that is rounded at all is rounded to the format.
Graph narrowed(const Graph& graph, Format format) {
  Graph narrow = graph;
  for (Node& node : narrow.nodes) {
    const bool computed =
        node.primitive != Primitive::kLeaf && (!traits(node.primitive).bitwise || node.primitive == Primitive::kCast);
    if (computed && is_float(node.result) && unit_roundoff(node.result) < unit_roundoff(format)) node.result = format;
  }
  return narrow;
}

}  // namespace

std::vector<Reading> other_readings(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& exact,
                                    const DecisionCheck& decisions) {
  std::vector<Reading> readings;
  if (decisions.differing > 0)
    readings.push_back(
        {"by the outcomes of exact arithmetic", false, Format::kUnknown, [&exact] { return exact; }, {}});
  Overrides none_overflown;
  for (const GraphDecision& decision : graph.decisions)
    if (decision.overflow && exact.has(decision.node))
      none_overflown[decision.node] = LeafValue(Array::zeros(graph.nodes[decision.node].shape));
  if (!none_overflown.empty())
    readings.push_back({"if nothing left its format's range",
                        true,
                        Format::kUnknown,
                        [&, none_overflown] {
                          Overrides overrides = decisions.overrides;
                          for (const auto& [node, value] : none_overflown) overrides[node] = value;
                          return replay(graph, leaves, Precision::kExact, overrides);
                        },
                        {}});
  if (std::optional<Graph> passing = without_grids(graph)) {
    Reading& reading = readings.emplace_back();
    reading = {"if it rounds to no grid", true, Format::kUnknown, {}, std::make_shared<const Graph>(*passing)};
    reading.replayed = [&leaves, other = reading.graph] { return replay(*other, leaves, Precision::kExact); };
  }
  for (const Format format : {Format::kBFloat16, Format::kFloat16})
    for (const bool all : {false, true})
      readings.push_back({std::string("if its ") + (all ? "inputs and parameters" : "parameters") + " went through " +
                              std::string(traits(format).name),
                          true,
                          format,
                          [&graph, &leaves, &decisions, format, all] {
                            return with_rounded_leaves(graph, leaves, format, all, decisions.overrides);
                          },
                          {}});
  return readings;
}

std::vector<Excuse> excuses(const Graph& graph, const Replay& followed) {
  std::vector<Excuse> found;
  if (Freedoms jumps = open_decisions(graph, followed); !jumps.empty())
    found.push_back({"decisions near a tie may have come out otherwise in the reference", std::move(jumps), {}});
  if (Freedoms variances = one_pass_variances(graph, followed); !variances.empty())
    found.push_back({"the reference may have computed a variance in one pass", std::move(variances), {}});
  if (Freedoms draws = formed_draws(graph, followed); !draws.empty())
    found.push_back({"the reference may have formed its random numbers otherwise", std::move(draws), {}});
  if (Freedoms leaves = narrow_leaves(graph, followed); !leaves.empty())
    found.push_back(
        {"the reference may have been given more digits of what the target holds in 16 bits", std::move(leaves), {}});
  for (const Format format : {Format::kBFloat16, Format::kFloat16, Format::kFloat32})
    if (in_use(graph, format))
      found.push_back({"the reference may hold more in " + std::string(traits(format).name) + " than the target",
                       {},
                       narrowed(graph, format)});
  return found;
}

bool decided_by_floats(const Graph& graph, const GraphTap& tap) {
  if (is_float(tap_format(tap))) return false;
  const std::vector<bool> before = ancestors(graph, nodes_of(tap));
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (before[id] && Margins::decides(graph, id)) return true;
  return false;
}

bool behind_opaque(const Graph& graph, const GraphTap& tap) {
  const std::vector<bool> before = ancestors(graph, nodes_of(tap));
  return std::ranges::any_of(graph.leaves, [&](const GraphLeaf& leaf) { return leaf.anchor && before[leaf.node]; });
}

}  // namespace plumbline
