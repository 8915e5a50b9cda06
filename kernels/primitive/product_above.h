// Products of magnitudes for bounds, which need no more than to be above.
#pragma once

#include "kernels/array.h"

namespace plumbline::primitive {

// c [..., m, n] >= (|a| + floor) (|b| + floor) - 2 k 2^-1074, a [..., m, k] and b [..., k, n]. Elements of 0 stay so
// where `floor` is 0. Too much by a part in 2^6 at most, beside a part in 2^59 of the product's largest possible
// element.
void product_above(const Array& a, const Array& b, double floor, Array& c);

}  // namespace plumbline::primitive
