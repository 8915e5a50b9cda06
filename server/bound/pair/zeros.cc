#include "server/bound/pair/zeros.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/primitive/absorb.h"
#include "server/bound/match/decisions.h"
#include "server/bound/match/exact_elements.h"
#include "server/bound/replay/taps.h"
#include "server/bound/replay/terms.h"

namespace plumbline {
namespace {

// The first turns every sign, so that no functional of one zero is overlooked; the others turn some, where the jumps of
// several may cancel.
constexpr int kSamples = 6;
constexpr double kRoundoff = 0x1p-53;

bool adds(Primitive primitive) {
  return primitive == Primitive::kAdd || primitive == Primitive::kSub || primitive == Primitive::kSum ||
         primitive == Primitive::kCumsum;
}

// Elements of a node whose terms cancel, to within what replays are off.
struct Zeros {
  NodeId node = 0;
  Array value;                         // The node's, on the host.
  std::vector<std::int64_t> elements;  // Those that are zero by mathematics...
  std::vector<double> least;           // ... and one rounding of their terms.
};

// `absorbs`: the terms may stand for infinity (kernels/primitive/absorb.h). What is left where these cancel is not
// known at all: it is tried as a number of ordinary size.
Zeros zeros_of(NodeId id, const Array& value, const Array& terms, bool absorbs) {
  Zeros zeros{id, value.materialize().on_host(), {}, {}};
  const Array size = terms.materialize().on_host();
  for (std::int64_t i = 0; i < zeros.value.count(); ++i) {
    const double x = std::fabs(zeros.value.data()[i]), t = size.data()[i];
    if (!(x <= kReplayError * t) || !std::isfinite(t)) continue;
    const bool infinite = absorbs && t > primitive::kStandsForInfinity;
    // What is exactly zero mostly is so in every execution, as an element less its row's largest.
    if (x == 0 && !infinite) continue;
    zeros.elements.push_back(i);
    zeros.least.push_back(infinite ? 1 : kRoundoff * t);
  }
  return zeros;
}

// Leaves out those that no rounding made: a difference of equal integers is zero in every execution.
void drop_exact(ExactElements* exact, Zeros* zeros) {
  const Loose& loose = exact->of(zeros->node);
  if (loose.all) return;
  const Array off = loose.elements ? loose.elements.materialize().on_host() : Array();
  Zeros kept{zeros->node, zeros->value, {}, {}};
  for (std::size_t i = 0; i < zeros->elements.size(); ++i) {
    if (!off || off.data()[zeros->elements[i]] == 0) continue;
    kept.elements.push_back(zeros->elements[i]);
    kept.least.push_back(zeros->least[i]);
  }
  *zeros = std::move(kept);
}

std::vector<Zeros> find_zeros(const Graph& graph, const Replay& replay, const Overrides& overrides,
                              const std::vector<NodeId>& wanted) {
  const std::vector<bool> read = ancestors(graph, wanted);
  std::vector<NodeId> sums;
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (read[id] && replay.has(id) && adds(graph.nodes[id].primitive) && is_float(graph.nodes[id].result) &&
        overrides.count(id) == 0)
      sums.push_back(id);
  std::vector<Zeros> all;
  const auto find = [&](const Unmoved& unmoved) {
    all.clear();
    visit_terms(graph, replay, sums, unmoved, [&](NodeId id, const Array& terms) {
      const Node& node = graph.nodes[id];
      const bool absorbs = node.inputs.size() == 2 && node.attributes.scalar != 0;
      Zeros zeros = zeros_of(id, replay.value(id), terms, absorbs);
      if (!zeros.elements.empty()) all.push_back(std::move(zeros));
    });
  };
  find({});
  if (all.empty()) return all;
  const MatchSide side{graph, replay};
  // What is exact leaves no rest of what it was added up of.
  find(unmoved_elements(side, wanted));
  const std::vector<double> relative(graph.nodes.size(), kReplayError);
  const Freedoms none;
  ExactElements exact(side, none, relative);
  for (Zeros& zeros : all) drop_exact(&exact, &zeros);
  std::erase_if(all, [](const Zeros& zeros) { return zeros.elements.empty(); });
  // What is made of zeros alone has no signs of its own.
  std::vector<bool> of_zeros(graph.nodes.size(), false);
  std::vector<bool> found(graph.nodes.size(), false);
  for (const Zeros& zeros : all) found[zeros.node] = true;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const std::vector<std::size_t> from = summands(graph, graph.nodes[id]);
    const bool derived =
        !from.empty() && std::ranges::all_of(from, [&](std::size_t i) { return of_zeros[graph.nodes[id].inputs[i]]; });
    of_zeros[id] = derived || found[id];
    if (derived) found[id] = false;
  }
  std::erase_if(all, [&](const Zeros& zeros) { return !found[zeros.node]; });
  return all;
}

// The inputs by whose sign, where they are zero, the operation jumps: which side of a cut an angle lies on, which
// infinity a quotient is.
std::vector<NodeId> signed_inputs(const Node& node) {
  switch (node.primitive) {
    case Primitive::kAtan2:
      return node.inputs;
    case Primitive::kReciprocal:
    case Primitive::kRsqrt:
    case Primitive::kPow:
      return {node.inputs[0]};
    case Primitive::kDiv:
      return {node.inputs[1]};
    default:
      return {};
  }
}

// The value with 0 for every -0; empty: it has none.
Array without_negative(const Array& value) {
  Array positive = Array::uninitialized(value.shape());
  const Array x = value.materialize().on_host();
  bool some = false;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    some = some || (x.data()[i] == 0 && std::signbit(x.data()[i]));
    positive.data()[i] = x.data()[i] + 0.0;
  }
  return some ? positive : Array();
}

