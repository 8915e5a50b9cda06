// Products of single rows with patches of an image, read where they lie: depthwise convolutions and their gradients. An
// element of the image stands in as many patches as the kernel has taps; none is copied.
//
// The patches are a strided window [lead..., terms..., columns...] of the image. A product takes them for matrices
// [lead..., k, n]: a [lead..., 1, k] (broadcast over lead) times these gives [lead..., 1, n]. Either the terms or the
// columns are taps, of which there are few; the others are positions. All functions may be called by any thread; they
// compute on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/array.h"

namespace plumbline::cpu {

// Whether the functions below take this window, whose terms are k in number: patches that overlap, at most 64 taps, and
// parts of the image that leading indices keep apart.
bool reads_patches(const View& patches, std::size_t lead, std::int64_t k);

// c = a P, c row-major. An element gathers as few roundings as kernels/cpu/gemm.h says.
void multiply_patches(const Array& a, const Array& patches, Array& c);

// a = g P^T for g of the product's shape, summed over leading dimensions that a, row-major, broadcasts. False: nothing
// is done, as a broadcasts and has the positions for its columns.
bool multiply_transposed_patches(const Array& g, const Array& patches, Array& a);

// image += a^T g at the patches, a window of the image, which is row-major.
void add_at_patches(const Array& a, const Array& g, const View& patches, Array& image);

// [drawn, k]: the columns that give the elements `drawn` of a product of this shape, by their row-major numbers.
Array columns_of_patches(const Array& patches, const Shape& product, std::int64_t k,
                         const std::vector<std::int64_t>& drawn);

}  // namespace plumbline::cpu
