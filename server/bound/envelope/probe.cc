#include "server/bound/envelope/probe.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/device.h"
#include "kernels/sums.h"
#include "server/bound/replay/taps.h"
#include "server/bound/replay/tiles.h"

namespace plumbline {
namespace {

// splitmix64 (Steele, Lea, Flood 2014), a counter-based generator: its k-th number after `seed`.
constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15ULL;
std::uint64_t splitmix(std::uint64_t seed, std::uint64_t k) {
  std::uint64_t z = seed + kGamma * (k + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// Sign and magnitude in [1/2, 3/2) / norm, n of them.
Array drawn(std::int64_t n, double norm, std::uint64_t seed) {
  Array numbers = Array::uninitialized({n});
  double* const out = numbers.data();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t bits = splitmix(seed, static_cast<std::uint64_t>(i));
    const double magnitude = (0.5 + static_cast<double>(bits >> 11) * 0x1p-53) / norm;
    out[i] = (bits & 1) != 0 ? magnitude : -magnitude;
  }
  return numbers;
}

}  // namespace

double joint_norm(const std::vector<ProbeTap>& taps) {
  double squares = 0;
  for (const ProbeTap& tap : taps) squares += tap.magnitude.get() * tap.magnitude.get();
  const double norm = std::sqrt(squares);
  return norm > 0 && std::isfinite(norm) ? norm : 1;
}

Array Weights::array() const {
  const std::vector<Array> factors = {rows.reshape({rows.count(), 1}), columns.reshape({1, columns.count()})};
  const Array whole = traits(Primitive::kMul).evaluate({}, {rows.count(), columns.count()}, factors).reshape(shape);
  if (!mask) return whole;
  const std::vector<Array> masked = {whole, mask.reshape(shape)};
  return traits(Primitive::kMul).evaluate({}, shape, masked);
}

Array Weights::part(std::int64_t begin, std::int64_t length) const {
  Array weights = Array::uninitialized({length});
  double* const to = weights.data();
  const Array across = columns.materialize(), down = rows.materialize(), kept = mask ? mask.materialize() : Array();
  const std::int64_t n = across.count();
  for (std::int64_t done = 0; done < length;) {
    const std::int64_t row = (begin + done) / n, column = (begin + done) % n,
                       rest = std::min(n - column, length - done);
    const double factor = down.data()[row];
    const double* const from = across.data() + column;
    for (std::int64_t i = 0; i < rest; ++i) to[done + i] = factor * from[i];
    done += rest;
  }
  if (kept)
    for (std::int64_t i = 0; i < length; ++i) to[i] *= kept.data()[begin + i];
  return weights;
}

PartsOf parts_of(const Array& whole) {
  return [flat = whole.materialize()](std::int64_t begin, std::int64_t length) {
    return flat.window({{length}, {1}, begin});
  };
}

PartsOf observed_parts(const GraphTap& tap) {
  return [&tap](std::int64_t begin, std::int64_t length) { return observed_part(tap, begin, length); };
}

namespace {

// The sum of what `of` says of each part's weights.
Later<double> sum_of_parts(
    const Weights& weights,
    const std::function<Later<double>(const Array& part, std::int64_t begin, std::int64_t length)>& of) {
  const std::int64_t n = count(weights.shape);
  if (current_device() != nullptr) return of(weights.array(), 0, n);
  std::vector<double> sums(count_parts(n), 0);
  for_each_part(n, [&](std::size_t part, std::int64_t begin, std::int64_t length) {
    sums[part] = of(weights.part(begin, length), begin, length).get();
  });
  double whole = 0;
  for (const double sum : sums) whole += sum;
  return whole;
}

}  // namespace

Later<double> dot(const Weights& weights, const PartsOf& a) {
  return sum_of_parts(
      weights, [&](const Array& part, std::int64_t begin, std::int64_t length) { return dot(part, a(begin, length)); });
}

Later<double> dot_difference(const Weights& weights, const PartsOf& a, const PartsOf& b) {
  return sum_of_parts(weights, [&](const Array& part, std::int64_t begin, std::int64_t length) {
    return dot_difference(part, a(begin, length), b(begin, length));
  });
}

Weights dense_weights(const Array& weights, const Shape& shape) {
  const std::int64_t m = shape.size() > 1 ? shape[0] : 1;
  return {Array::full({m}, 1), Array::full({m > 0 ? count(shape) / m : 0}, 1), shape, weights};
}

ProbeTap probe_tap(std::size_t index, const GraphTap& tap, const Array& exact, const Array& mask) {
  if (tap.scale > 0) return {index, tap.name, tap.shape, tap.scale, mask};
  if (!mask) return {index, tap.name, tap.shape, norm2(exact), mask};
  Array part = exact.materialize().on_host();
  Array finite = Array::uninitialized(part.shape());
  const Array kept = mask.on_host();
  for (std::int64_t i = 0; i < part.count(); ++i) finite.data()[i] = kept.data()[i] == 0 ? 0 : part.data()[i];
  return {index, tap.name, tap.shape, norm2(finite), mask};
}

Probe scalar_probe(const ProbeTap& tap) {
  const Array one = Array::full({1}, 1);
  return {
      tap.name, {{tap.index, count(tap.shape), {one, one, tap.shape}}}, tap.magnitude > 0 ? tap.magnitude.get() : 1};
}

Probe element_probe(const std::string& name, const ProbeTap& tap, std::int64_t element, double magnitude) {
  const std::int64_t m = tap.shape.size() > 1 ? tap.shape[0] : 1, n = count(tap.shape) / m;
  Array rows = Array::zeros({m}), columns = Array::zeros({n});
  rows.data()[element / n] = 1;
  columns.data()[element % n] = 1;
  return {name, {{tap.index, 1, {rows, columns, tap.shape}}}, magnitude > 0 ? magnitude : 1, true};
}

Probe signs_probe(const std::string& name, const std::vector<ProbeTap>& taps, std::uint64_t seed,
                  const std::vector<ProbeTap>& beside) {
  std::vector<ProbeTap> all = taps;
  all.insert(all.end(), beside.begin(), beside.end());
  const double norm = joint_norm(all);
  Probe probe{name, {}, 1};
  for (const ProbeTap& tap : taps) {
    const std::int64_t elements = count(tap.shape), m = tap.shape.size() > 1 ? tap.shape[0] : 1;
    const std::int64_t n = m > 0 ? elements / m : 0;
    const Array rows = m > 1 ? drawn(m, 1, seed) : Array::full({m}, 1);
    seed += kGamma * static_cast<std::uint64_t>(m);
    probe.parts.push_back({tap.index, elements, {rows, drawn(n, norm, seed), tap.shape, tap.mask}});
    seed += kGamma * static_cast<std::uint64_t>(n);
  }
  return probe;
}

std::vector<NodeId> probed_nodes(const Graph& graph, const std::vector<Probe>& probes) {
  std::set<NodeId> nodes;
  for (const Probe& probe : probes)
    for (const Probe::Part& part : probe.parts)
      for (const GraphTap::Term& term : graph.taps[part.tap].terms) nodes.insert(term.node);
  return {nodes.begin(), nodes.end()};
}

}  // namespace plumbline
