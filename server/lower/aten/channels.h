// Tensors whose second dimension is that of channels.
#pragma once

#include <cstdint>
#include <vector>

#include "server/lower/emit.h"

namespace plumbline {

// The dimensions but the channels'.
std::vector<std::int64_t> batch_dims(const Expr& x);
// A vector over channels, in the rank of x.
Expr per_channel(Expr vector, const Expr& x);

}  // namespace plumbline
