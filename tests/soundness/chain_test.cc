// A chain is its primitives one after the other: bit by bit in its values, and in its radii what each primitive's own
// enclosure and local error make, whose soundness is shown elsewhere. What a device does with one element is what the
// host's blocks do.
#include "kernels/chain.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/primitive/chain_lane.h"
#include "tests/soundness/arithmetics.h"
#include "tests/soundness/problem.h"

namespace plumbline::soundness {
namespace {

bool same(double a, double b, double tolerance = 0) {
  return a == b || (a != a && b != b) || std::fabs(a - b) <= tolerance * std::fabs(b);
}

Array flat(const Array& x, const Shape& shape) {
  return x.count() == 1 ? x.reshape({}) : x.expand(shape).materialize().reshape({count(shape)});
}

// Radii are small, and now and then zero, infinite, or none at all.
std::vector<Bound> random_radii(const std::vector<Array>& inputs, Random& random) {
  std::vector<Bound> radii(inputs.size());
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (pick(random, 0, 3) == 0) continue;
    radii[k].values = Array::uninitialized(inputs[k].shape());
    for (std::int64_t i = 0; i < inputs[k].count(); ++i) {
      const std::int64_t kind = pick(random, 0, 40);
      const double size = std::exp2(static_cast<double>(pick(random, -30, 1)));
      radii[k].values.data()[i] = kind == 0 ? HUGE_VAL : kind < 10 ? 0 : size * std::fabs(inputs[k].data()[i]);
      if (std::isnan(radii[k].values.data()[i])) radii[k].values.data()[i] = 1;
    }
  }
  return radii;
}

struct OneStep {
  Chain chain;
  std::vector<ChainInput> inputs;

  OneStep(Primitive primitive, const Attributes& attributes, const Arithmetic& arithmetic,
          const std::vector<Array>& values, const std::vector<Bound>& radii)
      : chain(sources(values, radii), true) {
    std::vector<std::size_t> indices;
    for (std::size_t k = 0; k < values.size(); ++k) {
      indices.push_back(k);
      inputs.push_back({values[k], nullptr, Format::kUnknown, radii[k]});
    }
    chain.add(primitive, attributes, indices, arithmetic);
    chain.ask({values.size()});
  }

