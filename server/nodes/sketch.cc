#include "server/nodes/sketch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace plumbline {
namespace {

constexpr std::int64_t kGroup = 64;  // Elements that one random word gives a sign, of a projection.

}  // namespace

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::int64_t SketchShape::begin(std::int64_t block, std::int64_t count) const {
  const std::int64_t whole = count / blocks, rest = count % blocks;
  return block * whole + std::min(block, rest);
}

SketchShape sketch_shape(std::int64_t count, std::size_t shares) {
  const std::int64_t numbers = std::max<std::int64_t>(
      kProjections, kSketchNumbers / static_cast<std::int64_t>(std::max<std::size_t>(1, shares)));
  if (count <= numbers) return {count, 1};
  return {numbers / kProjections, kProjections};
}

TensorSketch sketch(Format format, const std::uint8_t* bytes, std::int64_t count, const SketchShape& shape,
                    std::uint64_t seed) {
  TensorSketch made{std::vector<double>(shape.numbers()), std::vector<double>(static_cast<std::size_t>(shape.blocks))};
  const int element_bytes = traits(format).bytes;
  for (std::int64_t block = 0; block < shape.blocks; ++block) {
    const std::int64_t begin = shape.begin(block, count), end = shape.begin(block + 1, count);
    std::array<WideSum, kProjections> sums;
    WideSum norm;
    std::array<double, kGroup> values;
    for (std::int64_t at = begin; at < end; at += kGroup) {
      const auto size = static_cast<std::size_t>(std::min(kGroup, end - at));
      decode(format, bytes + at * element_bytes, static_cast<std::int64_t>(size), values.data());
      double magnitude = 0;
      for (std::size_t i = 0; i < size; ++i) magnitude += std::fabs(values[i]);
      norm.add(magnitude);
      for (int p = 0; p < shape.projections; ++p) {
        const std::uint64_t signs =
            shape.projections == 1 ? 0
                                   : mixed(seed + static_cast<std::uint64_t>(at - begin) * kProjections +
                                           static_cast<std::uint64_t>(p) + (static_cast<std::uint64_t>(block) << 48));
        double sum = 0;
        for (std::size_t i = 0; i < size; ++i) sum += ((signs >> i) & 1) != 0 ? -values[i] : values[i];
        sums[static_cast<std::size_t>(p)].add(sum);
      }
    }
    const double total = norm.value();
    made.norms[static_cast<std::size_t>(block)] =
        std::isfinite(total) ? total * (1 + kSketchError) : std::numeric_limits<double>::infinity();
    for (int p = 0; p < shape.projections; ++p)
      made.sums[static_cast<std::size_t>(block * shape.projections + p)] = sums[static_cast<std::size_t>(p)].value();
  }
  return made;
}

double allowed_deviation(const SumRounding& sum, std::int64_t elements, double norm) {
  const double roundings = static_cast<double>(sum.average ? sum.ranks + 1 : sum.ranks - 1);
  const double relative = std::expm1(roundings * std::log1p(sum.rounding * unit_roundoff(sum.format)));
  double absolute = 2 * sum.rounding * roundings * half_smallest_subnormal(sum.format);
  if (sum.flushes) absolute += 3 * (roundings + 1) * smallest_normal(sum.format);
  const double scale = sum.average ? 1 / static_cast<double>(sum.ranks) : 1;
  if (!is_float(sum.format)) return 0;
  // An absolute error is multiplied by what comes after it.
  return (relative * norm * scale + static_cast<double>(elements) * absolute * (1 + relative)) * (1 + 0x1p-40);
}

}  // namespace plumbline
