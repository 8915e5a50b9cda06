#include "server/bound/findings/guards.h"

#include <algorithm>
#include <cmath>

#include "server/bound/envelope/adjoint.h"
#include "server/bound/replay/certain.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

// One limit of one tap, as "sign * value >= sign * limit": sign +1 for a minimum, -1 for a maximum.
struct Question {
  std::size_t tap;
  double sign, limit;
  std::int64_t element;
  double exact, observed, share;
};

// The element whose value goes furthest in the direction of -sign. NaN goes furthest of all.
std::int64_t furthest(const Array& values, double sign) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < values.count(); ++i) {
    if (std::isnan(values.data()[i])) return i;
    if (sign * values.data()[i] < sign * values.data()[found]) found = i;
  }
  return found;
}

void ask(std::size_t index, double sign, double limit, const Array& exact, const Array& observed,
         std::vector<Question>* questions) {
  std::int64_t beyond = 0;
  for (std::int64_t i = 0; i < observed.count(); ++i) beyond += !(sign * observed.data()[i] >= sign * limit);
  const double share = static_cast<double>(beyond) / static_cast<double>(observed.count());
  const std::int64_t nearest = furthest(exact, sign), seen = furthest(observed, sign);
  for (const std::int64_t element : {beyond > 0 ? seen : nearest, nearest}) {
    if (!questions->empty() && questions->back().tap == index && questions->back().element == element &&
        questions->back().sign == sign)
      continue;
    questions->push_back({index, sign, limit, element, exact.data()[element], observed.data()[element], share});
  }
}

Probe element_probe(const Question& question, const Shape& shape) {
  Array one = Array::zeros({count(shape)});
  one.data()[question.element] = 1;
  return {"", {{question.tap, count(shape), {Array::full({1}, 1), one, shape}}}, 1};
}

Interval certain_range(const GraphTap& tap, const std::vector<Interval>& ranges) {
  Interval range{0, 0};
  for (const GraphTap::Term& term : tap.terms) {
    const Interval part = ranges[term.node];
    const double a = term.weight * part.low, b = term.weight * part.high;
    range = {range.low + std::min(a, b), range.high + std::max(a, b)};
  }
  return range;
}

std::optional<std::uint32_t> largest_part(const std::vector<double>& by_origin) {
  const auto found = std::max_element(by_origin.begin(), by_origin.end());
  if (found == by_origin.end() || !(*found > 0)) return std::nullopt;
  return static_cast<std::uint32_t>(found - by_origin.begin());
}

}  // namespace

std::vector<GuardFinding> check_guards(const Graph& graph, const Replay& exact, const Profile& profile) {
  std::vector<Question> questions;
  std::vector<NodeId> wanted;
  for (std::size_t i = 0; i < graph.taps.size(); ++i) {
    const GraphTap& tap = graph.taps[i];
    if (!tap.guard.given() || count(tap.shape) == 0) continue;
    const Array m = replayed_value(tap, exact).on_host(), t = observed_value(tap).on_host();
    if (std::isfinite(tap.guard.minimum)) ask(i, 1, tap.guard.minimum, m, t, &questions);
    if (std::isfinite(tap.guard.maximum)) ask(i, -1, tap.guard.maximum, m, t, &questions);
    for (const GraphTap::Term& term : tap.terms) wanted.push_back(term.node);
  }
  if (questions.empty()) return {};

  std::vector<Probe> probes;
  probes.reserve(questions.size());
  for (const Question& question : questions) probes.push_back(element_probe(question, graph.taps[question.tap].shape));
  const std::vector<Envelope> envelopes = adjoint_envelopes(graph, exact, probes, profile);
  const std::vector<Interval> ranges = certain_ranges(graph, exact, wanted, profile);

  std::vector<GuardFinding> findings;
  for (std::size_t q = 0; q < questions.size(); ++q) {
    const Question& asked = questions[q];
    const double rho = envelopes[q].rho, radius = envelopes[q].error + rho;
    const Interval certain = certain_range(graph.taps[asked.tap], ranges);
    const auto inside = [&](double value) { return asked.sign * value >= asked.sign * asked.limit; };
    GuardFinding finding;
    finding.tap = asked.tap;
    finding.limit = asked.limit;
    finding.minimum = asked.sign > 0;
    finding.element = static_cast<std::uint64_t>(asked.element);
    finding.exact = asked.exact;
    finding.observed = asked.observed;
    finding.low = std::max(asked.exact - radius, certain.low);
    finding.high = std::min(asked.exact + radius, certain.high);
    finding.share = asked.share;
    finding.owner = largest_part(envelopes[q].by_origin);
    if (!inside(asked.exact + asked.sign * rho))
      finding.why = GuardFinding::Why::kMathematics;
    else if (!inside(asked.sign > 0 ? finding.low : finding.high))
      finding.why = GuardFinding::Why::kRounding;
    else if (!inside(asked.observed))
      finding.why = GuardFinding::Why::kExecution;
    else
      continue;
    const bool known =
        !findings.empty() && findings.back().tap == finding.tap && findings.back().minimum == finding.minimum;
    if (!known) findings.push_back(finding);  // The element observed furthest beyond goes first.
  }
  return findings;
}

}  // namespace plumbline
