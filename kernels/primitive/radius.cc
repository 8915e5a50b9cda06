#include "kernels/primitive/error_model.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {
Bound unbounded(const Array& out) { return {Array::full(out.shape(), kInfinity)}; }
bool all_exact(std::span<const Bound> radii) {
  return std::none_of(radii.begin(), radii.end(), [](const Bound& r) { return static_cast<bool>(r); });
}
}  // namespace

#define PLUMBLINE_UNBOUNDED(name)                                                         \
  Bound name(const Attributes&, Inputs, std::span<const Bound> radii, const Array& out) { \
    return all_exact(radii) ? Bound{} : unbounded(out);                                   \
  }
PLUMBLINE_UNBOUNDED(radius_lipschitz1)
PLUMBLINE_UNBOUNDED(radius_decision)
PLUMBLINE_UNBOUNDED(radius_reciprocal)
PLUMBLINE_UNBOUNDED(radius_add)
PLUMBLINE_UNBOUNDED(radius_mul)
PLUMBLINE_UNBOUNDED(radius_div)
PLUMBLINE_UNBOUNDED(radius_pow)
PLUMBLINE_UNBOUNDED(radius_max)
PLUMBLINE_UNBOUNDED(radius_fmod)
PLUMBLINE_UNBOUNDED(radius_compare)
PLUMBLINE_UNBOUNDED(radius_select)
PLUMBLINE_UNBOUNDED(radius_sum)
PLUMBLINE_UNBOUNDED(radius_extreme)
PLUMBLINE_UNBOUNDED(radius_argmax)
PLUMBLINE_UNBOUNDED(radius_cumsum)
PLUMBLINE_UNBOUNDED(radius_variance_rsqrt)
PLUMBLINE_UNBOUNDED(radius_norm)
PLUMBLINE_UNBOUNDED(radius_matmul)
PLUMBLINE_UNBOUNDED(radius_softmax)
PLUMBLINE_UNBOUNDED(radius_log_softmax)
PLUMBLINE_UNBOUNDED(radius_window)
PLUMBLINE_UNBOUNDED(radius_assemble)
PLUMBLINE_UNBOUNDED(radius_gather_rows)
PLUMBLINE_UNBOUNDED(radius_scatter_add)

Bound radius_of_monotone(MonotoneFunction, Inputs, std::span<const Bound> radii, const Array& out) {
  return all_exact(radii) ? Bound{} : unbounded(out);
}

}  // namespace plumbline::primitive
