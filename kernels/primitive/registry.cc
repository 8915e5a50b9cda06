#include <array>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/primitive/element.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/support.h"

namespace plumbline {
namespace {

constexpr auto kPrimitives = static_cast<std::size_t>(Primitive::kCount);

using Rows = std::array<PrimitiveTraits, kPrimitives>;

Rows base_rows() {
  Rows rows{};
  for (const auto family :
       {primitive::source_rows(), primitive::elementwise_rows(), primitive::reduction_rows(),
        primitive::normalize_rows(), primitive::matmul_rows(), primitive::softmax_rows(), primitive::movement_rows()}) {
    for (const PrimitiveTraits& row : family) rows[static_cast<std::size_t>(row.primitive)] = row;
  }
  for (PrimitiveTraits& row : rows) {
    if (row.charges == nullptr) row.charges = primitive::noise_default;
    if (!is_elementwise(row.primitive)) continue;
    row.pull_back = primitive::element_pull_back(row.primitive);
    row.local_error = primitive::element_error(row.primitive);
    row.radius = primitive::element_radius(row.primitive);
  }
  return rows;
}

const Rows& base() {
  static const Rows rows = base_rows();
  return rows;
}

// Under a profile that flushes subnormal operands (element.h). That is true of maxima, comparisons and sign changes,
// too, whose instructions flush their operands. The result that flushing has moved is the one that is rounded: an
// elementwise primitive's error grows with its result's magnitude, and storing any result rounds what it was moved by.
Bound with_flushing(const PrimitiveTraits& row, const Attributes& attributes, const Arithmetic& arithmetic,
                    Inputs inputs, const Array& out) {
  if (!arithmetic.profile->flush_subnormals || !is_float(arithmetic.compute))
    return row.local_error(attributes, arithmetic, inputs, out);
  const double tiny = smallest_normal(arithmetic.compute);
  std::vector<Bound> radii;
  for (const Array& x : inputs) {
    Bound& radius = radii.emplace_back(Bound{Array::uninitialized(x.shape())});
    loop::map(
        radius.values, [tiny] PLUMBLINE_HOST_DEVICE(double v) { return primitive::element::flushed(v, tiny); }, x);
  }
  Bound moved = row.radius(attributes, inputs, radii, out);
  if (!moved) return row.local_error(attributes, arithmetic, inputs, out);
  Array reached = out;
  if (is_elementwise(row.primitive)) {
    reached = Array::uninitialized(out.shape());
    loop::map(
        reached,
        [] PLUMBLINE_HOST_DEVICE(double t, double r) { return r > 0 ? std::copysign(std::fabs(t) + r, t) : t; }, out,
        moved.values);
  }
  Bound error = row.local_error(attributes, arithmetic, inputs, reached);
  if (!error) return moved;
  const double stored = is_elementwise(row.primitive) ? 1 : 1 + primitive::storage(arithmetic).u;
  loop::map(
      error.values,
      [stored] PLUMBLINE_HOST_DEVICE(double e, double r) {
        return r == primitive::kInfinity ? r : (e + r * stored) * (1 + 0x1p-20);
      },
      error.values, moved.values);
  return error;
}

template <std::size_t kPrimitive>
Bound flushing_local_error(const Attributes& attributes, const Arithmetic& arithmetic, Inputs inputs,
                           const Array& out) {
  return with_flushing(base()[kPrimitive], attributes, arithmetic, inputs, out);
}

template <std::size_t... kIndex>
Rows flushing_rows(Rows rows, std::index_sequence<kIndex...>) {
  const auto wrap = [&rows](std::size_t index, auto flushing) {
    PrimitiveTraits& row = rows[index];
    if (!moves(row.primitive)) row.local_error = flushing;
  };
  (wrap(kIndex, flushing_local_error<kIndex>), ...);
  return rows;
}

const Rows& registry() {
  static const Rows rows = flushing_rows(base(), std::make_index_sequence<kPrimitives>{});
  return rows;
}

}  // namespace

std::span<const PrimitiveTraits> all_primitives() { return registry(); }

}  // namespace plumbline
