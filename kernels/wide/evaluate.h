// The exact function of every primitive (kernels/primitive/primitive.h) in wide scalars, on the host: the counterpart
// of PrimitiveTraits::evaluate, with the same rules for NaN, infinities, ties and equal elements.
//
// An elementwise result is within 2^-110 of its own magnitude, unless it is subnormal, which begins below 2^-16382. A
// sum of n terms loses at most n 2^-113 of its terms' magnitudes, a product of matrices at most 2^-94 and usually less
// than 2^-100. tests/soundness/wide_test.cc compares each primitive with FLINT/Arb. Indices and comparisons follow the
// wide values. A value that overflows in fp64 stays finite here; only IsFinite asks whether fp64 holds it.
#pragma once

#include <span>

#include "kernels/primitive/primitive.h"
#include "kernels/wide/array.h"

namespace plumbline::wide {

// As PrimitiveTraits::evaluate; not for kLeaf, whose content is the caller's. Thread-safe.
WideArray evaluate(Primitive primitive, const Attributes& attributes, const Shape& shape,
                   std::span<const WideArray> in);

// What evaluating it takes, in multiply-adds of a product: about a nanosecond each on one core with vectors of eight
// doubles. An operation of wide scalars counts as 20, a function as 1000.
double work(Primitive primitive, const Attributes& attributes, const Shape& shape, std::span<const Shape> in);

}  // namespace plumbline::wide
