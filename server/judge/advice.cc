#include <cmath>
#include <cstdio>

#include "server/judge/judge.h"

namespace plumbline {
namespace {

std::string format_text(const char* pattern, double x) {
  char text[160];
  std::snprintf(text, sizeof text, pattern, x);
  return text;
}

std::string where(const Place& place) { return place.op + (place.source.empty() ? "" : " at " + place.source); }

bool accumulates(const Graph& graph, const Place& place) {
  for (const Node& node : graph.nodes) {
    const Origin& origin = graph.origins[node.origin];
    if (origin.op == place.op && origin.source == place.source &&
        (node.primitive == Primitive::kAdd || node.primitive == Primitive::kSum ||
         node.primitive == Primitive::kCumsum))
      return true;
  }
  return false;
}

// The envelope's largest part as it would be in fp32: its errors shrink as the unit roundoffs do, the others stay.
std::string in_single(const Graph& graph, const Contributor& first) {
  const double narrower =
      unit_roundoff(Format::kFloat32) / unit_roundoff(format_by_name(first.place.format).value_or(Format::kFloat32));
  const double ratio = 1 / (1 - first.share * (1 - narrower));
  return (accumulates(graph, first.place) ? "accumulate in fp32 at "
                                          : "to tighten the result, raise the precision of ") +
         where(first.place) + " (" + first.place.format + format_text(", %.0f%% of the envelope", 100 * first.share) +
         format_text("): in fp32 the envelope would be %.3g times smaller", ratio);
}

}  // namespace

std::vector<std::string> advice(const JudgeInput& input, const Verdict& verdict) {
  const Graph& graph = *input.graph;
  const Bounds& bounds = *input.bounds;
  std::vector<std::string> lines;
  if (verdict.outcome == Outcome::kTypeII) {
    if (verdict.suspect) lines.push_back("look at " + where(*verdict.suspect) + ": " + verdict.suspect_detail);
    if (bounds.scale_error)
      lines.push_back(
          format_text("the target is the reference times %.9g throughout: look for a normalisation "
                      "(batch, token count, accumulation steps, world size, loss scale)",
                      1 + *bounds.scale_error));
  } else if (verdict.outcome == Outcome::kInconclusive) {
    if (verdict.cause == Cause::kReferenceMissing) lines.push_back("run the reference with the same steps sampled");
    bool vacuous = false;
    for (const Finding& finding : bounds.findings) vacuous = vacuous || finding.execution.vacuous();
    if (!input.outputs && (verdict.cause == Cause::kExecution || vacuous))
      lines.push_back(
          "audit with capture=\"outputs\": each operation is then proven by itself, however deep the model");
    if (verdict.cause == Cause::kUnanswered && !bounds.paired)
      lines.push_back("pair with a reference run: mathematics can then be compared where an envelope says nothing");
    if (graph.coverage.opaque > 0) lines.push_back("some operations are not modelled: see coverage");
  }
  for (const Finding& finding : bounds.findings) {
    // An update's envelope is that of one weight's last place, and no tolerance for the others.
    const bool deciding = finding.name == verdict.deciding_tap && finding.execution.asked && !finding.proven;
    if (verdict.outcome == Outcome::kTypeI && deciding && !finding.execution.vacuous())
      lines.push_back(format_text("a sound tolerance against an exact reference here is rtol = %.2g of the norm",
                                  finding.execution.envelope));
  }
  if (verdict.outcome != Outcome::kTypeII && !verdict.contributors.empty()) {
    const Contributor& first = verdict.contributors.front();
    if (first.place.format == "bf16" || first.place.format == "fp16") lines.push_back(in_single(graph, first));
  }
  return lines;
}

}  // namespace plumbline
