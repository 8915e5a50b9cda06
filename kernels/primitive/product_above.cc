#include "kernels/primitive/product_above.h"

#include <cmath>

#include "kernels/contraction.h"
#include "kernels/cpu/patches.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

// |x| + floor.
Array raised(const Array& x, double floor) {
  Array result = Array::uninitialized(x.shape());
  loop::map(
      result, [floor] PLUMBLINE_HOST_DEVICE(double v) { return std::fabs(v) + floor; }, x);
  return result;
}

// The power of two that brings the largest |x| + floor to [1, 2); 0: it is too far from 1 for the scales of two
// operands to be undone by one factor.
double scale_of(const Array& x, double floor) {
  Array largest = Array::uninitialized({});
  loop::reduce<scalar::Max>(
      largest, false, x.shape(), [] PLUMBLINE_HOST_DEVICE(double v) { return std::fabs(v); }, x);
  const double most = largest.item() + floor;
  return most >= 0x1p-400 && most <= 0x1p400 ? std::scalbn(1.0, -std::ilogb(most)) : 0;
}

}  // namespace

// In the format that the backend multiplies fastest (loop.h, matmul_narrow): operands are scaled to at most 2, rounded
// up, and unless 0 raised to 2^-60, so that no product of them underflows. A sum of these, of which none is negative,
// loses at most a part x, and 1 / (1 - x) <= 1 + 2 x for x <= 1/2. Scales of 2^-400 to 2^400 are undone without
// underflow of a sum, which is 0 or at least 2^-120. Otherwise in fp64: n roundings of 2^-53 (Jeannerod and Rump 2013).
void product_above(const Array& a, const Array& b, double floor, Array& c) {
  const auto terms = static_cast<double>(a.shape().back());
  if (of_patches(b, c.shape())) {
    const Array image = raised(b.restride({{span_of(b)}, {1}, 0}), floor);
    cpu::multiply_patches(raised(a, floor), image.restride({b.shape(), b.strides(), 0}), c);
    const double factor = 1 + terms * 0x1p-52;
    loop::map(
        c, [factor] PLUMBLINE_HOST_DEVICE(double x) { return x * factor; }, c);
    return;
  }
  const bool narrow = terms * loop::kNarrowError <= 0.5 && worth_converting(a, b, c);
  const double scale_a = narrow ? scale_of(a, floor) : 0, scale_b = scale_a > 0 ? scale_of(b, floor) : 0;
  const double lost = scale_b > 0 ? terms * loop::matmul_narrow(a, {scale_a, floor}, b, {scale_b, floor}, c) : 0;
  if (lost == 0) loop::matmul(raised(a, floor), raised(b, floor), c, false);
  const double factor = lost == 0 ? 1 + terms * 0x1p-52 : (1 + 2 * lost) * (1 + 0x1p-40) / (scale_a * scale_b);
  loop::map(
      c, [factor] PLUMBLINE_HOST_DEVICE(double x) { return x * factor; }, c);
}

}  // namespace plumbline::primitive
