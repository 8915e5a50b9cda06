#include "tests/soundness/statistical.h"

#include <cmath>

#include "server/bound/envelope/adjoint.h"
#include "server/bound/replay/taps.h"
#include "tests/soundness/arithmetics.h"
#include "tests/soundness/graph_execution.h"
#include "tests/soundness/networks.h"

namespace plumbline::soundness {
namespace {

StatisticalOutcome outcome(const std::string& name, Graph (*make)(Random&), const Profile& profile, int executions,
                           double alpha, Random& random) {
  StatisticalOutcome result{name + ", " + profile.name, 0, 0, 0, 0, profile.name == "correctly-rounded"};
  constexpr int kEach = 50;  // One draw of the data is executed so often.
  while (result.executions < executions) {
    const Graph graph = make(random);
    const Replay exact = replay(graph, leaf_values(graph), Precision::kExact);
    const Array m = replayed_value(graph.taps.back(), exact);
    const Envelope envelope = adjoint_envelopes(
        graph, exact, {scalar_probe(probe_tap(graph.taps.size() - 1, graph.taps.back(), m))}, profile)[0];
    const double e = std::min(envelope.error, statistical(envelope.noise, hoeffding_lambda(1, alpha)));
    const NodeId loss = graph.taps.back().terms[0].node;
    for (int i = 0; i < std::min(kEach, executions); ++i, ++result.executions) {
      const double deviation = std::fabs(execute_graph(graph, profile, loss, random).item() - m.item());
      result.violations += deviation <= e ? 0 : 1;
      result.largest = std::max(result.largest, deviation / e);
    }
  }
  result.expected = alpha * result.executions;
  return result;
}

}  // namespace

std::vector<StatisticalOutcome> statistical_outcomes(int executions, double alpha, Random& random) {
  constexpr std::pair<const char*, Graph (*)(Random&)> kGraphs[] = {
      {"mlp", [](Random& r) { return mlp(r); }},
      {"transformer", [](Random& r) { return transformer(r); }},
      {"biased product", biased},
      {"stagnating sum", stagnating}};
  std::vector<StatisticalOutcome> outcomes;
  const auto seed = random();
  for (const Profile& profile : all_profiles()) {
    const bool wanted = profile.name == "correctly-rounded" || profile.name == "ieee" || profile.name == "toward-zero";
    if (!wanted) continue;
    for (const auto& [name, make] : kGraphs) {
      Random own(seed);  // Each graph has its own, so that one more draws no other numbers for the rest.
      outcomes.push_back(outcome(name, make, profile, executions, alpha, own));
    }
    outcomes.back().nearest = false;  // Its errors are bias, charged whole.
  }
  return outcomes;
}

}  // namespace plumbline::soundness
