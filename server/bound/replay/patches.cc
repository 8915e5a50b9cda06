#include "server/bound/replay/patches.h"

#include <algorithm>

#include "kernels/cpu/patches.h"

namespace plumbline {

std::optional<PatchOperand> patches_of(const Graph& graph, NodeId product) {
  const Node& node = graph.nodes[product];
  if (node.primitive != Primitive::kMatmul || node.inputs.size() > 3) return std::nullopt;
  const Node& matrices = graph.nodes[node.inputs[1]];
  const std::size_t rank = node.shape.size(), lead = rank - 2;
  if (node.shape[lead] != 1 || matrices.primitive != Primitive::kWindow || matrices.shape.size() != rank ||
      matrices.attributes.view.offset != 0 ||
      !std::equal(node.shape.begin(), node.shape.begin() + static_cast<std::ptrdiff_t>(lead), matrices.shape.begin()))
    return std::nullopt;
  PatchOperand found{0, matrices.inputs[0], {}};
  const Node& window = graph.nodes[found.window];
  if (window.primitive != Primitive::kWindow || window.shape.size() <= rank || count(window.shape) == 0 ||
      count(window.shape) != count(matrices.shape))
    return std::nullopt;
  found.image = window.inputs[0];
  found.view = window.attributes.view;
  // Matrices in the window's order, or the transposes of such.
  View seen = matrices.attributes.view;
  const std::int64_t terms = seen.sizes[lead], columns = seen.sizes[lead + 1];
  const bool transposed = !is_row_major(seen);
  if (transposed) {
    std::swap(seen.sizes[lead], seen.sizes[lead + 1]);
    std::swap(seen.strides[lead], seen.strides[lead + 1]);
    if (!is_row_major(seen)) return std::nullopt;
  }
  for (std::size_t d = 0; d < lead; ++d)
    if (found.view.sizes[d] != node.shape[d]) return std::nullopt;
  if (transposed) {
    std::size_t middle = lead;
    std::int64_t all = 1;
    while (middle < found.view.sizes.size() && all < columns) all *= found.view.sizes[middle++];
    if (all != columns) return std::nullopt;
    for (Shape* const of : {&found.view.sizes, &found.view.strides})
      std::rotate(of->begin() + static_cast<std::ptrdiff_t>(lead), of->begin() + static_cast<std::ptrdiff_t>(middle),
                  of->end());
  }
  return cpu::reads_patches(found.view, lead, terms) ? std::optional(std::move(found)) : std::nullopt;
}

}  // namespace plumbline
