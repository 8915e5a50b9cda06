#include "server/bound/probe.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/loop.h"
#include "kernels/sums.h"

namespace plumbline {
namespace {

double joint_norm(const std::vector<ProbeTap>& taps) {
  double squares = 0;
  for (const ProbeTap& tap : taps) squares += tap.magnitude * tap.magnitude;
  const double norm = std::sqrt(squares);
  return norm > 0 && std::isfinite(norm) ? norm : 1;
}

// splitmix64 (Steele, Lea, Flood 2014), a counter-based generator: its k-th number after `seed`.
constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15ULL;
std::uint64_t splitmix(std::uint64_t seed, std::uint64_t k) {
  std::uint64_t z = seed + kGamma * (k + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

Array drawn_weights(const Shape& shape, double norm, std::uint64_t seed) {
  Array weights = Array::uninitialized(shape);
  double* out = weights.data();
  const std::int64_t n = weights.count();
  cpu::parallel_for((n + 3) / 4, cpu::kGrain / 4, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      std::uint64_t bits = splitmix(seed, static_cast<std::uint64_t>(k));
      for (std::int64_t i = 4 * k; i < std::min(n, 4 * k + 4); ++i, bits >>= 16) {
        const double magnitude = (0.5 + static_cast<double>(bits >> 1 & 0x7fff) * 0x1p-15) / norm;
        out[i] = (bits & 1) != 0 ? magnitude : -magnitude;
      }
    }
  });
  return weights;
}

}  // namespace

ProbeTap probe_tap(std::size_t index, const GraphTap& tap, const Array& exact) {
  return {index, tap.name, tap.shape, tap.scale > 0 ? tap.scale : norm2(exact)};
}

Probe scalar_probe(const ProbeTap& tap) {
  const auto ones = [shape = tap.shape] { return Array::full(shape, 1); };
  return {tap.name, {{tap.index, count(tap.shape), ones}}, tap.magnitude > 0 ? tap.magnitude : 1};
}

Probe signs_probe(const std::string& name, const std::vector<ProbeTap>& taps, std::uint64_t seed) {
  const double norm = joint_norm(taps);
  Probe probe{name, {}, 1};
  for (const ProbeTap& tap : taps) {
    const std::int64_t elements = count(tap.shape);
    probe.parts.push_back({tap.index, elements, [=, shape = tap.shape] { return drawn_weights(shape, norm, seed); }});
    seed += kGamma * static_cast<std::uint64_t>((elements + 3) / 4);
  }
  return probe;
}

}  // namespace plumbline
