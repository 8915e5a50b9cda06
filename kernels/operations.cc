#include "kernels/operations.h"

#include <algorithm>

#include "kernels/cpu/loop.h"
#include "kernels/cpu/sums.h"
#include "kernels/device.h"

namespace plumbline {
namespace {

void fill(Array& out, double value) {
  double* const data = out.data();
  cpu::parallel_for(out.count(), cpu::kGrain,
                    [=](std::int64_t begin, std::int64_t end) { std::fill(data + begin, data + end, value); });
}

}  // namespace

const Operations& host_operations() {
  static const Operations operations = {
      .primitives = all_primitives(),
      .copy = [](Array& out, const Array& from) { cpu::map(out, cpu::Copy{}, from); },
      .fill = fill,
      .weighted_bound = cpu::weighted_bound,
      .dot = cpu::dot,
      .dot_difference = cpu::dot_difference,
      .norm2 = cpu::norm2,
      .norm_max = cpu::norm_max,
      .norm2_difference = cpu::norm2_difference,
  };
  return operations;
}

const Operations& current_operations() {
  const Device* const device = current_device();
  return device != nullptr ? device->operations() : host_operations();
}

const PrimitiveTraits& traits(Primitive primitive) {
  return current_operations().primitives[static_cast<std::size_t>(primitive)];
}

}  // namespace plumbline
