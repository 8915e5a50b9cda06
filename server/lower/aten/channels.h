// Tensors whose second dimension is that of channels.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "server/lower/call.h"
#include "server/lower/emit.h"

namespace plumbline {

// The dimensions but the channels'.
std::vector<std::int64_t> batch_dims(const Expr& x);
// A vector over channels, in the rank of x.
Expr per_channel(Expr vector, const Expr& x);

// Whether these tensors all lie in memory row by row, or channels last, which images and volumes alone can.
struct MemoryOrder {
  bool rows = true, channels_last = true;
};
MemoryOrder memory_order(Call& call, std::initializer_list<std::string_view> names);

// The sum over the batch of gradients, or of their products with `input`, x, as the backward passes of batch norms form
// it. CUDA's kernels of 16-bit numbers round a product to these, and each part of a sum that a thread takes from
// another, in 5 exchanges within one of at most 16 warps and 4 between them; those for channels that lie side by side
// do not, nor does cuDNN (ATen: native/cuda/Normalization.cuh, GradOp, Float2, reduce).
Expr sum_of_gradients(Call& call, const Expr& x, Expr terms, bool products);

}  // namespace plumbline
