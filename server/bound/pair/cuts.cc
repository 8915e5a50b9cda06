#include "server/bound/pair/cuts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>
#include <utility>

#include "kernels/sums.h"
#include "server/bound/pair/drill.h"

namespace plumbline {
namespace {

constexpr double kPassedOnNoise = 1e-8;  // Far above the errors of two replays.

Array leaf_content(const Graph& graph, NodeId node) {
  for (const GraphLeaf& leaf : graph.leaves)
    if (leaf.node == node && leaf.bytes) {
      Array values = Array::uninitialized(graph.nodes[node].shape);
      decode(leaf.format, leaf.bytes->data(), values.count(), values.data());
      return values;
    }
  return Array::zeros(graph.nodes[node].shape);
}

struct Call {
  const OpaqueCall &target, &reference;
  double in = 0, out = 0;            // How far its inputs, in exact arithmetic, and what it gave differ.
  Format format = Format::kUnknown;  // The coarsest of what it read and gave.
};

Format coarser(Format a, Format b) {
  if (a == Format::kUnknown || !is_float(a)) return b;
  return is_float(b) && unit_roundoff(b) > unit_roundoff(a) ? b : a;
}

Call compared(const BoundsInput& input, const PairReplays& replays, const OpaqueCall& ours, const OpaqueCall& theirs) {
  Call call{ours, theirs};
  for (std::size_t i = 0; i < ours.inputs.size(); ++i) {
    call.in = std::fmax(
        call.in,
        apart(replays.target.value(ours.inputs[i]), replays.reference.value(theirs.inputs[i])).get().relative());
    call.format = coarser(call.format, input.target->nodes[ours.inputs[i]].result);
  }
  for (std::size_t i = 0; i < ours.outputs.size(); ++i) {
    const Array t = leaf_content(*input.target, ours.outputs[i]), r = leaf_content(*input.reference, theirs.outputs[i]);
    call.out = std::fmax(call.out, apart(t, r).get().relative());
    call.format = coarser(call.format, input.target->nodes[ours.outputs[i]].result);
  }
  return call;
}

// Whether it was fed other inputs in the two programs and gave nearly the same, as a commutative operation does whose
// inputs changed places: neither proof of a difference nor of agreement.
bool indifferent(const Call& call) {
  constexpr double kSensitivityMin = 0.1;
  return call.in > kPassedOnNoise && call.out < kSensitivityMin * call.in;
}

// Whether it was fed the same and gave something else than a rounding of its operands moves a result by. What it
// computes is not known, so that this accuses nobody; nor can it acquit. `alike`: what it was fed came of nothing in
// which the executions differ.
bool unequal(const Call& call, bool alike) {
  constexpr double kRoundings = 64;
  const double u = is_float(call.format) ? unit_roundoff(call.format) : 0;
  // Operands that our replays give bit by bit alike were computed by the same operations, and are the same.
  return alike && call.in == 0 ? call.out > 0 : call.in <= kPassedOnNoise && call.out > kRoundings * u;
}

void compare_inputs(const BoundsInput& input, const PairReplays& replays, const std::vector<const OpaqueCall*>& ours,
                    const std::vector<const OpaqueCall*>& theirs, Bounds* bounds) {
  const Graph target = with_cut_taps(*input.target, ours), reference = with_cut_taps(*input.reference, theirs);
  BoundsInput sides = input;
  sides.target = &target;
  sides.reference = &reference;
  std::vector<PairedTap> pairs;
  for (std::size_t i = 0; i < target.taps.size(); ++i)
    if (target.taps[i].shape == reference.taps[i].shape && count(target.taps[i].shape) > 0) pairs.push_back({i, i});
  const std::size_t known = bounds->findings.size();
  drill_down(sides, Gap(sides, replays, std::move(pairs)), {}, bounds);
  for (std::size_t i = known; i < bounds->findings.size(); ++i)
    bounds->findings[i].taps.clear();  // None of the trace's.
}

const Draw* draw_of(const Graph& graph, NodeId leaf) {
  const auto draw = std::ranges::find(graph.draws, leaf, &Draw::leaf);
  return draw == graph.draws.end() ? nullptr : &*draw;
}

// Constants that are one after rounding to fp32, in which kernels draw.
bool same_number(double a, double b) { return static_cast<float>(a) == static_cast<float>(b); }

// A uniform draw takes of its upper end the range alone: from + u (to - from), in fp32
// (ATen: core/TransformationHelper.h).
bool same_parameter(const Draw& a, const Draw& b, std::size_t i) {
  if (same_number(a.numbers[i], b.numbers[i])) return true;
  const auto range = [](const Draw& draw) {
    return static_cast<float>(draw.numbers[1]) - static_cast<float>(draw.numbers[0]);
  };
  return a.family == "uniform" && i == 1 && range(a) == range(b);
}

// Whether the chances of two Bernoulli draws are a tensor of one program, and a number or a tensor of another shape of
// the other.
bool differ_in_form(const BoundsInput& input, const Draw& ours, const Draw& theirs) {
  if (ours.family != "bernoulli" || ours.place.size() != 1 || theirs.place.size() != 1) return false;
  const std::optional<NodeId>&a = ours.place[0].node, &b = theirs.place[0].node;
  if (!a || !b) return a.has_value() != b.has_value();
  return input.target->nodes[*a].shape != input.reference->nodes[*b].shape;
}

// The farthest two chances of an element; nothing where they are one, but for the roundings of what they were computed
// of. A single number stands for all elements.
std::optional<std::pair<double, double>> other_chances(const Replay& target, const Draw& ours, const Replay& reference,
                                                       const Draw& theirs) {
  const auto chances = [](const Replay& replay, const Draw::Parameter& parameter) {
    return (parameter.node ? replay.value(*parameter.node) : Array::scalar(parameter.number)).materialize().on_host();
  };
  const Array a = chances(target, ours.place[0]), b = chances(reference, theirs.place[0]);
  const std::int64_t n = std::max(a.count(), b.count());
  if ((a.count() != 1 && a.count() != n) || (b.count() != 1 && b.count() != n)) return std::nullopt;
  std::optional<std::pair<double, double>> found;
  double most = 16 * unit_roundoff(Format::kFloat32);
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = a.data()[a.count() == 1 ? 0 : i], y = b.data()[b.count() == 1 ? 0 : i];
    if (!(std::fabs(x - y) > most * std::fmax(std::fabs(x), std::fabs(y)))) continue;
    most = std::fabs(x - y) / std::fmax(std::fabs(x), std::fabs(y));
    found = {x, y};
  }
  return found;
}

std::string text(double x) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.9g", x);
  return digits;
}

}  // namespace

