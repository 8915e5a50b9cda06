// Products of magnitudes for bounds, which need no more than to be above.
#pragma once

#include "kernels/array.h"

namespace plumbline::primitive {

// A product's second operand may be patches of an image, on the host (kernels/cpu/patches.h): a window that has more
// dimensions than the product.
inline bool of_patches(const Array& b, const Shape& product) { return b.shape().size() > product.size(); }

// c [..., m, n] >= (|a| + floor) (|b| + floor) - 2 k 2^-1074, a [..., m, k] and b [..., k, n]. Elements of 0 stay so
// where `floor` is 0. Too much by a part in 2^6 at most, beside a part in 2^59 of the product's largest possible
// element. b may be patches.
void product_above(const Array& a, const Array& b, double floor, Array& c);

}  // namespace plumbline::primitive
