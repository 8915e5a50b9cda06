// Randomness of the soundness tests: a generator for decisions, and noise that vectorises for values.
#pragma once

#include <cstdint>
#include <random>

namespace plumbline::soundness {

using Random = std::mt19937_64;

inline std::int64_t pick(Random& random, std::int64_t low, std::int64_t high) {  // Both ends included.
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

inline bool coin(Random& random) { return (random() & 1) != 0; }

inline double uniform(Random& random, double low, double high) {
  return low + (high - low) * (static_cast<double>(random() >> 11) * 0x1p-53);
}

// The i-th number in [-1, 1) of a stream: a hash of its counter (Murmur3's finaliser).
inline float noise(std::uint32_t stream, std::uint32_t i) {
  std::uint32_t h = stream + i * 0x9e3779b9U;
  h = (h ^ (h >> 16)) * 0x85ebca6bU;
  h = (h ^ (h >> 13)) * 0xc2b2ae35U;
  return static_cast<float>(static_cast<std::int32_t>(h ^ (h >> 16))) * 0x1p-31F;
}

}  // namespace plumbline::soundness
