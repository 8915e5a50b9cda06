// Bags of embeddings whose gradients are sparse.
#pragma once

#include "server/lower/registry.h"

namespace plumbline {

// The gradient of a table as indices [1, n] and values [n, d]: an entry for each word that is not the padding, in their
// order.
void lower_sparse_bag_backward(Call& call);

}  // namespace plumbline
