// Operations on integers, which wrap as their formats do. Operands are integers held in wide scalars.
#pragma once

#include "kernels/ball/format.h"
#include "kernels/wide/array.h"

namespace plumbline::wide {

// Whether each element is an integer that 64 bits hold, signed or not.
bool integral(const WideArray& values);

// The number that `format` holds where arithmetic without limits gives x; x itself where it is none, or beyond 2^112.
WideArray wrapped(Format format, const WideArray& values);

// a b modulo 2^64, between -2^63 and 2^63: products of 64 bits have more than a wide scalar.
WideArray multiplied(const WideArray& a, const WideArray& b, const Shape& shape);

}  // namespace plumbline::wide
