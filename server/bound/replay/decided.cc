#include "server/bound/replay/decided.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "kernels/checks.h"
#include "kernels/operations.h"
#include "kernels/sums.h"
#include "server/bound/replay/terms.h"

namespace plumbline {

double distance_to_code(Primitive rounding, double x, double code) {
  double low = code - 0.5, high = code + 0.5;
  if (rounding == Primitive::kFloor || (rounding == Primitive::kTrunc && code > 0)) {
    low = code;
    high = code + 1;
  } else if (rounding == Primitive::kCeil || (rounding == Primitive::kTrunc && code < 0)) {
    low = code - 1;
    high = code;
  } else if (rounding == Primitive::kTrunc) {
    low = -1;
    high = 1;
  }
  return std::fmax(0, std::fmax(low - x, x - high));
}

namespace {

Array decode_bytes(Format format, const Bytes& bytes, const Shape& shape) {
  Array values = Array::uninitialized(shape);
  current_operations().decode(values, format, bytes->data());
  return values;
}

constexpr double kTermRoundings = 32;  // So many roundings of the largest term may have turned a decision.

}  // namespace

double illegal_share(const Graph& graph, NodeId operand, const Profile& profile) {
  // What comes from narrow formats, or products that run in one, lies far from the exact values.
  const auto narrow = [](Format format) {
    return is_float(format) && traits(format).precision <= traits(Format::kFloat16).precision;
  };
  bool coarse = profile.tf32_allowed || narrow(graph.nodes[operand].result);
  for (const Origin& origin : graph.origins) coarse = coarse || (profile.tf32_convolutions && origin.convolution);
  for (const Node& node : graph.nodes) coarse = coarse || narrow(node.result);
  return std::ldexp(1.0, coarse ? -4 : -12);
}

namespace {

// Whether rounding cannot have turned the decision where the observed sides differ from our own ones.
bool is_illegal(const Graph& graph, NodeId id, const Replay& exact, const Array& own, const Array& observed,
                const Profile& profile) {
  const Node& node = graph.nodes[id];
  const bool comparison = node.inputs.size() == 2;
  const bool rounding = node.primitive == Primitive::kRound || node.primitive == Primitive::kFloor ||
                        node.primitive == Primitive::kCeil || node.primitive == Primitive::kTrunc;
  if (!comparison && !rounding && node.primitive != Primitive::kSign) return false;
  const Array a = exact.value(node.inputs[0]).expand(own.shape()).on_host();
  const Array b = comparison ? exact.value(node.inputs[1]).expand(own.shape()).on_host() : Array();
  double squares = 0, margin = 0;
  for (std::int64_t i = 0; i < own.count(); ++i) {
    const double difference = a.data()[i] - (comparison ? b.data()[i] : 0);
    squares += difference * difference;
    if (own.data()[i] == observed.data()[i]) continue;
    margin = std::fmax(
        margin, rounding ? distance_to_code(node.primitive, difference, observed.data()[i]) : std::fabs(difference));
  }
  const double spread = std::sqrt(squares / static_cast<double>(own.count()));
  // Where everything compared is nearly equal, its spread says nothing: the terms do that cancel in it.
  double limit = spread * illegal_share(graph, node.inputs[0], profile);
  if (!(margin <= limit)) {
    double terms = 0;
    for (NodeId input : node.inputs)
      if (is_float(graph.nodes[input].compute))
        terms = std::fmax(terms, kTermRoundings * unit_roundoff(graph.nodes[input].compute) *
                                     norm_max(terms_magnitude(graph, exact, input)));
    limit = std::fmax(limit, terms);
  }
  return !(margin <= limit);
}

}  // namespace

Followed follow_decisions(const Graph& graph, const std::vector<LeafValue>& leaves, const Profile& profile,
                          const Replay* exact, const std::vector<NodeId>* of, const std::vector<bool>* later) {
  DecisionCheck check;
  std::map<NodeId, const GraphDecision*> told;  // Of several for one node the last counts.
  Deciding deciding{std::vector<bool>(graph.nodes.size(), false), {}};
  for (const GraphDecision& decision : graph.decisions) {
    deciding.at[decision.node] = true;
    told[decision.node] = &decision;
  }
  deciding.seen = [&](NodeId id, const Replay& so_far) -> Array {
    const GraphDecision& decision = *told.at(id);
    Array own = so_far.value(id);
    Array observed = decode_bytes(decision.format, decision.sides, own.shape());
    check.total += static_cast<std::uint64_t>(own.count());
    if (decision.choice) check.choices[id] = observed;
    if (count_differing(own, observed) == 0) return {};
    own = own.on_host();
    std::uint64_t differing = 0;
    for (std::int64_t i = 0; i < own.count(); ++i) {
      if (observed.data()[i] != observed.data()[i]) observed.data()[i] = own.data()[i];
      differing += own.data()[i] != observed.data()[i];
    }
    if (differing == 0) return {};
    check.differing += differing;
    if (!decision.choice && is_illegal(graph, id, so_far, own, observed, profile)) check.illegal.push_back(id);
    check.overrides[id] = observed;
    return observed;
  };
  Replay followed =
      replay(graph, leaves, Precision::kExact, {}, exact, {.deciding = &deciding, .only = of, .later = later});
  if (exact != nullptr && check.differing == 0) followed = *exact;
  // A choice may come out otherwise in rounded arithmetic, once another one is followed.
  if (check.differing > 0) check.overrides.insert(check.choices.begin(), check.choices.end());
  return {std::move(followed), std::move(check)};
}

}  // namespace plumbline
