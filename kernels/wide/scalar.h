// The scalar of the wide replay: IEEE 754 binary128, which has 113 significand bits, by the name that glibc gives it.
//
// The compiler's run-time library rounds its arithmetic correctly (an operation takes some 20 ns), and the C library's
// functions are within a few ulps of every argument (some 1 us each). Double-double was the alternative. It has 106
// bits, but only the exponents of fp64: it overflows where fp64 does, which the wide replay is to decide, it has fewer
// than 100 bits below 2^-968, and its elementary functions would have to be written and proven here. Where most of the
// time goes it is used all the same: in products, where it vectorises (product.cc), and in the exponential function
// (exponential.cc).
//
// On x86-64 the type is the compiler's __float128, on AArch64 it is long double. Neither needs libquadmath.
#pragma once

#include <math.h>  // The functions of _Float128 are not in namespace std.

#if defined(__clang__)  // The C library's header declares them for GCC alone (glibc 2.36).
using _Float128 = __float128;
extern "C" {
_Float128 atan2f128(_Float128, _Float128) noexcept;
_Float128 ceilf128(_Float128) noexcept;
_Float128 cosf128(_Float128) noexcept;
_Float128 erff128(_Float128) noexcept;
_Float128 expf128(_Float128) noexcept;
_Float128 expm1f128(_Float128) noexcept;
_Float128 fabsf128(_Float128) noexcept;
_Float128 floorf128(_Float128) noexcept;
_Float128 fmodf128(_Float128, _Float128) noexcept;
_Float128 log1pf128(_Float128) noexcept;
_Float128 logf128(_Float128) noexcept;
_Float128 nearbyintf128(_Float128) noexcept;
_Float128 powf128(_Float128, _Float128) noexcept;
_Float128 scalbnf128(_Float128, int) noexcept;
_Float128 sinf128(_Float128) noexcept;
_Float128 sqrtf128(_Float128) noexcept;
_Float128 tanhf128(_Float128) noexcept;
_Float128 truncf128(_Float128) noexcept;
}
#endif

namespace plumbline {

using Wide = _Float128;

static_assert(sizeof(Wide) == 16 && Wide(1) + Wide(0x1p-112) != Wide(1));

}  // namespace plumbline
