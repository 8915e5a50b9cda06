#include <cmath>
#include <cstdio>

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

}  // namespace

std::vector<Hazard> hazards(const Graph& graph, const Bounds& bounds) {
  std::vector<Hazard> found;
  for (const GuardFinding& finding : bounds.guards) found.push_back(guard_hazard(graph, finding));
  return found;
}

}  // namespace plumbline
