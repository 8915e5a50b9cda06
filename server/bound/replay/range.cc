#include "server/bound/replay/range.h"

#include <cmath>

#include "kernels/sums.h"
#include "server/bound/enclose/interval.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

bool same_class(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return true;
}

bool same_classes(const Array& a, const Array& b) {
  const Array x = a.on_host(), y = b.on_host();
  for (std::int64_t i = 0; i < x.count(); ++i)
    if (!same_class(x.data()[i], y.data()[i])) return false;
  return true;
}

// A float that a function, not a mask or a limit written by the program, produced.
bool computed(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  return node.primitive != Primitive::kLeaf && node.primitive != Primitive::kConstant && is_float(node.result) &&
         !(traits(node.primitive).bitwise && node.primitive != Primitive::kCast);
}

// What lies before some nodes in the rounded replay.
struct Lane {
  bool straddles = false;       // A value so close to its format's limit that rounding decides.
  std::optional<NodeId> first;  // The first node that is not finite, or else a sum whose parts may not be.
};

// Whether a kernel that rounds parts of a sum to a narrower format may have lost one beyond that format's limit.
bool parts_may_overflow(const Graph& graph, const Replay& rounded, NodeId id) {
  const Node& node = graph.nodes[id];
  if (node.primitive != Primitive::kSum || node.attributes.narrow == Format::kUnknown) return false;
  const Array values = rounded.value(node.inputs[0]).on_host();
  Array magnitudes = Array::uninitialized(values.shape());
  for (std::int64_t i = 0; i < values.count(); ++i) magnitudes.data()[i] = std::fabs(values.data()[i]);
  const HostScope scope;
  const Array sums = traits(Primitive::kSum).evaluate(node.attributes, node.shape, {&magnitudes, 1});
  const double limit = largest_finite(node.attributes.narrow) * 0.875;
  for (std::int64_t i = 0; i < sums.count(); ++i)
    if (sums.data()[i] > limit) return true;
  return false;
}

Lane examine_way(const Graph& graph, const Replay& rounded, const std::vector<NodeId>& to) {
  Lane lane;
  std::optional<NodeId> parts;
  const std::vector<bool> before = ancestors(graph, to);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!before[id] || !computed(graph, id) || !rounded.has(id)) continue;
    if (parts_may_overflow(graph, rounded, id)) {
      lane.straddles = true;
      parts = id;
    }
    const Array values = rounded.value(id).on_host();
    // Rounding in what came before moves a value near the limit across it: an eighth of a binade is far beyond what a
    // first-order envelope that is not vacuous allows.
    const double limit = largest_finite(graph.nodes[id].result) * 0.875;
    for (std::int64_t i = 0; i < values.count(); ++i) {
      const double x = std::fabs(values.data()[i]);
      if (std::isfinite(x) && x > limit) lane.straddles = true;
      if (!std::isfinite(x) && !lane.first) lane.first = id;
      // Held wider inside of a fused kernel, it may not have overflowed.
      if (!std::isfinite(x) && graph.origins[graph.nodes[id].origin].fused) lane.straddles = true;
    }
  }
  if (!lane.first) lane.first = parts;
  return lane;
}

// Whether every element that is first to be infinite in the rounded replay may be finite in another legal execution:
// its enclosure reaches below the limit of its format.
bool borderline(const Graph& graph, const Replay& exact, const Replay& rounded, NodeId node, const Profile& profile) {
  const Overrides none;
  const Enclosure enclosure = Enclosures(graph, exact, {node}, &profile, none).take(node);
  if (enclosure.exploded || !enclosure.radius) return false;
  const Array centre = exact.value(node).on_host(), radius = enclosure.radius.values.on_host();
  const Array ours = rounded.value(node).on_host();
  const double limit = largest_finite(graph.nodes[node].result);
  for (std::int64_t i = 0; i < ours.count(); ++i) {
    const double least = std::fabs(centre.data()[i]) - radius.data()[i];
    if (!std::isfinite(ours.data()[i]) && !(std::isinf(ours.data()[i]) && least <= limit)) return false;
  }
  return true;
}

}  // namespace

bool computes_in(const Graph& graph, const GraphTap& tap, Format format) {
  std::vector<NodeId> terms;
  for (const GraphTap::Term& term : tap.terms) terms.push_back(term.node);
  const std::vector<bool> before = ancestors(graph, terms);
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (before[id] && computed(graph, id) && graph.nodes[id].result == format) return true;
  return false;
}

