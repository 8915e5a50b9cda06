// What the CUDA backend's tests apply: every primitive in random problems, shapes that reach each of its paths, and all
// that a primitive is asked for.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/operations.h"
#include "tests/soundness/problem.h"
#include "tests/unit/kernels/cases.h"

namespace plumbline::testing {

// Long rows and columns, pieces of products, odd counts, operands that are repeated, strided or overlapping.
inline std::vector<Case> large_cases(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<Case> result;
  const auto r = [&](const Shape& shape, double low, double high) { return random_array(rng, shape, low, high); };
  const auto add = [&](std::string name, Primitive p, Attributes a, Shape shape, std::vector<Array> in) {
    result.push_back({std::move(name), p, std::move(a), std::move(shape), std::move(in)});
  };
  const auto over = [](std::vector<std::int64_t> dims, double scalar = 0) {
    Attributes a;
    a.dims = std::move(dims);
    a.scalar = scalar;
    return a;
  };
  using enum Primitive;
  add("add/odd", kAdd, {}, {257, 33}, {r({257, 33}, -1, 1), r({33}, -1, 1)});
  add("mul/unaligned", kMul, {}, {4095}, {r({4096}, -1, 1).restride({{4095}, {1}, 1}), r({4095}, -1, 1)});
  add("add/permuted", kAdd, {}, {8, 9, 10},
      {r({10, 9, 8}, -1, 1).restride({{8, 9, 10}, {1, 8, 72}, 0}), r({9, 1}, -1, 1)});
  for (const Primitive p : {kAdd, kSub})  // The second may stand for infinity.
    add(std::string(traits(p).name) + "/absorbs", p, over({}, 1), {4, 5},
        {r({4, 5}, -2, 2), array_of({5}, {0, -0x1.fffffep127, 0x1p80, 3, 0x1p65})});
  add("exp/long", kExp, {}, {70001}, {r({70001}, -9, 9)});
  for (const Primitive p : {kSum, kAmax, kNorm, kVarianceRsqrt}) {
    const std::string name(traits(p).name);
    const double eps = p == kVarianceRsqrt ? 0.01 : 0;
    add(name + "/one", p, over({0}, eps), {1}, {r({200003}, -1, 1)});
    add(name + "/rows", p, over({1}, eps), {7, 1}, {r({7, 3001}, -1, 1)});
    add(name + "/columns", p, over({0}, eps), {1, 33}, {r({4001, 33}, -1, 1)});
    add(name + "/channels", p, over({0, 2}, eps), {1, 5, 1}, {r({17, 5, 700}, -1, 1)});
  }
  add("argmax/long", kArgmax, over({1}), {5, 1}, {r({5, 5000}, -1, 1)});
  // Few values, zeros of either sign, infinities and NaN: equal ones stay in order.
  Array few = Array::uninitialized({400, 30});
  const double values[] = {0.0, -0.0, 1.5, -2.5, HUGE_VAL, -HUGE_VAL, NAN, -NAN};
  for (std::int64_t i = 0; i < few.count(); ++i) few.data()[i] = values[rng() % std::size(values)];
  for (const std::int64_t dim : {0, 1}) {
    Attributes order = over({dim});
    order.size = 11;
    add("argsort/few", kArgsort, order, dim == 0 ? Shape{11, 30} : Shape{400, 11}, {few});
  }
  add("cumsum/long", kCumsum, over({1}), {3, 5003}, {r({3, 5003}, -1, 1)});
  add("cumsum/column", kCumsum, over({0}), {1500, 7}, {r({1500, 7}, -1, 1)});
  for (const Primitive p : {kSoftmax, kLogSoftmax}) {
    const std::string name(traits(p).name);
    add(name + "/long", p, {}, {3, 5003}, {r({3, 5003}, -9, 9)});
    add(name + "/many", p, {}, {301, 65}, {r({301, 65}, -9, 9)});
  }
  add("matmul/pieces", kMatmul, {}, {33, 17}, {r({33, 2100}, -1, 1), r({2100, 17}, -1, 1)});
  add("matmul/batches", kMatmul, {}, {6, 9, 11}, {r({6, 9, 700}, -1, 1), r({6, 700, 11}, -1, 1)});
  add("matmul/shared", kMatmul, {}, {5, 40, 30}, {r({5, 40, 600}, -1, 1), r({600, 30}, -1, 1)});
  add("matmul/square", kMatmul, {}, {96, 96}, {r({96, 96}, -1, 1), r({96, 96}, -1, 1)});
  const auto seen = [](View view) {
    Attributes a;
    a.view = std::move(view);
    return a;
  };
  // What a convolution reads of a picture: windows of 3 x 3 that overlap.
  add("window/patches", kWindow, seen({{2, 14, 14, 3, 3}, {256, 16, 1, 16, 1}, 0}), {2, 14, 14, 3, 3},
      {r({2, 16, 16}, -1, 1)});
  Attributes rows;
  rows.size = 40;
  Array index = Array::uninitialized({900});
  for (std::int64_t i = 0; i < index.count(); ++i)
    index.data()[i] = static_cast<double>(static_cast<std::int64_t>(rng() % 41) - 1);
  add("scatter_add/many", kScatterAdd, rows, {40, 300}, {r({900, 300}, -1, 1), index});
  add("gather_rows/many", kGatherRows, {}, {900, 70}, {r({40, 70}, -1, 1), index});
  add("gather_rows/strided", kGatherRows, {}, {900, 1300},
      {r({1300, 40}, -1, 1).window({{40, 1300}, {1, 40}, 0}), index});
  return result;
}

inline std::vector<Case> random_cases(std::uint64_t seed, int times) {
  soundness::Random random(seed);
  std::vector<Case> result;
  for (const PrimitiveTraits& row : all_primitives()) {
    if (row.arity == 0) continue;
    for (int i = 0; i < times; ++i) {
      soundness::Problem p = soundness::random_problem(row.primitive, Format::kFloat32, random);
      result.push_back({std::string(row.name) + "/" + p.regime + "/" + std::to_string(i), p.primitive, p.attributes,
                        p.shape, p.inputs});
    }
  }
  return result;
}

// All that a registry row says of one application.
struct Answer {
  Array value;
  std::vector<Array> gradients;
  Bound error, radius;
  Noise noise;
  ChainResult chained;  // Elementwise primitives give the same as a chain of one step.
};

// The primitive, and its inverse sign on top: what waits in a slot is read again.
inline ChainResult chained(const Case& c, const Arithmetic& arithmetic, const std::vector<Bound>& radii) {
  const std::int64_t n = count(c.shape);
  const auto flat = [&](const Array& x) {
    return x.count() == 1 ? x.reshape({}) : x.expand(c.shape).materialize().reshape({n});
  };
  std::vector<Chain::Source> sources;
  std::vector<ChainInput> inputs;
  std::vector<std::size_t> indices;
  for (std::size_t k = 0; k < c.inputs.size(); ++k) {
    sources.push_back({c.inputs[k].count() == 1, true});
    inputs.push_back({flat(c.inputs[k]), nullptr, Format::kUnknown, {flat(radii[k].values)}});
    indices.push_back(k);
  }
  Chain chain(std::move(sources), true);
  chain.add(c.primitive, c.attributes, indices, arithmetic);
  const std::size_t made = indices.size(), ends[] = {made};
  chain.add(Primitive::kNeg, {}, ends, arithmetic);
  chain.ask({made, made + 1});
  return run(chain, inputs, n);
}

// Asks the primitives of the current backend. Cotangent and radii come from the host's noise, so that every backend is
// asked the same.
inline Answer answer(const Case& c) {
  const PrimitiveTraits& row = traits(c.primitive);
  const Profile profile = ieee();
  const Arithmetic arithmetic{Format::kFloat32, Format::kFloat32, &profile};
  const auto drawn = [](std::uint32_t stream, const Shape& shape, double scale) {
    Array array = Array::uninitialized(shape);
    double* const to = array.data();
    for (std::int64_t i = 0; i < array.count(); ++i)
      to[i] = scale * soundness::noise(stream, static_cast<std::uint32_t>(i));
    return array;
  };
  Answer answer;
  answer.value = row.evaluate(c.attributes, c.shape, c.inputs).materialize();
  if (!answer.value) return answer;
  const Array cotangent = drawn(1, c.shape, 1);
  answer.gradients.resize(c.inputs.size());
  std::vector<Array*> into;
  for (Array& gradient : answer.gradients) into.push_back(&gradient);
  row.pull_back(c.attributes, c.inputs, answer.value, cotangent, into);
  row.pull_back(c.attributes, c.inputs, answer.value, cotangent, into);  // On top of what is there.
  answer.error = row.local_error(c.attributes, arithmetic, c.inputs, answer.value);
  std::vector<Bound> radii(c.inputs.size());
  for (std::size_t i = 0; i < radii.size(); ++i) {
    if (i == 1 && (c.primitive == Primitive::kGatherRows || c.primitive == Primitive::kScatterAdd)) continue;
    radii[i].values = drawn(2 + static_cast<std::uint32_t>(i), c.inputs[i].shape(), 1e-3);
    double* const r = radii[i].values.data();
    for (std::int64_t k = 0; k < radii[i].values.count(); ++k) r[k] = std::fabs(r[k]);
  }
  answer.radius = row.radius(c.attributes, c.inputs, radii, answer.value);
  if (is_elementwise(c.primitive)) answer.chained = chained(c, arithmetic, radii);
  if (answer.error) {
    answer.noise = row.charges(c.attributes, arithmetic, c.inputs, answer.value, answer.error, {&cotangent, 1})
                       .get()
                       .front()
                       .noise;
  }
  return answer;
}

}  // namespace plumbline::testing
