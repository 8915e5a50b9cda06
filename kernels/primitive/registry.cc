#include <array>
#include <cstddef>

#include "kernels/primitive/support.h"

namespace plumbline {
namespace {

constexpr auto kPrimitives = static_cast<std::size_t>(Primitive::kCount);

std::array<PrimitiveTraits, kPrimitives> assemble() {
  std::array<PrimitiveTraits, kPrimitives> rows{};
  for (const auto family :
       {primitive::source_rows(), primitive::elementwise_rows(), primitive::reduction_rows(),
        primitive::normalize_rows(), primitive::matmul_rows(), primitive::softmax_rows(), primitive::movement_rows()}) {
    for (const PrimitiveTraits& row : family) rows[static_cast<std::size_t>(row.primitive)] = row;
  }
  return rows;
}

const std::array<PrimitiveTraits, kPrimitives>& registry() {
  static const auto rows = assemble();
  return rows;
}

}  // namespace

const PrimitiveTraits& traits(Primitive primitive) { return registry()[static_cast<std::size_t>(primitive)]; }

std::span<const PrimitiveTraits> all_primitives() { return registry(); }

}  // namespace plumbline