// What was computed as -0, where something tells it from 0. Mathematics has one zero: -(a - b) is b - a.
Overrides negative_zeros(const Graph& graph, const Replay& replay, const std::vector<bool>& read) {
  Overrides positive;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (!read[id] || !replay.has(id)) continue;
    for (NodeId input : signed_inputs(graph.nodes[id])) {
      if (positive.count(input) != 0) continue;
      if (const Array value = without_negative(replay.value(input))) positive[input] = value;
    }
  }
  return positive;
}

// Every sign turned, or, with `bits`, each as it is drawn.
Array with_other_signs(const Zeros& zeros, std::mt19937_64* bits) {
  Array changed = Array::uninitialized(zeros.value.shape());
  std::copy_n(zeros.value.data(), changed.count(), changed.data());
  for (std::size_t i = 0; i < zeros.elements.size(); ++i) {
    double& x = changed.data()[zeros.elements[i]];
    const bool negative = bits == nullptr ? x > 0 : ((*bits)() >> 63) != 0;
    x = std::copysign(std::fmax(std::fabs(x), zeros.least[i]), negative ? -1.0 : 1.0);
  }
  return changed;
}

// <weights, a - b> over what is finite in both: a logarithm or a root of a zero that turned negative tells of no jump.
double moved_along(const Array& weights, const Array& a, const Array& b) {
  const Array w = weights.materialize().on_host(), x = a.materialize().on_host(), y = b.materialize().on_host();
  double sum = 0;
  for (std::int64_t i = 0; i < x.count(); ++i)
    if (std::isfinite(x.data()[i]) && std::isfinite(y.data()[i])) sum += w.data()[i] * (x.data()[i] - y.data()[i]);
  return sum;
}

// One program's functionals, and what they read.
class Functionals {
 public:
  Functionals(const Graph& graph, const Replay& replay, const std::vector<LeafValue>& leaves,
              const Overrides& overrides, const std::vector<bool>& shared, const std::vector<Probe>& probes)
      : graph_(graph), replay_(replay), leaves_(leaves), probes_(probes), fixed_(overrides) {
    for (const Probe& probe : probes)
      for (const Probe::Part& part : probe.parts)
        std::ranges::copy(nodes_of(graph.taps[part.tap]), back_inserter(wanted_));
    read_ = ancestors(graph, wanted_);
    for (NodeId id = 0; id < shared.size(); ++id)
      if (shared[id] && read_[id] && replay.has(id) && overrides.count(id) == 0) fixed_[id] = replay.value(id);
  }

  const std::vector<NodeId>& wanted() const { return wanted_; }
  const std::vector<bool>& read() const { return read_; }

  // How far they go with these values: by probe.
  std::vector<double> moved(Overrides given) const {
    given.insert(fixed_.begin(), fixed_.end());
    const Replay other = plumbline::replay(graph_, leaves_, Precision::kExact, given, &replay_, {.only = &wanted_});
    std::vector<double> by(probes_.size(), 0);
    for (std::size_t p = 0; p < probes_.size(); ++p)
      for (const Probe::Part& part : probes_[p].parts)
        by[p] += moved_along(part.weights.array(), seen_value(graph_.taps[part.tap], other),
                             seen_value(graph_.taps[part.tap], replay_));
    return by;
  }

 private:
  const Graph& graph_;
  const Replay& replay_;
  const std::vector<LeafValue>& leaves_;
  const std::vector<Probe>& probes_;
  Overrides fixed_;
  std::vector<NodeId> wanted_;
  std::vector<bool> read_;
};

}  // namespace

std::vector<double> moved_by_zeros(const Graph& graph, const Replay& replay, const std::vector<LeafValue>& leaves,
                                   const Overrides& overrides, const std::vector<bool>& shared,
                                   const std::vector<Probe>& probes) {
  std::vector<double> moved(probes.size(), 0);
  const Functionals functionals(graph, replay, leaves, overrides, shared, probes);
  const std::vector<Zeros> zeros = find_zeros(graph, replay, overrides, functionals.wanted());
  std::mt19937_64 bits(1);
  for (int sample = 0; sample < kSamples && !zeros.empty(); ++sample) {
    Overrides signs;
    for (const Zeros& each : zeros) signs[each.node] = with_other_signs(each, sample == 0 ? nullptr : &bits);
    const std::vector<double> by = functionals.moved(std::move(signs));
    for (std::size_t p = 0; p < probes.size(); ++p) moved[p] = std::fmax(moved[p], std::fabs(by[p]));
  }
  return moved;
}

std::vector<double> moved_by_negative_zeros(const Graph& graph, const Replay& replay,
                                            const std::vector<LeafValue>& leaves, const Overrides& overrides,
                                            const std::vector<bool>& shared, const std::vector<Probe>& probes) {
  const Functionals functionals(graph, replay, leaves, overrides, shared, probes);
  Overrides positive = negative_zeros(graph, replay, functionals.read());
  if (positive.empty()) return std::vector<double>(probes.size(), 0);
  return functionals.moved(std::move(positive));
}

Overrides without_negative_zeros(const Graph& graph, const Replay& replay) {
  return negative_zeros(graph, replay, std::vector<bool>(graph.nodes.size(), true));
}

}  // namespace plumbline