void compare_draws(const BoundsInput& input, const PairReplays& replays, Bounds* bounds) {
  std::vector<OpaqueCall> ours, theirs;
  for (const auto& [t, r] : bounds->match.draws) {
    const Draw *mine = draw_of(*input.target, t), *other = draw_of(*input.reference, r);
    if (mine == nullptr || other == nullptr || mine->family != other->family) continue;
    const auto differ = [&, leaf = t, origin = mine->origin](double a, double b) {
      Finding& finding = bounds->findings.emplace_back();
      finding.name = "distribution of " + input.target->origins[origin].op;
      finding.mathematics = Answer{true, std::fabs(a - b) / std::fmax(std::fabs(a), std::fabs(b)), 0, 0};
      if (!bounds->suspicion)
        bounds->suspicion = Suspicion{leaf, "it draws with " + text(a) + " where the reference draws with " + text(b)};
    };
    for (std::size_t i = 0; i < std::min(mine->numbers.size(), other->numbers.size()); ++i)
      if (!same_parameter(*mine, *other, i)) differ(mine->numbers[i], other->numbers[i]);
    if (differ_in_form(input, *mine, *other))
      if (const auto chances = other_chances(replays.target, *mine, replays.reference, *other))
        differ(chances->first, chances->second);
    if (mine->inputs.size() != other->inputs.size()) continue;
    ours.push_back({mine->origin, "", mine->inputs, {}});
    theirs.push_back({other->origin, "", other->inputs, {}});
  }
  std::vector<const OpaqueCall*> our_calls, their_calls;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    our_calls.push_back(&ours[i]);
    their_calls.push_back(&theirs[i]);
  }
  if (!ours.empty()) compare_inputs(input, replays, our_calls, their_calls, bounds);
}

void compare_cuts(const BoundsInput& input, const PairReplays& replays, const Cuts& cuts, Bounds* bounds) {
  std::vector<const OpaqueCall*> ours, theirs;
  std::vector<Call> calls;
  std::vector<NodeId> differing;  // Of the target, what the reference has in another execution.
  for (const auto& [t, r] : cuts.calls) {
    calls.push_back(compared(input, replays, *t, *r));
    if (calls.back().out > 0) std::ranges::copy(t->outputs, std::back_inserter(differing));
  }
  for (const MatchedItem& item : bounds->match.items) {
    if (!item.in_reference)
      differing.push_back(item.item);
    else if (item.counterpart)
      differing.push_back(*item.counterpart);
  }
  const std::vector<bool> moved = reached_by(differing, *input.target);
  for (const Call& call : calls) {
    const OpaqueCall *const t = &call.target, *const r = &call.reference;
    const bool alike = std::ranges::none_of(t->inputs, [&](NodeId id) { return bool{moved[id]}; });
    if (unequal(call, alike) && !bounds->unequal_call) bounds->unequal_call = t->origin;
    if (indifferent(call)) {
      if (!bounds->indifferent_call) bounds->indifferent_call = t->origin;
      continue;
    }
    ours.push_back(t);
    theirs.push_back(r);
  }
  compare_inputs(input, replays, ours, theirs, bounds);
}

}  // namespace plumbline
