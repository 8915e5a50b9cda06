// Probes: scalar functionals of taps. A scalar tap is its own probe. Tensor taps are tested by functionals whose
// weights are random, drawn after the data is fixed, so that no adversary and no accident can hide in their kernel:
// |<x, T - M>| <= E(x) for every legal execution.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/array.h"

namespace plumbline {

struct Probe {
  struct Part {
    std::size_t tap = 0;  // Index into the target's Graph::taps.
    Array weights;        // Tap's shape.
  };
  std::string name;  // The tap's name, or "signs(gradient)" ...
  std::vector<Part> parts;
  double scale = 1;  // Magnitude to which deviations are relative: norm of the exact values probed.
};

// A tap as probes see it.
struct ProbeTap {
  std::size_t index = 0;
  std::string name;
  Array exact;       // M, tap's shape.
  double scale = 0;  // User's, 0: none.
};

// A scalar tap's own probe.
Probe scalar_probe(const ProbeTap& tap);
// Random signs over the taps together: weights s_i m_i / norm of all exact values; scale 1. The magnitudes m_i lie in
// [1/2, 3/2): deviations of one size, as a wrong constant makes them, cannot cancel.
// Deterministic in `seed`, which is taken from the trace's digest.
Probe signs_probe(const std::string& name, const std::vector<ProbeTap>& taps, std::uint64_t seed);

}  // namespace plumbline
