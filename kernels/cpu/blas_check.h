// Whether the BLAS that is installed multiplies rightly on this processor. Some builds of OpenBLAS do not on processors
// that are newer than they are, and everything that an audit accuses of rests on its products.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::cpu {

// c [m, n] = a b, or += with `accumulate`, all row-major and without gaps; a is [m, k], or [k, m] where it is
// transposed, b [k, n] or [n, k].
template <class Real>
using Multiply = void (*)(bool transposed_a, bool transposed_b, int m, int n, int k, const Real* a, const Real* b,
                          bool accumulate, Real* c);

// Multiplies matrices of small integers, whose products both precisions hold exactly in any order, of sizes around the
// blocks that kernels work in. What was wrong ("fp64, 5 x 17 by 17 x 9, ..."); empty: nothing. Takes milliseconds.
std::string wrong_products(Multiply<double> in_double, Multiply<float> in_single);
std::string wrong_products();  // The installed library's.

// The kernels that the library chose, as it calls them ("Haswell").
std::string blas_kernels();
// What a processor's vectors hold at most.
enum class Vectors { kNarrow, kAvx2, kAvx512 };
Vectors processor_vectors();
// Those that serve the processor better than what was chosen; empty: none do. On a processor that the library does not
// know, since it is older, it takes the narrowest ones there are, which take five to eight times as long. In place of
// some that multiply wrongly come those for AVX2, which have been used longest.
std::string better_kernels(std::string_view chosen, bool multiply_wrongly, Vectors vectors);

}  // namespace plumbline::cpu
