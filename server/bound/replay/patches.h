// Products with patches of an image, as convolutions of one channel a group are lowered to: matrices that reshape a
// window of the image. The host reads them where they lie (kernels/cpu/patches.h).
#pragma once

#include <optional>

#include "server/lower/graph.h"

namespace plumbline {

// What a product's second operand is read from.
struct PatchOperand {
  NodeId image;   // Its row-major elements are seen through `view`, [lead..., terms..., columns...].
  NodeId window;  // The node that is this window, its dimensions perhaps in another order.
  View view;
};

// Nothing: it is no such product, or not one of a single row.
std::optional<PatchOperand> patches_of(const Graph& graph, NodeId product);

}  // namespace plumbline
