#include "server/nodes/sketch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace plumbline {
namespace {

constexpr std::size_t kGroup = 64;   // Elements that one random word gives a sign, of a projection.
constexpr std::size_t kLanes = 8;    // A group's sums that are added beside each other.
constexpr std::size_t kAtOnce = 16;  // Groups that are decoded together.

using Lanes = std::array<double, kLanes>;

// By eight bits: -1 for each that is set, and 1.
const std::array<Lanes, 256>& signs_of_bytes() {
  static const std::array<Lanes, 256> kSigns = [] {
    std::array<Lanes, 256> signs;
    for (std::size_t byte = 0; byte < signs.size(); ++byte)
      for (std::size_t lane = 0; lane < kLanes; ++lane) signs[byte][lane] = ((byte >> lane) & 1) != 0 ? -1 : 1;
    return signs;
  }();
  return kSigns;
}

double added(const Lanes& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

double signed_sum(const double* group, std::uint64_t signs) {
  const auto& table = signs_of_bytes();
  Lanes lanes{};
  for (std::size_t at = 0; at < kGroup; at += kLanes, signs >>= kLanes) {
    const Lanes& sign = table[signs & 0xff];
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += sign[lane] * group[at + lane];
  }
  return added(lanes);
}

double magnitude(const double* group) {
  Lanes lanes{};
  for (std::size_t at = 0; at < kGroup; at += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += std::fabs(group[at + lane]);
  return added(lanes);
}

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
  std::array<double, kGroup * kAtOnce> values;
  for (std::int64_t block = 0; block < shape.blocks; ++block) {
    const std::int64_t begin = shape.begin(block, count), end = shape.begin(block + 1, count);
    std::array<WideSum, kProjections> sums;
    WideSum norm;
    for (std::int64_t at = begin; at < end; at += static_cast<std::int64_t>(values.size())) {
      const auto size = static_cast<std::size_t>(std::min(static_cast<std::int64_t>(values.size()), end - at));
      decode(format, bytes + at * element_bytes, static_cast<std::int64_t>(size), values.data());
      std::fill(values.begin() + static_cast<std::ptrdiff_t>(size), values.end(), 0.0);
      for (std::size_t group = 0; group < size; group += kGroup) {
        norm.add(magnitude(values.data() + group));
        const auto place = static_cast<std::uint64_t>(at - begin) + group;
        for (int p = 0; p < shape.projections; ++p) {
          const std::uint64_t signs = mixed(seed + place * kProjections + static_cast<std::uint64_t>(p) +
                                            (static_cast<std::uint64_t>(block) << 48));
          sums[static_cast<std::size_t>(p)].add(signed_sum(values.data() + group, shape.projections == 1 ? 0 : signs));
        }
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
