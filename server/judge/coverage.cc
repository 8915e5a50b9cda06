#include "server/judge/coverage.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>

namespace plumbline {
namespace {

std::string percent(std::uint64_t part, std::uint64_t whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

// Elements of the parameters whose gradient or update is a tap, by the module that holds them.
std::map<std::string, std::uint64_t> judged_parameters(const Trace& trace) {
  std::map<std::string, std::uint64_t> elements;  // The key is a parameter, since its gradient and update are one.
  for (const TraceTap& tap : trace.taps) {
    if (tap.kind != TapKind::kGradient && tap.kind != TapKind::kUpdate) continue;
    const std::size_t colon = tap.name.find(':');
    if (colon == std::string::npos || tap.terms.empty()) continue;
    elements[tap.name.substr(colon + 1)] = static_cast<std::uint64_t>(count(tap.terms.front().tensor.view.sizes));
  }
  std::map<std::string, std::uint64_t> modules;
  for (const auto& [name, size] : elements) {
    const std::size_t dot = name.rfind('.');
    modules[dot == std::string::npos ? "" : name.substr(0, dot)] += size;
  }
  return modules;
}

}  // namespace

void cover_modules(const Trace& trace, const GraphCoverage& operations, Verdict* verdict) {
  Coverage& coverage = verdict->coverage;
  coverage.partial = trace.scope.partial;
  coverage.modules = trace.scope.modules_total;
  coverage.parameters = trace.scope.parameters_total;
  const auto parameters = judged_parameters(trace);
  for (const auto& [path, elements] : parameters) coverage.parameters_audited += elements;
  const auto opaque = static_cast<std::uint64_t>(std::count_if(
      operations.modules.begin(), operations.modules.end(), [](const auto& each) { return each.second.opaque > 0; }));
  if (!trace.scope.partial) {
    coverage.modules_audited = coverage.modules - std::min(coverage.modules, opaque);
    return;
  }
  coverage.left_out = trace.scope.left_out;
  for (const std::string& path : trace.scope.modules) {
    const auto seen = operations.modules.find(path);
    if (seen != operations.modules.end() && seen->second.opaque > 0) {
      coverage.left_out.push_back(path);
      continue;
    }
    const auto judged = parameters.find(path);
    coverage.audited_modules.push_back({path, seen == operations.modules.end() ? 0 : seen->second.audited,
                                        judged == parameters.end() ? 0 : judged->second});
  }
  coverage.modules_audited = coverage.audited_modules.size();
  if (verdict->outcome == Outcome::kTypeII || coverage.modules == 0) return;
  verdict->sentence += " Only a part was audited: " + std::to_string(coverage.modules_audited) + " of " +
                       std::to_string(coverage.modules) + " modules";
  if (coverage.parameters > 0)
    verdict->sentence += ", " + percent(coverage.parameters_audited, coverage.parameters) + " of the parameters";
  verdict->sentence += ".";
}

}  // namespace plumbline
