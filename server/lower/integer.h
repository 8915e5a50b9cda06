// Arithmetic of integers, which are exact and wrap around at the width of their format (ATen: C++ arithmetic on
// unsigned integers of that width).
//
// A node holds integers as fp64 numbers, exact to 2^53. Where the operands' ranges say that a result stays below that,
// it is computed as it is, and brought back into the format if it can leave it. Otherwise it is computed in words of 32
// bits, whose nodes are exact; the node of the number itself then is the nearest fp64 number, as an observed one is.
#pragma once

#include "server/lower/emit.h"

namespace plumbline {

// The words of an integer; nothing: beyond 2^53, and not known.
std::optional<Words> words_of(Expr x);

// x as a node of an integer format holds it. Throws Unsupported where its own arithmetic went beyond 2^53.
Expr wrapped(Expr x, Format format);

Expr whole_sum(Expr a, Expr b, Format format);
Expr whole_difference(Expr a, Expr b, Format format);
Expr whole_product(Expr a, Expr b, Format format);

// A sum over dimensions, which stay as size 1 (kSum), or the running sums along one (kCumsum).
Expr whole_total(Primitive primitive, Expr x, const std::vector<std::int64_t>& dims, Format format);

enum class Bits : std::uint8_t { kAnd, kOr, kExclusiveOr };
Expr bitwise(Bits kind, Expr a, Expr b, Format format);
Expr bitwise_not(Expr x, Format format);

// Divides by 2^shift and rounds to minus infinity.
Expr shifted_right(Expr x, int shift, Format format);
// With the divisor's sign, of a number beyond 2^53 by a positive one.
Expr long_remainder(Expr x, double divisor);
// Comparisons (kLess ... kNotEqual) of numbers beyond 2^53.
Expr long_compare(Primitive primitive, Expr a, Expr b);

// A number of any size, and a leaf's.
Expr whole_constant(Emitter& emitter, std::int64_t value, Format format);
std::optional<Words> words_of_leaf(Emitter& emitter, const GraphLeaf& leaf);

}  // namespace plumbline
