#include "server/bound/pair/half_known.h"

#include <cmath>

namespace plumbline {
namespace {

// Empty: a lone number, however often it stands there, was written or made by a few operations, and of what the other
// program holds but for some elements (`own` is zero at the others) these are other data.
Array half_known(Format format, const Array& content, const Array& own) {
  const Array free = freedom_of(format, content);
  if (!free) return {};
  bool several = false, apart = true;
  double squares = 0;
  for (std::int64_t i = 0; i < content.count(); ++i) {
    several = several || content.data()[i] != content.data()[0];
    apart = apart && (own.data()[i] > 0 || free.data()[i] == 0);
    if (std::isfinite(content.data()[i])) squares += content.data()[i] * content.data()[i];
  }
  if (!several || !apart) return {};
  const double size = std::sqrt(squares / static_cast<double>(content.count()));
  const double half_of_digits = std::sqrt(unit_roundoff(format)) / 2;  // Doubled where it is charged (gap.cc).
  Array wide = Array::uninitialized({content.count()});
  for (std::int64_t i = 0; i < content.count(); ++i)  // What has few digits was written.
    wide.data()[i] = free.data()[i] > 0 ? half_of_digits * (std::fabs(content.data()[i]) + size) : 0;
  return wide;
}

}  // namespace

Freedoms half_known(const Graph& graph, const Correspondence& match, bool of_reference) {
  const Freedoms& freedoms = of_reference ? match.reference_freedoms : match.target_freedoms;
  const std::vector<LeafValue>& values = of_reference ? match.reference_values : match.target_values;
  Freedoms found;
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) {
    const GraphLeaf& leaf = graph.leaves[i];
    const auto own = freedoms.find(leaf.node);
    if (own == freedoms.end() || (leaf.role != LeafRole::kData && leaf.role != LeafRole::kBuffer)) continue;
    const Array content = static_cast<Array>(values[i]).materialize().on_host();
    if (const Array free = half_known(leaf.format, content, own->second.materialize().on_host()))
      found[leaf.node] = free.reshape(graph.nodes[leaf.node].shape);
  }
  return found;
}

}  // namespace plumbline
