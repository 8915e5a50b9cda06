#include "server/bound/findings/choices.h"

#include <algorithm>
#include <cmath>

#include "server/bound/envelope/adjoint.h"
#include "server/bound/replay/decided.h"

namespace plumbline {
namespace {

// The element of a choice that lies furthest from exact arithmetic's.
struct Turned {
  double margin = 0;                 // Between the two numbers; infinite where one of them is none of the table's.
  std::int64_t exact = 0, told = 0;  // Their rows in the table.
};

Turned furthest(const GraphDecision& decision, const Replay& followed) {
  const Array own = followed.computed(decision.node).on_host();
  const Array observed = followed.value(decision.node).on_host();
  const Array table = followed.value(decision.choice->table).on_host();
  const Array position = followed.value(decision.choice->position).on_host();
  Turned most;
  for (std::int64_t i = 0; i < own.count(); ++i) {
    const double moved = own.data()[i] - observed.data()[i];
    if (moved == 0) continue;
    const double row = position.data()[i], other = row + moved * static_cast<double>(decision.choice->stride);
    const auto rows = static_cast<double>(table.count());
    if (!(row >= 0 && other >= 0 && row < rows && other < rows)) return {HUGE_VAL, 0, 0};
    const auto told = static_cast<std::int64_t>(row), exact = static_cast<std::int64_t>(other);
    const double margin = std::fabs(table.data()[told] - table.data()[exact]);
    if (margin > most.margin) most = {margin, exact, told};
  }
  return most;
}

// Standard deviation of what is finite.
double spread_of(const Array& values) {
  const Array table = values.on_host();
  double sum = 0, squares = 0, finite = 0;
  for (std::int64_t i = 0; i < table.count(); ++i) {
    const double x = table.data()[i];
    if (!std::isfinite(x)) continue;
    ++finite;
    sum += x;
    squares += x * x;
  }
  return finite == 0 ? 0 : std::sqrt(std::fmax(0, squares / finite - sum / finite * (sum / finite)));
}

// The difference of two rows of a tap that is a column.
Probe difference(std::size_t tap, const Shape& shape, const Turned& turned) {
  Array rows = Array::zeros({count(shape)});
  rows.data()[turned.told] = 1;
  rows.data()[turned.exact] = -1;
  return {"a choice", {{tap, 2, {rows, Array::full({1}, 1), shape}}}};
}

}  // namespace

std::vector<NodeId> illegal_choices(const Graph& graph, const Replay& followed, const Profile& profile, double alpha) {
  std::vector<NodeId> illegal, doubtful;
  std::vector<Turned> turned;
  Graph asked = graph;
  asked.taps.clear();
  std::vector<Probe> probes;
  double tests = 0;
  for (const GraphDecision& decision : graph.decisions) {
    if (!decision.choice) continue;
    tests += static_cast<double>(count(graph.nodes[decision.node].shape));
    const NodeId table = decision.choice->table;
    const Turned most = furthest(decision, followed);
    if (most.margin <= spread_of(followed.value(table)) * illegal_share(graph, table, profile)) continue;
    if (!std::isfinite(most.margin)) {
      illegal.push_back(decision.node);
      continue;
    }
    const Shape& shape = graph.nodes[table].shape;
    probes.push_back(difference(asked.taps.size(), shape, most));
    asked.taps.push_back({"",
                          TapKind::kValue,
                          shape,
                          {{table, 1, graph.nodes[table].result, nullptr}},
                          nullptr,
                          Format::kUnknown,
                          0,
                          {}});
    doubtful.push_back(decision.node);
    turned.push_back(most);
  }
  if (probes.empty()) return illegal;
  const std::vector<Envelope> envelopes = adjoint_envelopes(asked, followed, probes, profile);
  const double lambda = hoeffding_lambda(std::max(1.0, tests), alpha);
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const double reached = std::fmin(envelopes[i].error, statistical(envelopes[i].noise, lambda)) + envelopes[i].rho;
    if (!(turned[i].margin <= reached)) illegal.push_back(doubtful[i]);
  }
  return illegal;
}

}  // namespace plumbline
