#include "server/bound/probe.h"

#include <cmath>

#include "kernels/cpu/sums.h"
#include "server/bound/taps.h"

namespace plumbline {
namespace {

double joint_norm(const std::vector<ProbeTap>& taps) {
  double squares = 0;
  for (const ProbeTap& tap : taps) {
    const double norm = tap.scale > 0 ? tap.scale : cpu::norm2(tap.exact);
    squares += norm * norm;
  }
  const double norm = std::sqrt(squares);
  return norm > 0 && std::isfinite(norm) ? norm : 1;
}

// splitmix64 (Steele, Lea, Flood 2014): one step of a counter-based generator.
std::uint64_t splitmix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

Probe scalar_probe(const ProbeTap& tap) {
  const double magnitude = tap.scale > 0 ? tap.scale : std::fabs(tap.exact.item());
  return {tap.name, {{tap.index, Array::full(tap.exact.shape(), 1)}}, magnitude > 0 ? magnitude : 1};
}

Probe signs_probe(const std::string& name, const std::vector<ProbeTap>& taps, std::uint64_t seed) {
  const double norm = joint_norm(taps);
  Probe probe{name, {}, 1};
  for (const ProbeTap& tap : taps) {
    Array weights = Array::uninitialized(tap.exact.shape());
    std::uint64_t bits = 0;
    for (std::int64_t i = 0; i < weights.count(); ++i) {
      bits = i % 4 == 0 ? splitmix(seed) : bits >> 16;
      const double magnitude = (0.5 + static_cast<double>(bits >> 1 & 0x7fff) * 0x1p-15) / norm;
      weights.data()[i] = (bits & 1) != 0 ? magnitude : -magnitude;
    }
    probe.parts.push_back({tap.index, std::move(weights)});
  }
  return probe;
}

}  // namespace plumbline
