// Small valid applications of every primitive, with random inputs: what registry-wide tests enumerate. A primitive
// without a case fails `EveryPrimitiveHasACase`.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/primitive/primitive.h"

namespace plumbline::testing {

struct Case {
  std::string name;
  Primitive primitive;
  Attributes attributes;
  Shape shape;
  std::vector<Array> inputs;
};

inline Array random_array(std::mt19937_64& rng, const Shape& shape, double low, double high) {
  std::uniform_real_distribution<double> distribution(low, high);
  Array array = Array::uninitialized(shape);
  for (std::int64_t i = 0; i < array.count(); ++i) array.data()[i] = distribution(rng);
  return array;
}

inline Array array_of(const Shape& shape, const std::vector<double>& values) {
  Array array = Array::uninitialized(shape);
  std::copy(values.begin(), values.end(), array.data());
  return array;
}

inline std::vector<Case> cases(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<Case> result;
  const auto add = [&](std::string name, Primitive p, Attributes a, Shape shape, std::vector<Array> in) {
    result.push_back({std::move(name), p, std::move(a), std::move(shape), std::move(in)});
  };
  const auto r = [&](const Shape& shape, double low, double high) { return random_array(rng, shape, low, high); };
  using enum Primitive;

  add("leaf", kLeaf, {}, {2}, {});
  Attributes tenth;
  tenth.scalar = 0.1;
  add("constant", kConstant, tenth, {2, 3}, {});
  Attributes ramp;
  ramp.scalar = -1;
  ramp.scalar2 = 0.3;
  add("iota", kIota, ramp, {7}, {});

  struct Domain {
    Primitive primitive;
    double low, high;
  };
  for (const Domain d :
       {Domain{kNeg, -2, 2},   {kAbs, 0.1, 2},    {kSign, 0.1, 2},    {kExp, -3, 3},      {kExpm1, -2, 2},
        {kLog, 0.1, 4},        {kLog1p, -0.5, 4}, {kSqrt, 0.1, 4},    {kRsqrt, 0.1, 4},   {kReciprocal, 0.2, 3},
        {kSin, -4, 4},         {kCos, -4, 4},     {kTanh, -3, 3},     {kErf, -3, 3},      {kSigmoid, -4, 4},
        {kFloor, 0.1, 0.9},    {kCeil, 0.1, 0.9}, {kRound, 0.1, 0.4}, {kTrunc, 0.1, 0.9}, {kIsFinite, -1, 1},
        {kLogicalNot, 0.5, 1}, {kCast, -2, 2}}) {
    add(std::string(traits(d.primitive).name), d.primitive, {}, {3, 5}, {r({3, 5}, d.low, d.high)});
  }
  for (const Domain d : {Domain{kAdd, -2, 2},
                         {kSub, -2, 2},
                         {kMul, -2, 2},
                         {kDiv, 0.5, 2},
                         {kPow, 0.5, 2},
                         {kAtan2, -2, 2},
                         {kMax, -2, 2},
                         {kMin, -2, 2},
                         {kFmod, 0.5, 2},
                         {kLess, -2, 2},
                         {kLessEqual, -2, 2},
                         {kGreater, -2, 2},
                         {kGreaterEqual, -2, 2},
                         {kEqual, -2, 2},
                         {kNotEqual, -2, 2},
                         {kLogicalAnd, 0.5, 2},
                         {kLogicalOr, 0.5, 2}}) {
    const std::string name(traits(d.primitive).name);
    add(name, d.primitive, {}, {2, 3, 4}, {r({2, 3, 4}, d.low, d.high), r({2, 3, 4}, d.low, d.high)});
    add(name + "/row", d.primitive, {}, {2, 3, 4}, {r({2, 3, 4}, d.low, d.high), r({4}, d.low, d.high)});
    add(name + "/column", d.primitive, {}, {2, 3, 4}, {r({3, 1}, d.low, d.high), r({2, 3, 4}, d.low, d.high)});
    add(name + "/scalar", d.primitive, {}, {2, 3, 4},
        {r({}, d.low, d.high), r({2, 1, 4}, d.low, d.high).expand({2, 3, 4})});
  }
  add("select", kSelect, {}, {2, 4}, {array_of({4}, {1, 0, 1, 0}), r({2, 4}, -1, 1), r({2, 1}, -1, 1)});

  const auto over = [](std::vector<std::int64_t> dims, double scalar = 0) {
    Attributes a;
    a.dims = std::move(dims);
    a.scalar = scalar;
    return a;
  };
  for (const Primitive p : {kSum, kAmax, kAmin, kNorm, kVarianceRsqrt}) {
    const std::string name(traits(p).name);
    const double eps = p == kVarianceRsqrt ? 0.01 : 0;
    add(name + "/last", p, over({2}, eps), {2, 3, 1}, {r({2, 3, 37}, -1, 1)});
    add(name + "/first", p, over({0}, eps), {1, 3, 4}, {r({5, 3, 4}, -1, 1)});
    add(name + "/outer", p, over({0, 2}, eps), {1, 3, 1}, {r({4, 3, 5}, -1, 1)});
    add(name + "/all", p, over({0, 1}, eps), {1, 1}, {r({4, 6}, -1, 1)});
    Array strided = r({6, 4}, -1, 1).restride({{4, 6}, {1, 4}, 0});
    add(name + "/transposed", p, over({1}, eps), {4, 1}, {strided});
  }
  add("argmax", kArgmax, over({1}), {3, 1}, {r({3, 9}, -1, 1)});
  for (const std::int64_t kept : {2, 9}) {
    Attributes order = over({1});
    order.size = kept;
    add("argsort/" + std::to_string(kept), kArgsort, order, {3, kept}, {r({3, 9}, -1, 1)});
    order.dims = {0};
    add("argsort/columns/" + std::to_string(kept), kArgsort, order, {kept, 3}, {r({9, 3}, -1, 1)});
  }
  add("cumsum/last", kCumsum, over({1}), {3, 9}, {r({3, 9}, -1, 1)});
  add("cumsum/first", kCumsum, over({0}), {3, 9}, {r({3, 9}, -1, 1)});

  add("matmul", kMatmul, {}, {3, 5}, {r({3, 4}, -1, 1), r({4, 5}, -1, 1)});
  add("matmul/batch", kMatmul, {}, {2, 3, 3, 5}, {r({2, 3, 3, 4}, -1, 1), r({2, 3, 4, 5}, -1, 1)});
  add("matmul/linear", kMatmul, {}, {2, 3, 5}, {r({2, 3, 4}, -1, 1), r({4, 5}, -1, 1)});
  add("matmul/left", kMatmul, {}, {2, 3, 5}, {r({3, 4}, -1, 1), r({2, 4, 5}, -1, 1)});
  add("matmul/outer-batch", kMatmul, {}, {2, 4, 3, 2}, {r({2, 1, 3, 4}, -1, 1), r({1, 4, 4, 2}, -1, 1)});
  add("matmul/transposed", kMatmul, {}, {3, 5},
      {r({4, 3}, -1, 1).restride({{3, 4}, {1, 3}, 0}), r({5, 4}, -1, 1).restride({{4, 5}, {1, 4}, 0})});
  add("matmul/strided", kMatmul, {}, {2, 2}, {r({2, 8}, -1, 1).restride({{2, 4}, {8, 2}, 1}), r({4, 2}, -1, 1)});
  add("matmul/heads", kMatmul, {}, {2, 3, 4, 4},
      {r({2, 4, 3, 5}, -1, 1).restride({{2, 3, 4, 5}, {60, 5, 15, 1}, 0}),
       r({2, 4, 3, 5}, -1, 1).restride({{2, 3, 5, 4}, {60, 5, 1, 15}, 0})});

  add("matmul/begun", kMatmul, {}, {3, 5}, {r({3, 4}, -1, 1), r({4, 5}, -1, 1), r({5}, -1, 1).expand({3, 5})});
  add("matmul/scaled", kMatmul, {}, {2, 3, 5},
      {r({2, 3, 4}, -1, 1), r({4, 5}, -1, 1), r({2, 3, 5}, -1, 1), r({}, -2, 2)});

  add("softmax", kSoftmax, {}, {3, 7}, {r({3, 7}, -3, 3)});
  add("log_softmax", kLogSoftmax, {}, {3, 7}, {r({3, 7}, -3, 3)});

  const auto seen = [](View view) {
    Attributes a;
    a.view = std::move(view);
    return a;
  };
  add("window/reshape", kWindow, seen({{6, 4}, {4, 1}, 0}), {6, 4}, {r({2, 3, 4}, -1, 1)});
  add("window/transpose", kWindow, seen({{4, 6}, {1, 4}, 0}), {4, 6}, {r({6, 4}, -1, 1)});
  add("window/slice", kWindow, seen({{2, 3}, {8, 2}, 1}), {2, 3}, {r({4, 8}, -1, 1)});
  add("window/expand", kWindow, seen({{3, 4}, {0, 1}, 0}), {3, 4}, {r({4}, -1, 1)});
  add("window/overlap", kWindow, seen({{5, 3}, {1, 1}, 0}), {5, 3}, {r({7}, -1, 1)});
  Attributes pieces;
  pieces.size = 12;
  pieces.views = {{{2, 3}, {6, 1}, 0}, {{2, 2}, {6, 1}, 2}};
  add("assemble", kAssemble, pieces, {12}, {r({2, 3}, -1, 1), r({2, 2}, -1, 1)});
  pieces.has_base = true;
  add("assemble/base", kAssemble, pieces, {12}, {r({12}, -1, 1), r({2, 3}, -1, 1), r({2, 2}, -1, 1)});
  add("gather_rows", kGatherRows, {}, {5, 3}, {r({4, 3}, -1, 1), array_of({5}, {0, 3, 3, 1, 0})});
  Attributes rows;
  rows.size = 4;
  add("scatter_add", kScatterAdd, rows, {4, 3}, {r({5, 3}, -1, 1), array_of({5}, {0, 3, -1, 3, 0})});
  return result;
}

}  // namespace plumbline::testing
