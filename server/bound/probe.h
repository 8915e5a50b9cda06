// Probes: scalar functionals of taps. A scalar tap is its own probe. Tensor taps are tested by functionals whose
// weights are random, drawn after the data is fixed, so that no adversary and no accident can hide in their kernel:
// |<x, T - M>| <= E(x) for every legal execution.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "server/lower/graph.h"

namespace plumbline {

struct Probe {
  struct Part {
    std::size_t tap = 0;             // Index into the target's Graph::taps.
    std::int64_t elements = 0;       // Of the tap.
    std::function<Array()> weights;  // Tap's shape; drawn anew at each call, since they are as large as the taps.
  };
  std::string name;  // The tap's name, or "signs(gradient)" ...
  std::vector<Part> parts;
  double scale = 1;             // Magnitude to which deviations are relative: norm of the exact values probed.
  bool of_mathematics = false;  // It asks about mathematics alone: of executions, our own replay matters.
};

// A tap as probes see it.
struct ProbeTap {
  std::size_t index = 0;
  std::string name;
  Shape shape;
  double magnitude = 0;  // The user's scale, or the norm of the exact values.
};
ProbeTap probe_tap(std::size_t index, const GraphTap& tap, const Array& exact);

// The sum of a tap's elements, relative to its magnitude: for scalar taps.
Probe scalar_probe(const ProbeTap& tap);
// Random signs over the taps together: weights s_i m_i / norm of all exact values; scale 1. The magnitudes m_i lie in
// [1/2, 3/2): deviations of one size, as a wrong constant makes them, cannot cancel.
// Deterministic in `seed`, which is taken from the trace's digest.
Probe signs_probe(const std::string& name, const std::vector<ProbeTap>& taps, std::uint64_t seed);

}  // namespace plumbline
