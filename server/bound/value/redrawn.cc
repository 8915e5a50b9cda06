#include "server/bound/value/redrawn.h"

#include "kernels/sums.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr double kConfirming = 10;  // So far beyond its resolution would another draw have moved a tap.

LeafValue reversed(const LeafValue& leaf) {
  const Array content = static_cast<Array>(leaf).materialize().on_host();
  Array other = Array::uninitialized(content.shape());
  for (std::int64_t i = 0; i < other.count(); ++i) other.data()[i] = content.data()[other.count() - 1 - i];
  return {other};
}

}  // namespace

std::vector<bool> unconfirmed_draws(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& exact,
                                    const std::vector<PassedTap>& passed) {
  std::vector<bool> open(graph.leaves.size());
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) {
    const GraphLeaf& leaf = graph.leaves[i];
    if (leaf.role != LeafRole::kRandom || !leaves[i] || !exact.has(leaf.node)) continue;
    bool confirmed = false;
    if (!passed.empty()) {
      std::vector<LeafValue> others = leaves;
      others[i] = reversed(leaves[i]);
      const Replay moved = replay(graph, others, Precision::kExact);
      for (const PassedTap& tap : passed) {
        const double away =
            norm2_difference(replayed_value(graph.taps[tap.tap], moved), replayed_value(graph.taps[tap.tap], exact));
        confirmed = confirmed || away > kConfirming * tap.resolution;
      }
    }
    open[i] = !confirmed;
  }
  return open;
}

}  // namespace plumbline
