#include "server/bound/envelope/probe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/sums.h"
#include "server/bound/envelope/adjoint.h"
#include "server/bound/envelope/lost.h"
#include "server/bound/replay/taps.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;
using test::normal;

// An update that its weight swallows, and a square that fp32 cannot hold, say nothing however they are asked.
TEST(Probe, TapsAreLostInTheirOwnRounding) {
  const Profile profile = ieee();
  const std::int64_t n = 100;
  for (const auto& [step, square, lost] : {std::tuple{1e-9, 1e-25, true}, std::tuple{1e-3, 1e-10, false}}) {
    GraphBuilder b;
    const NodeId w = b.leaf({n}, std::vector<double>(n, 1.0)), d = b.leaf({n}, std::vector<double>(n, step));
    const NodeId g = b.leaf({n}, std::vector<double>(n, square));
    b.tap("update", TapKind::kUpdate, b.op(Primitive::kAdd, {w, d}, {n}), std::vector<double>(n, 0));
    b.graph.taps.back().terms.push_back({w, -1, Format::kFloat32, {}});
    b.tap("square", TapKind::kValue, b.op(Primitive::kMul, {g, g}, {n}), std::vector<double>(n, 0));
    const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
    for (std::size_t i = 0; i < b.graph.taps.size(); ++i) {
      const ProbeTap tap = probe_tap(i, b.graph.taps[i], replayed_value(b.graph.taps[i], exact));
      EXPECT_EQ(lost_in_own_rounding(b.graph, exact, tap, profile, hoeffding_lambda(10, 1e-3)), lost) << tap.name;
    }
  }
}

// Weights by parts are those of the whole, and so is what is weighed by them, across rows, tiles and a mask.
TEST(Probe, WhatIsWeighedByPartsIsWhatIsWeighedWhole) {
  std::mt19937 rng(9);
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 1}, Shape{700, 3, 41}, Shape{0, 4}})
    for (const bool masked : {false, true}) {
      const std::int64_t n = count(shape);
      const auto drawn = [&] {
        Array x = Array::uninitialized(shape);
        std::ranges::copy(normal(rng, n), x.data());
        return x;
      };
      const Array a = drawn(), b = drawn();
      Array mask = Array::full(shape, 1).materialize();
      if (masked && n > 2) mask.data()[n / 2] = 0;
      const Probe probe = signs_probe("s", {{0, "tap", shape, 1.0, masked ? mask : Array()}}, 4);
      const Weights& weights = probe.parts[0].weights;
      const Array whole = weights.array().materialize();
      for (std::int64_t begin = 0, length = 1; begin < n; begin += length, length = std::min(3 * length, n - begin)) {
        const Array part = weights.part(begin, length);
        ASSERT_TRUE(std::equal(part.data(), part.data() + length, whole.data() + begin)) << begin;
      }
      const double expected = dot_difference(whole, a, b), found = dot_difference(weights, parts_of(a), parts_of(b));
      EXPECT_NEAR(found, expected, 1e-13 * static_cast<double>(n)) << n;
      EXPECT_EQ(found != 0, n > 0);
    }
}

TEST(Probe, SignsAreReproducible) {
  const std::vector<ProbeTap> taps{{0, "g", {50}, 7}, {1, "h", {50}, 24}};
  const Probe a = signs_probe("s", taps, 5), b = signs_probe("s", taps, 5), c = signs_probe("s", taps, 6);
  EXPECT_TRUE(bitwise_equal(a.parts[0].weights.array(), b.parts[0].weights.array()));
  EXPECT_FALSE(bitwise_equal(a.parts[0].weights.array(), c.parts[0].weights.array()));
  EXPECT_FALSE(bitwise_equal(a.parts[0].weights.array(), a.parts[1].weights.array()));
}

}  // namespace
}  // namespace plumbline