std::vector<NodeId> illegal_overflow_decisions(const Graph& graph, const std::vector<LeafValue>& leaves) {
  std::vector<NodeId> illegal;
  Replay lane;
  for (const GraphDecision& decision : graph.decisions) {
    if (!decision.overflow) continue;
    if (!lane) lane = replay(graph, leaves, Precision::kRounded);
    const Array ours = lane.value(decision.node).on_host();
    bool same = true;
    for (std::int64_t i = 0; i < ours.count(); ++i)
      same = same && (ours.data()[i] != 0) == ((*decision.sides)[static_cast<std::size_t>(i)] != 0);
    if (!same && !examine_way(graph, lane, {decision.node}).straddles) illegal.push_back(decision.node);
  }
  return illegal;
}

namespace {

std::vector<NodeId> overflows_found(const Graph& graph) {
  std::vector<NodeId> found;
  for (const GraphDecision& decision : graph.decisions)
    if (decision.overflow && std::ranges::any_of(*decision.sides, [](std::uint8_t side) { return side != 0; }))
      found.push_back(decision.node);
  return found;
}

}  // namespace

bool overflow_was_found(const Graph& graph) { return !overflows_found(graph).empty(); }

bool left_its_range(const Graph& graph, const std::vector<LeafValue>& leaves) {
  const std::vector<NodeId> found = overflows_found(graph);
  if (found.empty()) return false;
  const Replay exact = replay(graph, leaves, Precision::kExact, {}, nullptr, {.only = &found});
  return std::ranges::none_of(found, [&](NodeId node) {
    const Array decided = exact.value(node).materialize().on_host();
    return std::any_of(decided.data(), decided.data() + decided.count(), [](double x) { return x != 0; });
  });
}

std::vector<RangeFinding> examine_range(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& exact,
                                        const Profile& profile) {
  const Replay lane = replay(graph, leaves, Precision::kRounded);
  std::vector<RangeFinding> findings;
  for (const GraphTap& tap : graph.taps) {
    const Array observed = observed_value(tap), centre = replayed_value(tap, exact), ours = replayed_value(tap, lane);
    if (all_finite(observed) && all_finite(centre)) continue;
    if (common_infinities(observed, centre)) continue;  // A formula made them: the finite elements are judged.
    RangeFinding finding;
    finding.tap = tap.name;
    finding.exact_finite = all_finite(centre);
    finding.rounded_agrees = same_classes(observed, ours);

    std::vector<NodeId> terms;
    for (const GraphTap::Term& term : tap.terms) terms.push_back(term.node);
    const Lane way = examine_way(graph, lane, terms);
    finding.straddles = way.straddles;
    finding.first = way.first;
    finding.borderline = way.first && borderline(graph, exact, lane, *way.first, profile);
    if (!finding.first) finding.first = tap.terms.front().node;
    finding.reference_finite = tap.reference != nullptr && all_finite(reference_value(tap)) &&
                               tap.reference_format == graph.nodes[*finding.first].result;
    findings.push_back(finding);
  }
  return findings;
}

void explain_by_rounded_replay(const BoundsInput& input, const Replay& exact, const Replay& lane, Bounds* bounds) {
  const Graph& graph = *input.target;
  bool all = true;
  for (Finding& finding : bounds->findings) {
    double missed = 0, deviated = 0;
    bool bitwise = true;
    for (std::size_t index : finding.taps) {
      const GraphTap& tap = graph.taps[index];
      const Array observed = observed_value(tap), ours = replayed_value(tap, lane);
      // What is to be explained is how far T lies from M and, with a reference, from R: the larger, as two executions
      // that round alike agree far better with one another than with exact arithmetic.
      double away = tap.reference ? norm2_difference(observed, reference_value(tap))
                                  : norm2_difference(observed, replayed_value(tap, exact));
      if (input.reference != nullptr)
        for (const GraphTap& candidate : input.reference->taps)
          if (candidate.name == tap.name && candidate.shape == tap.shape)
            away = std::fmax(away, norm2_difference(observed, observed_value(candidate)));
      missed += std::pow(norm2_difference(observed, ours), 2);
      deviated += away * away;
      bitwise = bitwise && bitwise_equal(observed, ours);
    }
    finding.explained = deviated > 0 ? 1 - std::sqrt(missed / deviated) : (missed == 0 ? 1 : -HUGE_VAL);
    if (finding.execution.vacuous() || finding.execution.failed())
      all = all && (bitwise || finding.explained >= 1 - 0.125);
  }
  bounds->explained = all;
}

}  // namespace plumbline
