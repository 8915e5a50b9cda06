#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "server/judge/judge.h"

namespace plumbline {
namespace {

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

std::string at(const Place& place) { return place.op + (place.source.empty() ? "" : " (" + place.source + ")"); }

// The last node of an origin: what the user sees as the operation's result.
NodeId result_of(const Graph& graph, std::uint32_t origin) {
  NodeId result = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (graph.nodes[id].origin == origin) result = id;
  return result;
}

bool is_cosine(const Graph& graph, std::uint32_t origin) {
  for (const Node& node : graph.nodes)
    if (node.origin == origin && node.primitive == Primitive::kCos) return true;
  return false;
}

Hazard guard_hazard(const Graph& graph, const GuardFinding& finding) {
  const GraphTap& tap = graph.taps[finding.tap];
  Hazard hazard{"guard", place_of(graph, tap.terms.front().node), finding.share, {}, {}};
  const std::string guard = tap.name + (finding.minimum ? " >= " : " <= ") + number(finding.limit);
  const std::string values = "exact " + number(finding.exact) + ", observed " + number(finding.observed);
  switch (finding.why) {
    case GuardFinding::Why::kMathematics:
      hazard.sentence = "The program itself breaks the guard " + guard + ", whatever the rounding: " + values + ".";
      hazard.remedy = "change the formula, or the guard";
      return hazard;
    case GuardFinding::Why::kExecution:
      hazard.sentence = "The guard " + guard + " is broken, though no legal rounding leads there: " + values + ".";
      hazard.remedy = "look at the verdict: an operation was not executed as its profile promises";
      return hazard;
    case GuardFinding::Why::kRounding:
      break;
  }
  const bool broken = !(finding.minimum ? finding.observed >= finding.limit : finding.observed <= finding.limit);
  hazard.sentence = std::string("Rounding alone ") + (broken ? "breaks" : "can break") + " the guard " + guard + ": " +
                    values + ", and legal executions lie in [" + number(finding.low) + ", " + number(finding.high) +
                    "].";
  hazard.remedy = std::string("clamp ") + tap.name + " at " + number(finding.limit) +
                  ", or compute it in a form that cannot cross it (a square is never negative)";
  if (finding.owner) {
    hazard.place = place_of(graph, result_of(graph, *finding.owner));
    if (is_cosine(graph, *finding.owner)) hazard.remedy += ": 1 + cos x = 2 sin((pi - x)/2)^2";
    hazard.remedy += "; most of the error comes from " + at(hazard.place);
  }
  return hazard;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, share < 0.001 ? "%.1e%%" : "%.1f%%", 100 * share);
  return text;
}

std::string power_of_two(int exponent) {
  const std::string text = "2^" + std::to_string(exponent);
  return std::abs(exponent) > 30 ? text : text + " = " + number(std::ldexp(1.0, exponent));
}

// The loss scale that saves gradients which leave their format's range, or what to do where none does.
std::string scale_advice(const HazardFinding& finding, const std::string& format) {
  if (!finding.scale_min || !finding.scale_max)
    return "hold it in a wider format than " + format + ", or scale its input";
  if (*finding.scale_min > *finding.scale_max)
    return "no loss scale keeps all gradients within " + format + ": hold them in bf16 or fp32";
  if (finding.kind == HazardKind::kOverflow)
    return "divide the loss scale by " + power_of_two(std::max(1, -*finding.scale_max)) + " or more";
  return "multiply the loss scale by " + power_of_two(*finding.scale_min) + ", and by no more than " +
         power_of_two(*finding.scale_max);
}

Hazard hazard_of(const Graph& graph, const HazardFinding& finding) {
  Hazard hazard{"", place_of(graph, finding.node), finding.share, "", ""};
  const std::string place = at(hazard.place), format = hazard.place.format, part = percent(finding.share);
  switch (finding.kind) {
    case HazardKind::kOverflow:
      hazard.kind = "overflow";
      hazard.sentence = part + " of the values of " + place + " are beyond the largest number of " + format + ".";
      hazard.remedy = scale_advice(finding, format);
      break;
    case HazardKind::kUnderflow:
      hazard.kind = "underflow";
      hazard.sentence = part + " of the values of " + place + " become zero or subnormal in " + format + "; " +
                        percent(finding.harm) + " of the whole is lost.";
      hazard.remedy = scale_advice(finding, format);
      break;
    case HazardKind::kLostUpdates:
      hazard.kind = "lost_updates";
      hazard.sentence = part + " of the weights' updates vanish, " + percent(finding.harm) +
                        " of the whole step: each is below half of its weight's last place in " + format + ".";
      hazard.remedy = "keep a master copy of the weights in fp32, or round stochastically";
      break;
    case HazardKind::kStagnation:
      hazard.kind = "stagnation";
      if (graph.nodes[finding.node].primitive == Primitive::kRound) {
        hazard.sentence = part + " of the weights' updates vanish, " + percent(finding.harm) +
                          " of the whole step: each is below half a step of the weights' grid.";
        hazard.remedy = "round stochastically, or keep a master copy of the weights in fp32";
        break;
      }
      hazard.sentence = part + " of the increments at " + place + " leave their running sum in " + format +
                        " as it was, " + percent(finding.harm) + " of what should be added.";
      hazard.remedy = "accumulate in fp32";
      break;
    case HazardKind::kSaturation:
      hazard.kind = "saturation";
      hazard.sentence = part + " of the values at " + place + " lie beyond the ends of their grid and are cut off.";
      hazard.remedy = "widen the step, or give the integers more bits";
      break;
    case HazardKind::kCompensation:
      hazard.kind = "compensation";
      hazard.sentence = "What " + at(hazard.place) +
                        " gives is zero but for roundings, which the program goes on with; its results are " +
                        number(finding.harm) + " times further from the exact ones than the reference's.";
      hazard.remedy = "look at the sign and the place of the compensation";
      return hazard;
    case HazardKind::kCancellation:
      hazard.kind = "cancellation";
      hazard.sentence = "The terms of " + place + " are " + number(finding.harm) +
                        " times larger than their sum, and so are their relative errors in it.";
      hazard.remedy =
          "rewrite it so that large terms do not meet (for a variance, subtract the mean first), or hold "
          "the terms in a wider format than " +
          format;
      break;
  }
  return hazard;
}

// A tap that is not finite where the rounded replay says so too, and no value of exact arithmetic was out of range (a
// division by what underflowed, for one).
bool explained_by(const Bounds& bounds, const RangeFinding& range) {
  if (!range.exact_finite || !range.rounded_agrees) return true;
  for (const HazardFinding& finding : bounds.hazards)
    if (finding.kind == HazardKind::kOverflow) return true;
  return false;
}

// Adds what exact arithmetic cannot save either, among what trains: a value that the user named may be infinite by
// intent.
void add_not_finite(const Graph& graph, const Bounds& bounds, std::vector<Hazard>* found) {
  const RangeFinding* first = nullptr;
  std::size_t lost = 0, all = 0;
  for (const GraphTap& tap : graph.taps) {
    if (tap.kind == TapKind::kValue) continue;
    ++all;
    const auto range = std::ranges::find(bounds.range, tap.name, &RangeFinding::tap);
    if (range == bounds.range.end() || range->exact_finite || !range->first) continue;
    ++lost;
    if (first == nullptr) first = &*range;
  }
  if (first == nullptr) return;
  const Place place = place_of(graph, *first->first);
  found->push_back(
      {"not_finite", place, static_cast<double>(lost) / static_cast<double>(all),
       "look at what is divided by zero, or lies outside of its function's domain, before " + at(place),
       std::to_string(lost) + " of " + std::to_string(all) +
           " taps hold NaN or infinities, which exact arithmetic gives too: nothing is learnt from these."});
}

Hazard untrained_hazard(const Graph& graph, const std::vector<std::size_t>& taps) {
  std::size_t gradients = 0;
  std::string names;
  for (const GraphTap& tap : graph.taps) gradients += tap.kind == TapKind::kGradient;
  for (std::size_t i = 0; i < taps.size() && i < 4; ++i) {
    const std::string& name = graph.taps[taps[i]].name;
    names += (i == 0 ? "" : ", ") + name.substr(name.find(':') + 1);
  }
  if (taps.size() > 4) names += " and " + std::to_string(taps.size() - 4) + " more";
  return {"not_trained", place_of(graph, graph.taps[taps.front()].terms.front().node),
          static_cast<double>(taps.size()) / static_cast<double>(gradients),
          "give them to the optimizer, or set requires_grad = False",
          "Of " + std::to_string(gradients) + " gradients " + std::to_string(taps.size()) +
              " change no parameter in a step that changes others: " + names + "."};
}

}  // namespace

std::vector<Hazard> hazards(const Graph& graph, const Bounds& bounds) {
  std::vector<Hazard> found;
  for (const HazardFinding& finding : bounds.hazards) found.push_back(hazard_of(graph, finding));
  for (const RangeFinding& range : bounds.range) {
    if (explained_by(bounds, range)) continue;
    const Place place = place_of(graph, *range.first);
    found.push_back({"overflow", place, 1, "raise the format of " + at(place) + " or scale its input",
                     "Tap " + range.tap + " is not finite because of " + at(place) + "."});
    break;
  }
  add_not_finite(graph, bounds, &found);
  if (!bounds.untrained.empty()) found.push_back(untrained_hazard(graph, bounds.untrained));
  for (const GuardFinding& finding : bounds.guards) found.push_back(guard_hazard(graph, finding));
  return found;
}

}  // namespace plumbline
