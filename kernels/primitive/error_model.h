// The local errors and enclosures that registry rows name. Each derivation stands with its definition; a table of all
// is in kernels/README.md, "Local errors".
#pragma once

#include <optional>

#include "kernels/primitive/primitive.h"

namespace plumbline::primitive {

// e = relative |t| + absolute, in the compute format. `eta`: plus the format's own absolute error.
struct Linear {
  double relative_u;  // In units of the compute format's u.
  double absolute;
  bool eta;
};
Bound linear_error(const Arithmetic& arithmetic, const Array& out, const Linear& error);

// One operation in the compute format errs by u, or by 2u where the profile rounds stochastically or toward zero.
double roundoff(const Arithmetic& arithmetic);

// What holding the result in its own format adds, where that is narrower than the compute format: u |x| + eta.
// Otherwise both are 0.
struct Storage {
  double u = 0, eta = 0;
};
Storage storage(const Arithmetic& arithmetic);

// Absolute error of one result that underflows: eta, or the smallest normal where the profile flushes subnormals. A sum
// alone loses nothing but to flushing.
double underflow(const Arithmetic& arithmetic);
double sum_underflow(const Arithmetic& arithmetic);

// A function's error as a profile states it, in the compute format: (relative + slope |x|) |t| + absolute.
struct FunctionBound {
  double relative, slope, absolute;
};
FunctionBound function_bound(Function function, const Arithmetic& arithmetic);

// Error of `n` additions, times sum|terms|.
double accumulation_error(const Accumulation& kind, std::int64_t n, const Arithmetic& arithmetic);

// Whether a kSum's kernel rounds parts of it to a narrower format.
inline bool narrows_parts(const Attributes& attributes, const Arithmetic& arithmetic) {
  return attributes.narrow != Format::kUnknown && arithmetic.profile->narrow_numbers;
}

// A sum of n products errs by factor |A||B| + absolute, where each element's magnitude is first raised by `floor`,
// because inputs that are converted lose an absolute amount below the smallest normal.
struct ProductError {
  double factor, absolute, floor;
  bool rounds_each = false;  // Every product and addition is rounded by itself, in the compute format.
};
ProductError product_error(const Arithmetic& arithmetic, std::int64_t n);
// n of alpha a b + c (kMatmul's inputs): c is a term more, and a factor a rounding more of each. attributes.size of a
// kMatmul or kSum says that it is a part of a sum of so many terms, which a kernel may add up at once: then these.
std::int64_t product_terms(const Attributes& attributes, Inputs in);

// A kMatmul's local error by `one` is at most this share of that by `other`, element by element, whatever the operands
// are: both bound the same sum of magnitudes. Nothing where either holds the result narrower than it adds it up, since
// the error is then no multiple of that sum, or where no share is.
std::optional<double> share_of_product_error(const Attributes& attributes, const Arithmetic& one,
                                             const Arithmetic& other, Inputs in);

#define PLUMBLINE_ERROR(name) Bound name(const Attributes&, const Arithmetic&, Inputs, const Array& out);
PLUMBLINE_ERROR(error_none)  // Bitwise, but for a narrowing of the result.
PLUMBLINE_ERROR(error_sum)
PLUMBLINE_ERROR(error_cumsum)
PLUMBLINE_ERROR(error_scatter_add)
PLUMBLINE_ERROR(error_matmul)
PLUMBLINE_ERROR(error_softmax)
PLUMBLINE_ERROR(error_log_softmax)
PLUMBLINE_ERROR(error_variance_rsqrt)
PLUMBLINE_ERROR(error_norm)
#undef PLUMBLINE_ERROR

// Elementwise primitives take these from their rules (element.h).
decltype(PrimitiveTraits::pull_back) element_pull_back(Primitive primitive);
decltype(PrimitiveTraits::local_error) element_error(Primitive primitive);
decltype(PrimitiveTraits::radius) element_radius(Primitive primitive);

#define PLUMBLINE_RADIUS(name) \
  Bound name(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out);
PLUMBLINE_RADIUS(radius_sum)
PLUMBLINE_RADIUS(radius_extreme)
PLUMBLINE_RADIUS(radius_argmax)
PLUMBLINE_RADIUS(radius_argsort)
PLUMBLINE_RADIUS(radius_cumsum)
PLUMBLINE_RADIUS(radius_variance_rsqrt)
PLUMBLINE_RADIUS(radius_norm)
PLUMBLINE_RADIUS(radius_matmul)
PLUMBLINE_RADIUS(radius_softmax)
PLUMBLINE_RADIUS(radius_log_softmax)
PLUMBLINE_RADIUS(radius_window)
PLUMBLINE_RADIUS(radius_assemble)
PLUMBLINE_RADIUS(radius_gather_rows)
PLUMBLINE_RADIUS(radius_scatter_add)
#undef PLUMBLINE_RADIUS

}  // namespace plumbline::primitive
