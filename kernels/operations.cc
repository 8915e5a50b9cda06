#include "kernels/operations.h"

#include "kernels/cpu/gemm.h"
#include "kernels/device.h"

namespace plumbline {

// fp64, rounded to nearest, functions good to an ulp (SLEEF's u10 and the C library's), products summed in blocks.
const Operations& host_operations() {
  static const Profile profile = [] {
    Profile own = ieee();
    own.products[static_cast<int>(ProductClass::kFp64)].promote_every = static_cast<int>(cpu::kSumBlock);
    return own;
  }();
  static const Operations operations =
      primitive::operations({Format::kFloat64, Format::kFloat64, &profile, Format::kFloat64, true});
  return operations;
}

const Operations& current_operations() {
  const Device* const device = current_device();
  return device != nullptr ? device->operations() : host_operations();
}

Later<Absorbed> absorbed(const Array& accumulator, const Array& addend, Format format) {
  return current_operations().absorbed(accumulator, addend, format);
}
Later<Cancelled> cancelled(const Array& sum, const Array& a, const Array& x) {
  return current_operations().cancelled(sum, a, x);
}
FormatRange range_of(Format format, const Array& values) { return current_operations().range_of(format, values); }
Later<double> count_outside(const Array& x, const Array& m, const Bound& r, double slack, double low, double high) {
  return current_operations().count_outside(x, m, r, slack, low, high);
}
Later<Finite> all_finite(const Array& first, const Array& second) {
  return current_operations().all_finite(first, second);
}
Later<Apart> apart(const Array& a, const Array& b) { return current_operations().apart(a, b); }
Later<double> count_differing(const Array& a, const Array& b) { return current_operations().count_differing(a, b); }
double outlying_rows(const Arithmetic& arithmetic, Inputs in, const Array& observed, std::uint64_t seed) {
  return current_operations().outlying_rows(arithmetic, in, observed, seed);
}

const PrimitiveTraits& traits(Primitive primitive) {
  return current_operations().primitives[static_cast<std::size_t>(primitive)];
}

}  // namespace plumbline
