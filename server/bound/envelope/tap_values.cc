#include "server/bound/envelope/tap_values.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/sums.h"
#include "server/bound/replay/terms.h"

namespace plumbline {

TapValues::TapValues(const Graph& graph, const Replay& replay, const std::vector<FiniteTap>& finite)
    : graph_(graph), replay_(replay) {
  for (std::size_t i = 0; i < graph.taps.size(); ++i) {
    if (!finite[i].exact() && !finite[i].observed)
      if (const Array mask = common_infinities(observed(i), exact(i))) {
        masks_.emplace(i, mask);
        taps_.push_back(i);
      }
    if (!finite[i].exact()) continue;
    if (finite[i].observed) {
      taps_.push_back(i);
    } else {
      overflown_.insert(i);
    }
  }
}

void TapValues::read_by_factors(TappedProducts products, Replay beside) {
  by_factors_ = std::move(products);
  beside_ = std::move(beside);
}

bool TapValues::unread(std::size_t tap) const {
  return std::ranges::any_of(by_factors_, [&](const auto& one) { return one.second.tap == tap; });
}

ProbeTap TapValues::probed(std::size_t tap) const {
  if (unread(tap))
    return probe_tap(tap, graph_.taps[tap], beside_ ? replayed_value(graph_.taps[tap], beside_) : observed(tap));
  const auto mask = masks_.find(tap);
  ProbeTap probed = probe_tap(tap, graph_.taps[tap], exact(tap), mask == masks_.end() ? Array() : mask->second);
  if (count(graph_.taps[tap].shape) == 1)
    probed.magnitude = tap_magnitude(graph_, replay_, graph_.taps[tap], std::fabs(exact(tap).item()));
  return probed;
}

Array TapValues::observed(std::size_t tap) const { return observed_value(graph_.taps[tap]); }
Array TapValues::exact(std::size_t tap) const { return replayed_value(graph_.taps[tap], replay_); }

namespace {

double value_of(const Probe& probe, const TapValues& values, bool observed) {
  std::vector<Later<double>> parts;
  for (const Probe::Part& part : probe.parts)
    parts.push_back(dot(part.weights.array(), observed ? values.observed(part.tap) : values.exact(part.tap)));
  return sum_of(parts);
}

}  // namespace

Measured measure(const Probe& probe, const TapValues& values) {
  Measured measured;
  std::vector<Later<double>> unread, computed;
  for (const Probe::Part& part : probe.parts) {
    const PartsOf seen = observed_parts(values.graph().taps[part.tap]);
    if (values.unread(part.tap))
      unread.push_back(dot(part.weights, seen));
    else
      computed.push_back(dot_difference(part.weights, seen, parts_of(values.exact(part.tap))));
  }
  measured.computed = sum_of(computed);
  measured.deviation = measured.computed + sum_of(unread);
  if (probe.of_one_element()) {
    measured.centre = value_of(probe, values, false);
    measured.observed = value_of(probe, values, true);
  }
  return measured;
}

}  // namespace plumbline