 private:
  static std::vector<Chain::Source> sources(const std::vector<Array>& values, const std::vector<Bound>& radii) {
    std::vector<Chain::Source> sources;
    for (std::size_t k = 0; k < values.size(); ++k)
      sources.push_back({values[k].shape().empty(), static_cast<bool>(radii[k])});
    return sources;
  }
};

// What the arrays' own rules make of the step: (carried + error at the farthest operands)(1 + 2^-40).
Array radius_by_arrays(const PrimitiveTraits& row, const Attributes& attributes, const Arithmetic& arithmetic,
                       const std::vector<Array>& values, const std::vector<Bound>& radii, const Array& result,
                       bool inflated) {
  const auto farthest = [](const Array& x, const Array& r) {
    const Array wide = r.expand(x.shape()).materialize();
    Array far = Array::uninitialized(x.shape());
    for (std::int64_t i = 0; i < x.count(); ++i)
      far.data()[i] = std::copysign(std::fabs(x.data()[i]) + wide.data()[i], x.data()[i]);
    return far;
  };
  const Bound carried = row.radius(attributes, values, radii, result);
  std::vector<Array> at = values;
  for (std::size_t k = 0; k < at.size(); ++k)
    if (inflated && radii[k]) at[k] = farthest(values[k], radii[k].values);
  const Bound error = row.local_error(attributes, arithmetic, at, carried ? farthest(result, carried.values) : result);
  Array radius = Array::zeros(result.shape());
  for (std::int64_t i = 0; i < radius.count(); ++i) {
    const double c = carried ? carried.values.materialize().data()[i] : 0;
    const double e = error ? error.values.materialize().data()[i] : 0;
    radius.data()[i] = carried ? (c + e) * (1 + 0x1p-40) : e;
  }
  return radius;
}

TEST(Chain, OfOneStepIsItsPrimitive) {
  Random random(31);
  std::vector<Case> arithmetics;
  for (const char* name : {"ieee", "pytorch-cpu", "cuda-fastmath"})
    for (const auto& [compute, result] : {std::pair{Format::kFloat32, Format::kFloat32},
                                          {Format::kFloat32, Format::kBFloat16},
                                          {Format::kFloat64, Format::kFloat64}})
      arithmetics.push_back({compute, result, shipped_profile(name)});
  for (const PrimitiveTraits& row : all_primitives()) {
    if (!is_elementwise(row.primitive)) continue;
    for (int trial = 0; trial < 60; ++trial) {
      const Case& c = arithmetics[static_cast<std::size_t>(trial) % arithmetics.size()];
      const Problem problem = random_problem(row.primitive, Format::kFloat32, random, pick(random, 2, 700));
      std::vector<Array> values;
      for (const Array& x : problem.inputs) values.push_back(flat(x, problem.shape));
      const std::int64_t n = count(problem.shape);
      if (std::ranges::all_of(values, [](const Array& x) { return x.shape().empty(); })) continue;
      const std::vector<Bound> radii = random_radii(values, random);
      const OneStep one(row.primitive, problem.attributes, c.arithmetic(), values, radii);
      const ChainResult found = run(one.chain, one.inputs, n);

      const Array expected = row.evaluate(problem.attributes, {n}, values);
      const Chain::Step& step = one.chain.steps()[0];
      const Array radius =
          radius_by_arrays(row, problem.attributes, c.arithmetic(), values, radii, expected, step.inflated);
      Largest largest;
      for (std::int64_t i = 0; i < n; ++i) {
        const double t = found.values[0].data()[i], r = found.radii[0] ? found.radii[0].values.data()[i] : 0;
        SCOPED_TRACE(std::string(row.name) + " " + problem.regime + " " + c.name() + " element " + std::to_string(i));
        ASSERT_TRUE(same(t, expected.data()[i])) << t << " for " << expected.data()[i];
        // Functions of vectors and of single numbers are off by an ULP each, at the ends of a ball as well.
        const auto same_radius = [t](double a, double b) {
          return same(a, b, 0x1p-40) || std::fabs(a - b) <= 0x1p-50 * (std::fabs(t) + b) + 1e-320;
        };
        ASSERT_TRUE(same_radius(r, radius.data()[i])) << r << " for " << radius.data()[i];
        double x[3] = {}, ball[3] = {};
        for (std::size_t k = 0; k < values.size(); ++k) {
          const std::int64_t at = values[k].shape().empty() ? 0 : i;
          x[k] = values[k].data()[at];
          if (radii[k]) ball[k] = radii[k].values.data()[at];
        }
        ASSERT_TRUE(same(primitive::chain::value(step, x), t, 0x1p-50)) << primitive::chain::value(step, x);
        ASSERT_TRUE(same_radius(primitive::chain::radius(step, x, ball, t), r));
        if (found.radii[0]) largest.look_at(1, &r, &t);
      }
      EXPECT_EQ(found.largest.get()[0].radius, largest.radius);
      EXPECT_EQ(found.largest.get()[0].value, largest.value);
    }
  }
}

// Many steps of few slots, sources of every kind, ends anywhere: as if every step were a chain of its own.
TEST(Chain, OfManyStepsIsOneStepAfterTheOther) {
  using enum Primitive;
  constexpr Primitive kTaken[] = {kAdd, kSub, kMul, kMax, kSqrt, kAbs, kTanh, kSelect};
  constexpr std::int64_t kElements = 1000;  // No whole number of blocks.
  const Profile profile = shipped_profile("pytorch-cpu");
  const Arithmetic arithmetic{Format::kFloat32, Format::kFloat32, &profile};
  Random random(32);
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<float> packed(kElements);
    Array plain = Array::uninitialized({kElements}), decoded = Array::uninitialized({kElements});
    Bound radii{Array::uninitialized({kElements})};
    for (std::int64_t i = 0; i < kElements; ++i) {
      plain.data()[i] = uniform(random, -2, 2);
      decoded.data()[i] = packed[static_cast<std::size_t>(i)] = static_cast<float>(uniform(random, -2, 2));
      radii.values.data()[i] = uniform(random, 0, 1e-3);
    }
    std::vector<ChainInput> inputs = {
        {plain, nullptr, Format::kUnknown, radii},
        {{}, reinterpret_cast<const std::uint8_t*>(packed.data()), Format::kFloat32, {}},
        {Array::scalar(0.75), nullptr, Format::kUnknown, {Array::scalar(1e-4)}},
    };
    Chain chain({{false, true}, {false, false}, {true, true}}, true);
    std::vector<Array> values = {plain, decoded, Array::scalar(0.75)};
    std::vector<Bound> balls = {radii, {}, {Array::scalar(1e-4)}};
    std::vector<std::size_t> ends;
    for (int s = 0; s < 40; ++s) {
      const Primitive primitive = kTaken[pick(random, 0, std::ssize(kTaken) - 1)];
      std::vector<std::size_t> read = {static_cast<std::size_t>(
          pick(random, std::max<std::int64_t>(0, std::ssize(values) - 6), std::ssize(values) - 1))};
      while (std::ssize(read) < traits(primitive).arity)
        read.push_back(static_cast<std::size_t>(pick(random, 0, std::ssize(values) - 1)));
      if (read[0] == 2) read[0] = 0;  // An array among them.
      chain.add(primitive, {}, read, arithmetic);
      std::vector<Array> x;
      std::vector<Bound> r;
      for (std::size_t input : read) {
        x.push_back(values[input]);
        r.push_back(balls[input]);
      }
      const OneStep one(primitive, {}, arithmetic, x, r);
      const ChainResult found = run(one.chain, one.inputs, kElements);
      values.push_back(found.values[0]);
      balls.push_back(found.radii[0]);
      if (pick(random, 0, 4) == 0 || s == 39) ends.push_back(values.size() - 1);
    }
    chain.ask(ends);
    EXPECT_LT(chain.slots(), 30U);
    const ChainResult found = run(chain, inputs, kElements);
    ASSERT_EQ(found.values.size(), ends.size());
    for (std::size_t e = 0; e < ends.size(); ++e) {
      ASSERT_EQ(static_cast<bool>(found.radii[e]), static_cast<bool>(balls[ends[e]]));
      for (std::int64_t i = 0; i < kElements; ++i) {
        ASSERT_TRUE(same(found.values[e].data()[i], values[ends[e]].data()[i])) << trial << " " << ends[e] << " " << i;
        if (!found.radii[e]) continue;
        ASSERT_TRUE(same(found.radii[e].values.data()[i], balls[ends[e]].values.data()[i])) << trial << " " << ends[e];
      }
    }
  }
}

}  // namespace
}  // namespace plumbline::soundness
