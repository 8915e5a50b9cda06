// Comparisons of two sums of terms, with operands of every kind.
#pragma once

#include <random>
#include <vector>

#include "kernels/comparison.h"

namespace plumbline::testing {

struct Compared {
  std::int64_t count;
  double slack;
  std::vector<float> packed;
  std::vector<ComparedTerm> centres, values;
};

// Two terms that make the centre, of which one has a radius; one, packed, that is near it. Every 97th deviates by
// nothing, and from `broken` on (less than 0: never) two neighbours by four times what is allowed.
inline Compared compared(std::uint64_t seed, std::int64_t count, std::int64_t broken) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> draw(-1, 1);
  Compared made{count, 1.25, std::vector<float>(static_cast<std::size_t>(count)), {}, {}};
  Array first = Array::uninitialized({count}), second = Array::uninitialized({count}), zero = Array::zeros({count});
  Bound radii{Array::uninitialized({count})};
  for (std::int64_t i = 0; i < count; ++i) {
    first.data()[i] = draw(rng);
    second.data()[i] = draw(rng);
    const double centre = 2 * first.data()[i] - second.data()[i];
    const auto near = static_cast<float>(centre + 1e-3 * draw(rng));
    made.packed[static_cast<std::size_t>(i)] = near;
    radii.values.data()[i] = i == broken || i == broken + 1 ? std::fabs(near - centre) / 10 : 1e-3;
    if (i % 97 == 0) {
      first.data()[i] = near / 2.0;
      second.data()[i] = 0;
    }
  }
  made.centres = {{.x = {.values = first, .radii = radii}, .weight = 2, .u = 0x1p-24, .eta = 1e-40},
                  {.x = {.values = second}, .weight = -1, .own = 0x1p-50}};
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(made.packed.data());
  made.values = {{.x = {.bytes = bytes, .format = Format::kFloat32}}, {.x = {.values = zero}, .weight = -3}};
  return made;
}

}  // namespace plumbline::testing
