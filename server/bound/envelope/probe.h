// Probes: scalar functionals of taps. A scalar tap is its own probe. Tensor taps are tested by functionals whose
// weights are random, drawn after the data is fixed, so that no adversary and no accident can hide in their kernel:
// |<x, T - M>| <= E(x) for every legal execution.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/lower/graph.h"

namespace plumbline {

// Weights of a tap as an outer product: element (i, j) has rows_i columns_j, i along the tap's first dimension, j along
// all others together. They are drawn and carried through products at the cost of vectors (Freivalds 1977).
struct Weights {
  Array rows, columns;  // m and n numbers; 1 and n of a tap of one dimension or none.
  Shape shape;          // The tap's.
  Array mask = {};      // 0 where an element is left out, otherwise 1, in the tap's shape; empty: none is.

  Array array() const;                                        // Element by element, in the tap's shape.
  Array part(std::int64_t begin, std::int64_t length) const;  // So many of them, row-major, on the host.
};
// So many elements from `begin` on, row-major, in one dimension.
using PartsOf = std::function<Array(std::int64_t begin, std::int64_t length)>;
PartsOf parts_of(const Array& whole);
PartsOf observed_parts(const GraphTap& tap);  // Of what was observed, as long as the tap is there.
// <weights, a>. No term is rounded more often than dot_roundings(count) times.
Later<double> dot(const Weights& weights, const PartsOf& a);
inline double dot_roundings(std::int64_t count) { return 0x1p13 + 0x1p-13 * static_cast<double>(count); }
// <weights, a - b> by differences, so that nothing cancels. On the host parts of both are asked for, several at a time,
// so that no array is written that is only read here; on a device all at once.
Later<double> dot_difference(const Weights& weights, const PartsOf& a, const PartsOf& b);
// Those that are no outer product, element by element.
Weights dense_weights(const Array& weights, const Shape& shape);

struct Probe {
  struct Part {
    std::size_t tap = 0;        // Index into the target's Graph::taps.
    std::int64_t elements = 0;  // The tap has so many.
    Weights weights;
  };
  std::string name;  // The tap's name, or "all gradients" ...
  std::vector<Part> parts;
  double scale = 1;             // Magnitude to which deviations are relative: norm of the exact values probed.
  bool of_mathematics = false;  // It asks about mathematics alone: of executions, our own replay matters.
  bool of_execution = true;     // A sweep that asks of executions asks this one, unless it is of mathematics.
  // By node: its value is given, and no error of it is asked about. Null: none is.
  std::shared_ptr<const std::vector<bool>> given = {};

  bool of_one_element() const { return parts.size() == 1 && parts[0].elements == 1; }
};

// The nodes that make up the taps that are probed, each once.
std::vector<NodeId> probed_nodes(const Graph& graph, const std::vector<Probe>& probes);

// A tap as probes see it.
struct ProbeTap {
  std::size_t index = 0;
  std::string name;
  Shape shape;
  Later<double> magnitude = 0.0;  // The user's scale, or the norm of the exact values.
  Array mask = {};                // Weights::mask.
};
// `exact`: finite where `mask` is not 0.
ProbeTap probe_tap(std::size_t index, const GraphTap& tap, const Array& exact, const Array& mask = {});

// What signs_probe's deviations are relative to: the norm of all, or 1 where that is 0 or not finite.
double joint_norm(const std::vector<ProbeTap>& taps);

// The sum of a tap's elements, relative to its magnitude: for scalar taps.
Probe scalar_probe(const ProbeTap& tap);
// One element of a tap, counted in row-major order, relative to its own magnitude.
Probe element_probe(const std::string& name, const ProbeTap& tap, std::int64_t element, double magnitude);
// Random signs over the taps together: weights s m / norm of all exact values; scale 1. The magnitudes m are random too
// (rows' and columns' in [1/2, 3/2)): deviations of one size, as a wrong constant makes them, cannot cancel.
// Deterministic in `seed`, which is taken from the trace's digest. `beside`: taps of the same kind that are not asked;
// their norms count.
Probe signs_probe(const std::string& name, const std::vector<ProbeTap>& taps, std::uint64_t seed,
                  const std::vector<ProbeTap>& beside = {});

}  // namespace plumbline
